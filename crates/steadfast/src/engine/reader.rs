//! Reading: a consistent view of the working state, shared by any number of readers.

use lock_api::RwLockReadGuard;
use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::engine::Engine;
use crate::engine::keyspace::{KeyspaceRead, Visit};
use crate::engine::lifecycle::Lifecycle;
use crate::error::Result;
use crate::format::key::Key;
use crate::format::{Root, Value};
use crate::log::LogOverlay;
use crate::platform::Platform;

/// The state that readers see.
pub(super) struct View {
    /// The tree.
    pub root: Root,
    /// Values from the log that have precedence over the tree, until it is
    /// [replayed](crate::engine::recovery::overlay).
    pub log: Option<Arc<LogOverlay>>,
}

/// While it is held no operation changes the tree, so hold it only briefly. The thread that holds
/// one must not start a change.
pub(crate) struct Reader<'a, M: Medium, P: Platform> {
    engine: &'a Engine<M, P>,
    view: RwLockReadGuard<'a, P::RwLock, View>,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(crate) fn reader(&self) -> Result<Reader<'_, M, P>> {
        loop {
            let view = self.view.read();
            match self.lifecycle.now() {
                Lifecycle::RollingBack => {}
                // Closed meanwhile, perhaps in the middle of a rollback.
                Lifecycle::Closed => self.lifecycle.check_not_closed()?,
                Lifecycle::Lost => return Err(self.lifecycle.poisoned()),
                _ => return Ok(Reader { engine: self, view }),
            }
            // A rollback replays the log and releases the view between its steps. Readers must not
            // see the states in between.
            drop(view);
            drop(self.working.lock());
        }
    }
}

impl<M: Medium, P: Platform> Reader<'_, M, P> {
    /// The tree, without the values of a log that is not replayed.
    pub(crate) fn root(&self) -> &Root {
        &self.view.root
    }
}

impl<M: Medium, P: Platform> KeyspaceRead for Reader<'_, M, P> {
    fn get(&self, key: &Key) -> Result<Option<Value>> {
        self.view.get(&self.engine.store, key)
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.view.get_with(&self.engine.store, key, take)
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        self.view.scan(&self.engine.store, from, to, visit)
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.view.next(&self.engine.store, from, to)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.view.previous(&self.engine.store, from, to)
    }

    fn next_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.view.next_with(&self.engine.store, from, to, take)
    }

    fn previous_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.view.previous_with(&self.engine.store, from, to, take)
    }

    fn value_len_max(&self) -> usize {
        self.engine.store.device.superblock.value_len_max()
    }
}
