//! Look-ups of readers: the dentry and inode cache first, then the tree. Until the log is
//! [replayed](crate::engine::recovery::overlay), its values come before those of the tree.

use steadfast_media::Medium;
use steadfast_media::sync::Arc;

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
use crate::tree::{CachedDentry, Store};

impl View {
    /// The value of a key, from the log or else from the tree.
    pub(super) fn get<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        key: &Key,
    ) -> Result<Option<Value>> {
        self.get_with(store, key, memory::copy)?.transpose()
    }

    /// As [`get`](Self::get), passed to `take` without a copy.
    pub(super) fn get_with<M: Medium, P: Platform, T>(
        &self,
        store: &Store<M, P>,
        key: &Key,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        if let Some(value) = self.log().and_then(|log| log.get(key)) {
            return Ok(value.map(take));
        }
        if key.kind() != Some(Kind::Inode) {
            return store.get_with(&self.root, key, take);
        }
        let take = match store.dentries.attributes(key, take) {
            Ok(result) => return Ok(Some(result)),
            Err(take) => take,
        };
        store.get_with(&self.root, key, |value| {
            store.dentries.note(key, value);
            take(value)
        })
    }

    /// Passes the items with keys in `from..=to` to `visit`, in order, until `visit` returns
    /// `false`.
    pub(super) fn scan<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        from: &Key,
        to: &Key,
        visit: Visit<'_>,
    ) -> Result<()> {
        let mut next = Some(*from);
        if self.log().is_some() {
            while let Some(from) = next.filter(|from| from <= to) {
                let Some((key, value)) = self.next(store, &from, to)? else { break };
                next = if visit(&key, &value)? { key.successor() } else { None };
            }
            return Ok(());
        }
        // The names of one hash; nearly always there is only one.
        let names =
            from.kind() == Some(Kind::Dirent) && from.is_first_slot() && *to == from.last_slot();
        match if names { store.dentries.entry(from) } else { None } {
            Some(CachedDentry::Absent) => return Ok(()),
            Some(CachedDentry::First(key, value)) => {
                if !visit(&key, value.bytes())? {
                    return Ok(());
                }
                next = key.successor();
            }
            None if names => {
                let mut first = true;
                store.scan(&self.root, from, to, &mut |key, value| {
                    if core::mem::take(&mut first) {
                        store.dentries.note_first(key, value);
                    }
                    visit(key, value)
                })?;
                if first {
                    store.dentries.note_absent(from);
                }
                return Ok(());
            }
            None => {}
        }
        match next.filter(|from| from <= to) {
            Some(from) => store.scan(&self.root, &from, to, visit),
            None => Ok(()),
        }
    }

    /// The first item with a key in `from..=to`, of log and tree.
    pub(super) fn next<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Value)>> {
        let mut in_tree = store.next(&self.root, from, to)?;
        let Some(log) = self.log() else { return Ok(in_tree) };
        let mut from = *from;
        while let Some((key, value)) = log.next(&from, to) {
            if in_tree.as_ref().is_some_and(|(other, _)| *other < key) {
                break;
            }
            if let Some(value) = value {
                return Ok(Some((key, memory::copy(value)?)));
            }
            // Removed by the log: continue after it.
            let Some(after) = key.successor().filter(|after| after <= to) else {
                return Ok(None);
            };
            from = after;
            if in_tree.as_ref().is_some_and(|(other, _)| *other == key) {
                in_tree = store.next(&self.root, &from, to)?;
            }
        }
        Ok(in_tree)
    }

    /// As [`next`](Self::next), passed to `take`: without a copy if there is no
    /// log.
    pub(super) fn next_with<M: Medium, P: Platform, T>(
        &self,
        store: &Store<M, P>,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if self.log().is_none() {
            return store.next_with(&self.root, from, to, take);
        }
        Ok(self.next(store, from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// As [`previous`](Self::previous), passed to `take`: without a copy if there
    /// is no log.
    pub(super) fn previous_with<M: Medium, P: Platform, T>(
        &self,
        store: &Store<M, P>,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if self.log().is_none() {
            return store.previous_with(&self.root, from, to, take);
        }
        Ok(self.previous(store, from, to)?.map(|(key, value)| take(&key, &value)))
    }

    /// The last item with a key in `from..=to`, of log and tree.
    pub(super) fn previous<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        from: &Key,
        to: &Key,
    ) -> Result<Option<(Key, Value)>> {
        let mut in_tree = store.previous(&self.root, from, to)?;
        let Some(log) = self.log() else { return Ok(in_tree) };
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
                in_tree = store.previous(&self.root, from, &to)?;
            }
        }
        Ok(in_tree)
    }

    fn log(&self) -> Option<&Arc<LogOverlay>> {
        if !LOG_OVERLAY {
            return None;
        }
        self.log.as_ref().filter(|_| !planted(Sabotage::ReadPastTheLog))
    }
}
