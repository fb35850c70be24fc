//! The log of a volume that was opened and not changed yet: readers see it, but it is not in the
//! tree.
//!
//! Replaying reads the nodes that the log changes, which can be many more than the blocks of the
//! log. Opening a volume to read a file needs none of them. So opening keeps the log's value of
//! each key in memory ([`LogOverlay`]), and readers combine log and tree. The replay happens at the
//! first change, or at the first request for facts that only it makes known (free space, counts,
//! bitmaps). Otherwise it happens in the background.
//!
//! Invariants:
//! - the log together with the tree below is the committed state, before, during and after the
//!   replay. For each of its keys the log is asked first, and nothing else that readers see depends
//!   on it. So readers continue during the replay;
//! - until then nothing is changed. So the tree is the checkpointed one, and of the log only its
//!   end must be known;
//! - if a replay fails, its changes are dropped: the tree is the checkpointed one again, and
//!   readers see what they saw. The operation that needed the replay fails, and the next such
//!   operation retries it;
//! - the log's memory is taken from the node cache.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::apply::check_recorded;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::state::Working;
use crate::error::Result;
use crate::format::key::Key;
use crate::log::{LogContent, LogOverlay};
use crate::memory::{self, Boxed};
use crate::platform::Platform;
use crate::profile::LOG_OVERLAY;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Shows what [`read_log`](super::open::read_log) has found: beside the tree, or replayed if it
    /// takes too much memory.
    #[inline(never)]
    pub(crate) fn install_log(&self, found: LogContent) -> Result<()> {
        if found.len() == 0 {
            self.find_shared_data(&mut self.working.lock());
            return Ok(());
        }
        let left = if LOG_OVERLAY { self.show_beside_tree(found)? } else { Some(found) };
        let Some(found) = left else { return Ok(()) };
        let mut working = self.working.lock();
        self.find_shared_data(&mut working);
        self.replay(&mut working, &found)
    }

    /// Shows the log beside the tree, or gives it back if that takes too much memory.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn show_beside_tree(&self, found: LogContent) -> Result<Option<LogContent>> {
        let check = |key: &Key, value: Option<&[u8]>| {
            check_recorded(&self.store, key, value.map(<[u8]>::len))
        };
        let log = match LogOverlay::of(found, check)? {
            Ok(log) => memory::shared(log)?,
            Err(found) => return Ok(Some(found)),
        };
        self.store.reduce_capacity(log.memory());
        self.view.write().log = Some(log);
        self.lifecycle.enter(Lifecycle::Overlaid);
        Ok(None)
    }

    /// Puts the log into the tree if that is not done yet. The caller holds neither the writer's
    /// lock nor any lock after it.
    ///
    /// # Errors
    /// Those of reading nodes and bitmaps; nothing has changed then. `Poisoned`.
    pub(crate) fn replay_overlay(&self) -> Result<()> {
        if !LOG_OVERLAY || !matches!(self.lifecycle.now(), Lifecycle::Overlaid | Lifecycle::Failed)
        {
            return Ok(());
        }
        let mut working = self.working.lock();
        let Some(log) = self.view.read().log.clone() else { return Ok(()) };
        self.lifecycle.check_not_failed()?;
        self.or_stay(&mut working, |working| self.replay(working, log.log()))?;
        self.view.write().log = None;
        self.lifecycle.enter(Lifecycle::Open);
        self.store.reduce_capacity(0);
        Ok(())
    }

    /// Runs `replay`, which changes the checkpointed state. After an error the state is the
    /// checkpointed one again.
    pub(in crate::engine) fn or_stay(
        &self,
        working: &mut Boxed<Working>,
        replay: impl FnOnce(&mut Working) -> Result<()>,
    ) -> Result<()> {
        let mut before = self.working_at(&working.checkpointed)?;
        self.find_shared_data(working);
        replay(working).inspect_err(|_| {
            let mut view = self.view.write();
            self.store.forget_all();
            view.root = working.checkpointed.root();
            core::mem::swap(&mut before.log, &mut working.log);
            core::mem::swap(&mut before.changed, &mut working.changed);
            *working = before;
        })
    }
}
