//! Look-ups of readers: the dentry and inode cache first, then the tree. Until the log is
//! [replayed](crate::engine::recovery::overlay), its values come before those of the tree.

use alloc::sync::Arc;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::keyspace::Visit;
use crate::engine::reader::View;
use crate::error::Result;
use crate::format::Value;
use crate::format::key::{Key, Kind};
use crate::log::LogOverlay;
use crate::memory;
use crate::platform::Platform;
use crate::profile::LOG_OVERLAY;
use crate::sabotage::{Sabotage, planted};
use crate::tree::CachedDentry;

impl<M: Medium, P: Platform> Engine<M, P> {
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
