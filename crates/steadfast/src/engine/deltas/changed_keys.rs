//! Keys in the order of their changes, since the durable state.

use alloc::vec::Vec;

use super::kept::Place;
use crate::error::Result;
use crate::format::key::Key;
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::sort::sort;

/// Most changes that are remembered. A key that changes often is there as often.
const CHANGES_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct ChangedKeys {
    /// The batch and the key of each change that is not known to be durable, in order.
    changes: Vec<(u64, Key)>,
    /// Changes up to this batch are not all there.
    forgotten: u64,
    durable_sequence: u64,
    durable: Place,
}

impl ChangedKeys {
    /// The changes after batch `sequence`, which is not durable yet.
    pub fn new(sequence: u64) -> ChangedKeys {
        ChangedKeys {
            changes: Vec::new(),
            forgotten: sequence,
            durable_sequence: 0,
            durable: Place::default(),
        }
    }

    /// Batch `sequence` changes `key`. Without room, the changes so far are in no delta.
    pub fn note(&mut self, sequence: u64, key: Key) {
        if self.changes.len() >= CHANGES_MAX
            || memory::push(&mut self.changes, (sequence, key)).is_err()
        {
            self.changes.clear();
            self.forgotten = sequence;
        }
    }

    /// Everything up to batch `sequence` is durable.
    pub fn note_durable(&mut self, sequence: u64, durable: Place) {
        let kept = self.changes.partition_point(|(at, _)| *at <= sequence);
        self.changes.drain(..kept);
        self.durable_sequence = self.durable_sequence.max(sequence);
        self.durable = durable;
    }

    /// The batch up to which everything is durable.
    pub fn durable_sequence(&self) -> u64 {
        self.durable_sequence
    }

    /// Where the medium had that batch.
    pub fn durable(&self) -> Place {
        self.durable
    }

    /// The keys that were changed after batch `seen` and are not known to be durable, sorted.
    /// `None`: some of them were forgotten.
    pub fn since(&self, seen: u64) -> Result<Option<Vec<Key>>> {
        let from = seen.max(self.durable_sequence);
        if from < self.forgotten {
            return Ok(None);
        }
        let from = if planted(Sabotage::DeltaSkipsBatch) { from + 1 } else { from };
        let first = self.changes.partition_point(|(at, _)| *at <= from);
        let mut keys = memory::collect(self.changes[first..].iter().map(|(_, key)| *key))?;
        sort(&mut keys);
        keys.dedup();
        Ok(Some(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Generation, InodeNumber, Lsn};

    fn key(number: u64) -> Key {
        Key::inode(InodeNumber(number))
    }

    fn place(lsn: u64) -> Place {
        Place { generation: Generation(1), lsn: Lsn(lsn) }
    }

    #[test]
    fn a_key_is_told_once_and_until_it_is_durable() {
        let mut changed = ChangedKeys::new(7);
        assert_eq!(changed.since(6).unwrap(), None);
        changed.note_durable(7, place(1));
        for (sequence, number) in [(8, 2), (8, 1), (9, 2), (10, 3)] {
            changed.note(sequence, key(number));
        }
        assert_eq!(changed.since(0).unwrap().unwrap(), [key(1), key(2), key(3)]);
        assert_eq!(changed.since(8).unwrap().unwrap(), [key(2), key(3)]);
        assert_eq!(changed.since(10).unwrap().unwrap(), []);
        changed.note_durable(9, place(2));
        assert_eq!(changed.since(0).unwrap().unwrap(), [key(3)]);
        assert_eq!((changed.durable_sequence(), changed.durable()), (9, place(2)));
    }

    #[test]
    fn too_many_changes_ask_for_a_point() {
        let mut changed = ChangedKeys::new(0);
        for sequence in 1..=CHANGES_MAX as u64 + 1 {
            changed.note(sequence, key(sequence));
        }
        assert_eq!(changed.since(0).unwrap(), None);
        assert_eq!(changed.since(CHANGES_MAX as u64).unwrap(), None);
        assert_eq!(changed.since(CHANGES_MAX as u64 + 1).unwrap().unwrap(), []);
        changed.note_durable(CHANGES_MAX as u64 + 1, place(2));
        assert_eq!(changed.since(0).unwrap().unwrap(), []);
    }
}
