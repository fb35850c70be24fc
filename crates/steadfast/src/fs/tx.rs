//! One attempt at an operation: reads that remember what they relied on, writes that the operation
//! itself sees at once, and a batch at the end.
//!
//! Invariants:
//! - nothing reaches the keyspace before [`Tx::commit`]; dropping a `Tx` undoes it;
//! - every value that was read becomes a precondition. A *range* is guarded by the inode key of its
//!   owner: whoever adds or removes a key of an inode (an entry, an attribute, an extent) also
//!   writes its inode key, and every reader of a range has read that key;
//! - the mutations are sorted by key, at most one a key, and remove only keys that exist.

use alloc::vec::Vec;
use core::cell::RefCell;

use crate::error::{Error, Result};
use crate::fs::memory;
use crate::key::Key;
use crate::keyspace::{
    BATCH_MUTATIONS_MAX, Batch, Keyspace, KeyspaceRead, Mutation, Precondition, SpaceClass, Value,
    Version, Versioned, Visit,
};
use crate::types::Timestamp;

/// A transaction on a keyspace, not yet committed.
pub(crate) struct Tx<'k, K: Keyspace> {
    keyspace: &'k K,
    class: SpaceClass,
    writes: Vec<Mutation>,
    seen: RefCell<Vec<Precondition>>,
}

impl<'k, K: Keyspace> Tx<'k, K> {
    /// An empty transaction.
    pub fn new(keyspace: &'k K, class: SpaceClass) -> Self {
        Tx { keyspace, class, writes: Vec::new(), seen: RefCell::new(Vec::new()) }
    }

    /// The keyspace below, for numbers, time and birth stamps.
    pub fn keyspace(&self) -> &'k K {
        self.keyspace
    }

    /// Time for time stamps.
    pub fn now(&self) -> Timestamp {
        self.keyspace.now()
    }

    /// How many more keys this transaction can change.
    pub fn room(&self) -> usize {
        BATCH_MUTATIONS_MAX.saturating_sub(self.writes.len())
    }

    fn position(&self, key: &Key) -> core::result::Result<usize, usize> {
        self.writes.binary_search_by(|write| write.key.cmp(key))
    }

    /// Remembers that `key` was at `version`.
    ///
    /// # Errors
    /// `Conflict` where it was seen at another version before: the attempt has no consistent view.
    fn note(&self, key: &Key, version: Option<Version>) -> Result<()> {
        let mut seen = self.seen.borrow_mut();
        match seen.binary_search_by(|precondition| precondition.key.cmp(key)) {
            Ok(at) if seen[at].version == version => Ok(()),
            Ok(_) => Err(Error::Conflict),
            Err(at) => memory::insert(&mut seen, at, Precondition { key: *key, version }),
        }
    }

    /// States that `key` is absent, as a range read has shown, so that the commit relies on it.
    pub fn expect_absent(&self, key: &Key) -> Result<()> {
        match self.position(key) {
            Ok(_) => Ok(()),
            Err(_) => self.note(key, None),
        }
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

    /// Removes `key`; nothing happens where it does not exist.
    pub fn delete(&mut self, key: &Key) -> Result<()> {
        let known = {
            let seen = self.seen.borrow();
            let at = seen.binary_search_by(|precondition| precondition.key.cmp(key));
            at.ok().map(|at| seen[at].version.is_some())
        };
        let exists = match known {
            Some(exists) => exists,
            None => {
                let found = self.keyspace.get(key)?;
                self.note(key, found.as_ref().map(|found| found.version))?;
                found.is_some()
            }
        };
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

    /// The batch of this transaction.
    ///
    /// # Errors
    /// `Unsupported` where the operation changes more keys than a batch holds.
    pub fn finish(self) -> Result<Batch> {
        if self.writes.len() > BATCH_MUTATIONS_MAX {
            return Err(Error::Unsupported("operation changes too many keys"));
        }
        Ok(Batch {
            mutations: self.writes,
            preconditions: self.seen.into_inner(),
            class: self.class,
        })
    }

    /// Applies the transaction; one without changes succeeds at once.
    ///
    /// # Errors
    /// `Conflict`: run the operation again. `NoSpace`, and what the keyspace answers.
    pub fn commit(self) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let keyspace = self.keyspace;
        keyspace.commit(self.finish()?)
    }
}

impl<K: Keyspace> KeyspaceRead for Tx<'_, K> {
    fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        if let Ok(at) = self.position(key) {
            return match &self.writes[at].value {
                None => Ok(None),
                Some(value) => {
                    Ok(Some(Versioned { value: memory::copy(value)?, version: Version::default() }))
                }
            };
        }
        let found = self.keyspace.get(key)?;
        self.note(key, found.as_ref().map(|found| found.version))?;
        Ok(found)
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8], Version) -> T) -> Result<Option<T>> {
        if let Ok(at) = self.position(key) {
            return Ok(self.writes[at].value.as_ref().map(|value| take(value, Version::default())));
        }
        let mut seen = None;
        let found = self.keyspace.get_with(key, |value, version| {
            seen = Some(version);
            take(value, version)
        })?;
        self.note(key, seen)?;
        Ok(found)
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        let (Ok(first) | Err(first)) = self.position(from);
        if self.writes.get(first).is_none_or(|write| write.key > *to) {
            return self.keyspace.scan(from, to, &mut |key, value, version| {
                self.note(key, Some(version))?;
                visit(key, value, version)
            });
        }
        let mut next = Some(*from);
        while let Some(from) = next.filter(|from| from <= to) {
            let Some((key, found)) = self.next(&from, to)? else { break };
            if !visit(&key, &found.value, found.version)? {
                break;
            }
            next = key.successor();
        }
        Ok(())
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
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
        self.choose(below, own, |own, below| own < below)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
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
        let behind = match self.position(to) {
            Ok(at) => at + 1,
            Err(at) => at,
        };
        let own = self.writes[..behind].iter().rev().take_while(|write| write.key >= *from);
        let own =
            own.filter_map(|write| write.value.as_ref().map(|value| (write.key, value))).next();
        self.choose(below, own, |own, below| own > below)
    }

    fn value_len_max(&self) -> usize {
        self.keyspace.value_len_max()
    }
}

impl<K: Keyspace> Tx<'_, K> {
    /// Of what the keyspace has and what this transaction has written, the one that comes first.
    fn choose(
        &self,
        below: Option<(Key, Versioned)>,
        own: Option<(Key, &Value)>,
        own_first: impl Fn(&Key, &Key) -> bool,
    ) -> Result<Option<(Key, Versioned)>> {
        match (below, own) {
            (Some((key, _)), Some((own_key, value))) if own_first(&own_key, &key) => Ok(Some((
                own_key,
                Versioned { value: memory::copy(value)?, version: Version::default() },
            ))),
            (Some((key, found)), _) => {
                self.note(&key, Some(found.version))?;
                Ok(Some((key, found)))
            }
            (None, Some((key, value))) => Ok(Some((
                key,
                Versioned { value: memory::copy(value)?, version: Version::default() },
            ))),
            (None, None) => Ok(None),
        }
    }
}

/// Runs `operation` in transactions of its own until one commits without a conflict.
///
/// # Errors
/// What the operation or the commit answers, other than `Conflict`.
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) fn retry<K: Keyspace, T>(
    keyspace: &K,
    class: SpaceClass,
    operation: impl Fn(&mut Tx<'_, K>) -> Result<T>,
) -> Result<T> {
    loop {
        let mut tx = Tx::new(keyspace, class);
        match operation(&mut tx).and_then(|answer| tx.commit().map(|()| answer)) {
            Err(Error::Conflict) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::double::MemoryKeyspace;
    use crate::key::Kind;
    use crate::types::InodeNumber;
    use alloc::vec;

    fn key(suffix: u64) -> Key {
        Key::new(InodeNumber(20), Kind::Xattr, suffix)
    }

    fn seeded() -> MemoryKeyspace {
        let keyspace = MemoryKeyspace::new(1);
        retry(&keyspace, SpaceClass::Normal, |tx| {
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
                found.push((next.suffix(), value.value[0]));
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
        let batch = tx.finish().unwrap();
        assert_eq!(batch.mutations.len(), 2, "a key that never existed is not removed: {batch:?}");
    }

    #[test]
    fn a_stale_read_is_a_conflict() {
        let keyspace = seeded();
        let mut tx = Tx::new(&keyspace, SpaceClass::Normal);
        tx.get(&key(10)).unwrap();
        tx.put(key(20), vec![1]).unwrap();
        retry(&keyspace, SpaceClass::Normal, |tx| tx.put(key(10), vec![9])).unwrap();
        assert_eq!(tx.commit(), Err(Error::Conflict));
        let mut tx = Tx::new(&keyspace, SpaceClass::Normal);
        assert!(tx.get(&key(77)).unwrap().is_none());
        tx.put(key(20), vec![1]).unwrap();
        retry(&keyspace, SpaceClass::Normal, |tx| tx.put(key(77), vec![9])).unwrap();
        assert_eq!(tx.commit(), Err(Error::Conflict));
    }

    #[test]
    fn too_many_changes_are_refused() {
        let keyspace = MemoryKeyspace::new(1);
        let answer = retry(&keyspace, SpaceClass::Normal, |tx| {
            (0..65).try_for_each(|suffix| tx.put(key(suffix), vec![]))
        });
        assert!(matches!(answer, Err(Error::Unsupported(_))));
    }
}
