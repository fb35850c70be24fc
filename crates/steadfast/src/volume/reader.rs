//! Reading: a consistent view of the working state, shared by any number of readers.

use core::sync::atomic::Ordering;

use alloc::sync::Arc;

use lock_api::RwLockReadGuard;
use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::key::Key;
use crate::keyspace::{KeyspaceRead, Version, Versioned, Visit};
use crate::log::Newest;
use crate::platform::Platform;
use crate::tree::Root;

/// What readers look at.
pub(super) struct View {
    /// The tree.
    pub root: Root,
    /// What the log says beside it, until it is [replayed](super::unreplayed).
    pub log: Option<Arc<Newest>>,
}

/// While it is held no operation changes the tree, so look at what is needed and drop it. The
/// thread that holds one must not start a change.
pub(crate) struct Reader<'a, M: Medium, P: Platform> {
    volume: &'a Volume<M, P>,
    view: RwLockReadGuard<'a, P::RwLock, View>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    pub(crate) fn reader(&self) -> Result<Reader<'_, M, P>> {
        self.check_open()?;
        loop {
            let view = self.view.read();
            if !self.rolling_back.load(Ordering::Acquire) {
                self.check_shown()?;
                return Ok(Reader { volume: self, view });
            }
            // A replay lets the view go between its steps, and no state in between may be seen.
            drop(view);
            drop(self.working.lock());
        }
    }

    /// Looks up with the versions of a local tree: writers are serialised, so nothing that a writer
    /// has read can change before it commits, and one version serves for everything.
    pub(super) fn versioned_get(&self, view: &View, key: &Key) -> Result<Option<Versioned>> {
        Ok(self.look_up(view, key)?.map(|value| Versioned { value, version: Version::default() }))
    }

    pub(super) fn versioned_next(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Versioned)>> {
        let found = self.look_up_next(view, from, to)?;
        Ok(found.map(|(key, value)| (key, Versioned { value, version: Version::default() })))
    }

    pub(super) fn versioned_previous(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Versioned)>> {
        let found = self.look_up_previous(view, from, to)?;
        Ok(found.map(|(key, value)| (key, Versioned { value, version: Version::default() })))
    }
}

impl<M: Medium, P: Platform> Reader<'_, M, P> {
    /// The tree, without what a log that is not replayed says beside it.
    pub(crate) fn root(&self) -> &Root {
        &self.view.root
    }
}

impl<M: Medium, P: Platform> KeyspaceRead for Reader<'_, M, P> {
    fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        self.volume.versioned_get(&self.view, key)
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8], Version) -> T) -> Result<Option<T>> {
        self.volume.look_up_with(&self.view, key, |value| take(value, Version::default()))
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        self.volume.look_up_scan(&self.view, from, to, visit)
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_next(&self.view, from, to)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_previous(&self.view, from, to)
    }

    fn value_len_max(&self) -> usize {
        self.volume.store.superblock.value_len_max()
    }
}
