//! What one operation changes: writes that the operation itself sees at once, and a batch at the
//! end. Other operations see the batch then; a later transaction point makes it durable.
//!
//! Invariants:
//! - nothing reaches the keyspace before [`Tx::apply`]; dropping a `Tx` undoes it;
//! - the mutations are sorted by key, at most one a key, and remove only keys that exist.

use alloc::vec::Vec;

use crate::engine::keyspace::{BATCH_MUTATIONS_MAX, Keyspace, KeyspaceRead, SpaceClass, Visit};
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{Mutation, Value};
use crate::memory;
use crate::types::Timestamp;

/// The changes of one operation, not yet visible to others.
pub(crate) struct Tx<'k, K: Keyspace> {
    keyspace: &'k K,
    class: SpaceClass,
    writes: Vec<Mutation>,
}

impl<'k, K: Keyspace> Tx<'k, K> {
    /// An empty batch.
    pub fn new(keyspace: &'k K, class: SpaceClass) -> Self {
        Tx { keyspace, class, writes: keyspace.blank_list() }
    }

    /// The keyspace below, for numbers, time and birth stamps.
    pub fn keyspace(&self) -> &'k K {
        self.keyspace
    }

    /// Time for time stamps.
    pub fn now(&self) -> Timestamp {
        self.keyspace.now()
    }

    /// How many more keys this batch can change.
    pub fn room(&self) -> usize {
        BATCH_MUTATIONS_MAX.saturating_sub(self.writes.len())
    }

    fn position(&self, key: &Key) -> core::result::Result<usize, usize> {
        self.writes.binary_search_by(|write| write.key.cmp(key))
    }

    /// Whether this operation has changed a key in `from..=to`.
    fn writes_within(&self, from: &Key, to: &Key) -> bool {
        let (Ok(first) | Err(first)) = self.position(from);
        self.writes.get(first).is_some_and(|write| write.key <= *to)
    }

    /// An empty value, perhaps with memory.
    pub fn blank(&self) -> Value {
        self.keyspace.blank_value()
    }

    /// Sets `key`.
    pub fn put(&mut self, key: Key, value: Value) -> Result<()> {
        match self.position(&key) {
            Ok(at) => {
                self.writes[at].value = Some(value);
                Ok(())
            }
            Err(at) => memory::insert(&mut self.writes, at, Mutation { key, value: Some(value) }),
        }
    }

    /// Removes `key`; does nothing if it does not exist.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        let exists = self.keyspace.get_with(key, |_| ())?.is_some();
        match (self.position(key), exists) {
            (Ok(at), true) => self.writes[at].value = None,
            (Ok(at), false) => drop(self.writes.remove(at)),
            (Err(at), true) => {
                memory::insert(&mut self.writes, at, Mutation { key: *key, value: None })?
            }
            (Err(_), false) => {}
        }
        Ok(())
    }

    /// Removes `key`, which this operation has read: as [`delete`](Self::delete), without looking
    /// once more whether it exists. In a damaged tree a search may not find what a scan has found.
    /// Then nothing is removed.
    pub fn remove(&mut self, key: &Key) -> Result<()> {
        match self.position(key) {
            // Perhaps only this operation has it.
            Ok(_) => self.delete(key),
            Err(at) => memory::insert(&mut self.writes, at, Mutation { key: *key, value: None }),
        }
    }

    /// Applies the batch; one without changes succeeds at once.
    ///
    /// # Errors
    /// `Unsupported` where the operation changes more keys than a batch holds; `NoSpace`, and what
    /// the keyspace answers.
    pub fn apply(self) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        if self.writes.len() > BATCH_MUTATIONS_MAX {
            return Err(Error::Unsupported("operation changes too many keys"));
        }
        self.keyspace.apply(self.writes, self.class)
    }
}

impl<K: Keyspace> KeyspaceRead for Tx<'_, K> {
    fn get(&self, key: &Key) -> Result<Option<Value>> {
        match self.position(key) {
            Ok(at) => self.writes[at].value.as_deref().map(memory::copy).transpose(),
            Err(_) => self.keyspace.get(key),
        }
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        match self.position(key) {
            Ok(at) => Ok(self.writes[at].value.as_deref().map(take)),
            Err(_) => self.keyspace.get_with(key, take),
        }
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        if !self.writes_within(from, to) {
            return self.keyspace.scan(from, to, visit);
        }
        let mut next = Some(*from);
        while let Some(from) = next.filter(|from| from <= to) {
            let Some((key, value)) = self.next(&from, to)? else { break };
            if !visit(&key, &value)? {
                break;
            }
            next = key.successor();
        }
        Ok(())
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        let mut start = *from;
        let below = loop {
            if start > *to {
                break None;
            }
            match self.keyspace.next(&start, to)? {
                Some((key, _)) if self.position(&key).is_ok() => match key.successor() {
                    Some(successor) => start = successor,
                    None => break None,
                },
                other => break other,
            }
        };
        let (Ok(first) | Err(first)) = self.position(from);
        let own = self.writes[first..].iter().take_while(|write| write.key <= *to);
        let own =
            own.filter_map(|write| write.value.as_ref().map(|value| (write.key, value))).next();
        choose(below, own, |own, below| own < below)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        let mut end = *to;
        let below = loop {
            if end < *from {
                break None;
            }
            match self.keyspace.previous(from, &end)? {
                Some((key, _)) if self.position(&key).is_ok() => match key.predecessor() {
                    Some(predecessor) => end = predecessor,
                    None => break None,
                },
                other => break other,
            }
        };
        let after = match self.position(to) {
            Ok(at) => at + 1,
            Err(at) => at,
        };
        let own = self.writes[..after].iter().rev().take_while(|write| write.key >= *from);
        let own =
            own.filter_map(|write| write.value.as_ref().map(|value| (write.key, value))).next();
        choose(below, own, |own, below| own > below)
    }

    fn next_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if !self.writes_within(from, to) {
            return self.keyspace.next_with(from, to, take);
        }
        Ok(self.next(from, to)?.map(|(key, value)| take(&key, &value)))
    }

    fn previous_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        if !self.writes_within(from, to) {
            return self.keyspace.previous_with(from, to, take);
        }
        Ok(self.previous(from, to)?.map(|(key, value)| take(&key, &value)))
    }

    fn value_len_max(&self) -> usize {
        self.keyspace.value_len_max()
    }
}

/// The first of what the keyspace has and what this operation has written.
fn choose(
    below: Option<(Key, Value)>,
    own: Option<(Key, &Value)>,
    own_first: impl Fn(&Key, &Key) -> bool,
) -> Result<Option<(Key, Value)>> {
    match (below, own) {
        (Some((below, value)), Some((own, _))) if !own_first(&own, &below) => {
            Ok(Some((below, value)))
        }
        (_, Some((own, value))) => Ok(Some((own, memory::copy(value)?))),
        (below, None) => Ok(below),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::key::Kind;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use crate::types::InodeNumber;
    use alloc::vec;

    fn key(suffix: u64) -> Key {
        Key::new(InodeNumber(20), Kind::Xattr, suffix)
    }

    fn seeded() -> MemoryKeyspace {
        let keyspace = MemoryKeyspace::new();
        update(&keyspace, SpaceClass::Normal, |tx| {
            for suffix in [10, 20, 30] {
                tx.put(key(suffix), vec![suffix as u8])?;
            }
            Ok(())
        })
        .unwrap();
        keyspace
    }

    #[test]
    fn reads_see_own_writes() {
        let keyspace = seeded();
        let mut tx = Tx::new(&keyspace, SpaceClass::Normal);
        tx.delete(&key(20)).unwrap();
        tx.put(key(25), vec![25]).unwrap();
        tx.put(key(10), vec![11]).unwrap();
        let keys = |tx: &Tx<'_, MemoryKeyspace>| {
            let mut found = vec![];
            let mut from = key(0);
            while let Some((next, value)) = tx.next(&from, &key(u64::MAX)).unwrap() {
                found.push((next.suffix(), value[0]));
                from = next.successor().unwrap();
            }
            found
        };
        assert_eq!(keys(&tx), [(10, 11), (25, 25), (30, 30)]);
        assert_eq!(tx.previous(&key(0), &key(29)).unwrap().unwrap().0, key(25));
        assert_eq!(tx.previous(&key(0), &key(24)).unwrap().unwrap().0, key(10));
        assert!(tx.previous(&key(0), &key(9)).unwrap().is_none());
        tx.delete(&key(25)).unwrap();
        tx.delete(&key(99)).unwrap();
        assert_eq!(keys(&tx), [(10, 11), (30, 30)]);
        assert_eq!(tx.writes.len(), 2, "a key that never existed is not removed: {:?}", tx.writes);
    }

    #[test]
    fn too_many_changes_are_refused() {
        let keyspace = MemoryKeyspace::new();
        let answer = update(&keyspace, SpaceClass::Normal, |tx| {
            (0..65).try_for_each(|suffix| tx.put(key(suffix), vec![]))
        });
        assert!(matches!(answer, Err(Error::Unsupported(_))));
    }
}
