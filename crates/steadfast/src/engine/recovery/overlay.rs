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

use alloc::sync::Arc;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::apply::is_recorded;
use crate::engine::keyspace::Visit;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::reader::View;
use crate::error::{Error, Result};
use crate::format::Value;
use crate::format::key::{Key, Kind};
use crate::log::{LogContent, LogOverlay};
use crate::memory;
use crate::platform::Platform;
use crate::profile::LOG_OVERLAY;
use crate::sabotage::{Sabotage, planted};
use crate::tree::CachedDentry;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Shows what [`read_log`](Self::read_log) has found: beside the tree, or replayed if it takes
    /// too much memory.
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
        let check =
            |key: &Key, value: Option<&[u8]>| self.check_recorded(key, value.map(<[u8]>::len));
        let log = match LogOverlay::of(found, check)? {
            Ok(log) => memory::shared(log)?,
            Err(found) => return Ok(Some(found)),
        };
        self.store.lend(log.memory());
        self.view.write().log = Some(log);
        self.lifecycle.enter(Lifecycle::Overlaid);
        Ok(None)
    }

    /// Whether a record may hold this mutation.
    pub(crate) fn check_recorded(&self, key: &Key, value_len: Option<usize>) -> Result<()> {
        let damaged =
            |reason| Error::CorruptLog { address: self.store.superblock.log.start, reason };
        if !is_recorded(key) {
            return Err(damaged("log record with a key that is in none"));
        }
        if value_len.is_some_and(|length| length > self.store.superblock.value_len_max()) {
            return Err(damaged("value longer than a node"));
        }
        Ok(())
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
        self.check_not_failed()?;
        let mut before = self.working_at(&working.checkpointed)?;
        self.find_shared_data(&mut working);
        match self.replay(&mut working, log.log()) {
            Ok(()) => {
                self.view.write().log = None;
                self.lifecycle.enter(Lifecycle::Open);
                self.store.lend(0);
                Ok(())
            }
            Err(error) => {
                let mut view = self.view.write();
                self.store.forget_all();
                view.root = working.checkpointed.root();
                core::mem::swap(&mut before.log, &mut working.log);
                *working = before;
                Err(error)
            }
        }
    }

    /// Whether the log is still beside the tree: since open nothing has been changed, and no caller
    /// has needed facts that only the tree has. [Background work](Self::background_step) replays
    /// it.
    pub(crate) fn replay_pending(&self) -> bool {
        self.lifecycle.now() == Lifecycle::Overlaid
    }

    /// The value of a key, from the log or else from the tree.
    pub(in crate::engine) fn look_up(&self, view: &View, key: &Key) -> Result<Option<Value>> {
        self.look_up_with(view, key, memory::copy)?.transpose()
    }

    /// As [`look_up`](Self::look_up), passed to `take` without a copy.
    pub(in crate::engine) fn look_up_with<T>(
        &self,
        view: &View,
        key: &Key,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        if let Some(value) = log_of(view).and_then(|log| log.get(key)) {
            return Ok(value.map(take));
        }
        if key.kind() != Some(Kind::Inode) {
            return self.store.get_with(&view.root, key, take);
        }
        let take = match self.store.dentries.attributes(key, take) {
            Ok(result) => return Ok(Some(result)),
            Err(take) => take,
        };
        self.store.get_with(&view.root, key, |value| {
            self.store.dentries.note(key, value);
            take(value)
        })
    }

    /// Passes the items with keys in `from..=to` to `visit`, in order, until `visit` returns
    /// `false`.
    pub(in crate::engine) fn look_up_scan(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut next = Some(*from);
        if log_of(view).is_some() {
            while let Some(from) = next.filter(|from| from <= to) {
                let Some((key, value)) = self.look_up_next(view, &from, to)? else { break };
                next = if visit(&key, &value)? { key.successor() } else { None };
            }
            return Ok(());
        }
        // The names of one hash; nearly always there is only one.
        let names =
            from.kind() == Some(Kind::Dirent) && from.is_first_slot() && *to == from.last_slot();
        match if names { self.store.dentries.entry(from) } else { None } {
            Some(CachedDentry::Absent) => return Ok(()),
            Some(CachedDentry::First(key, value)) => {
                if !visit(&key, value.bytes())? {
                    return Ok(());
                }
                next = key.successor();
            }
            None if names => {
                let mut first = true;
                self.store.scan(&view.root, from, to, &mut |key, value| {
                    if core::mem::take(&mut first) {
                        self.store.dentries.note_first(key, value);
                    }
                    visit(key, value)
                })?;
                if first {
                    self.store.dentries.note_absent(from);
                }
                return Ok(());
            }
            None => {}
        }
        match next.filter(|from| from <= to) {
            Some(from) => self.store.scan(&view.root, &from, to, visit),
            None => Ok(()),
        }
    }

    /// The first item with a key in `from..=to`, of log and tree.
    pub(in crate::engine) fn look_up_next(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Value)>> {
        let mut in_tree = self.store.next(&view.root, from, to)?;
        let Some(log) = log_of(view) else { return Ok(in_tree) };
        let mut from = *from;
        while let Some((key, value)) = log.next(&from, to) {
            if in_tree.as_ref().is_some_and(|(other, _)| *other < key) {
                break;
            }
            if let Some(value) = value {
                return Ok(Some((key, memory::copy(value)?)));
            }
            // Removed by the log: continue behind it.
            let Some(behind) = key.successor().filter(|behind| behind <= to) else {
                return Ok(None);
            };
            from = behind;
            if in_tree.as_ref().is_some_and(|(other, _)| *other == key) {
                in_tree = self.store.next(&view.root, &from, to)?;
            }
        }
        Ok(in_tree)
    }

    /// As [`look_up_next`](Self::look_up_next), passed to `take`: without a copy if there is no
    /// log.
    pub(in crate::engine) fn look_up_next_with<T>(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if log_of(view).is_none() {
            return self.store.next_with(&view.root, from, to, take);
        }
        Ok(self.look_up_next(view, from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// As [`look_up_previous`](Self::look_up_previous), passed to `take`: without a copy if there
    /// is no log.
    pub(in crate::engine) fn look_up_previous_with<T>(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if log_of(view).is_none() {
            return self.store.previous_with(&view.root, from, to, take);
        }
        Ok(self.look_up_previous(view, from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// The last item with a key in `from..=to`, of log and tree.
    pub(in crate::engine) fn look_up_previous(
        &self,
        view: &View,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Value)>> {
        let mut in_tree = self.store.previous(&view.root, from, to)?;
        let Some(log) = log_of(view) else { return Ok(in_tree) };
        let mut to = *to;
        while let Some((key, value)) = log.previous(from, &to) {
            if in_tree.as_ref().is_some_and(|(other, _)| *other > key) {
                break;
            }
            if let Some(value) = value {
                return Ok(Some((key, memory::copy(value)?)));
            }
            let Some(before) = key.predecessor().filter(|before| before >= from) else {
                return Ok(None);
            };
            to = before;
            if in_tree.as_ref().is_some_and(|(other, _)| *other == key) {
                in_tree = self.store.previous(&view.root, from, &to)?;
            }
        }
        Ok(in_tree)
    }
}

fn log_of(view: &View) -> Option<&Arc<LogOverlay>> {
    if !LOG_OVERLAY {
        return None;
    }
    view.log.as_ref().filter(|_| !planted(Sabotage::ReadPastTheLog))
}
