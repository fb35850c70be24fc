//! A delta, and what a node keeps of them.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::Mutation;
use crate::format::payload;
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::types::{Generation, Lsn};

/// How far the medium is: two numbers that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The generation of a metaroot.
    pub generation: Generation,
    /// The number of the next log record.
    pub lsn: Lsn,
}

impl Place {
    /// Whether a medium here has what one at `other` lacks.
    pub fn is_after(&self, other: &Place) -> bool {
        self.generation > other.generation || self.lsn > other.lsn
    }
}

/// How the state of an opened volume compares with what a node was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// It lacks something.
    Less,
    /// It has all of it, and may have more.
    All,
    /// It is the state of the node's last delta.
    Same,
}

/// The changes since the last delta of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The batch after which the changes begin.
    pub begins_at: u64,
    /// The batch up to which it has all changes.
    pub sequence: u64,
    /// The batch up to which all changes are durable.
    pub durable_sequence: u64,
    /// Where the medium had that batch.
    pub durable: Place,
    /// What was sealed before the delta. A medium after this has all its changes.
    pub sealed: Place,
    /// Keys and values, in the form of a log record that is not packed.
    pub payload: Vec<u8>,
}

/// The deltas that a node keeps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptDeltas {
    /// The batch up to which they have all changes.
    pub sequence: u64,
    /// Where they begin.
    pub durable: Place,
    /// A medium after this has all their changes.
    pub sealed: Place,
    /// The node was told of changes that are in no delta.
    pub lacks_changes: bool,
    /// The batch up to which each payload has all changes since the one before, oldest first.
    pub payloads: Vec<(u64, Vec<u8>)>,
}

impl KeptDeltas {
    /// Keeps one more delta of the same owner, and drops those whose changes are durable. A delta
    /// that comes late or twice changes nothing.
    ///
    /// # Errors
    /// `OutOfMemory`. `InvalidArgument`: the changes between the last delta and this one are
    /// missing. Nothing is kept then, and it [lacks changes](Self::lacks_changes).
    pub fn keep(&mut self, delta: Delta) -> Result<()> {
        let Delta { begins_at, sequence, durable_sequence, durable, sealed, payload } = delta;
        if sequence < self.sequence {
            return Ok(());
        }
        let nothing = || KeptDeltas { lacks_changes: true, ..KeptDeltas::default() };
        if begins_at > self.sequence.max(durable_sequence) {
            *self = nothing();
            return Err(Error::InvalidArgument("changes between two deltas are missing"));
        }
        if begins_at <= durable_sequence {
            self.payloads.retain(|_| planted(Sabotage::KeepOldDeltas));
        }
        self.payloads.retain(|(at, _)| *at > durable_sequence || planted(Sabotage::KeepOldDeltas));
        (self.sequence, self.durable, self.sealed) = (sequence, durable, sealed);
        self.lacks_changes = false;
        if !payload.is_empty()
            && let Err(error) = memory::push(&mut self.payloads, (sequence, payload))
        {
            *self = nothing();
            return Err(error);
        }
        Ok(())
    }

    /// Bytes of all payloads.
    pub fn bytes(&self) -> usize {
        self.payloads.iter().map(|(_, payload)| payload.len()).sum()
    }

    /// The newest mutation of each key, in the order of the keys. `None`: a payload is malformed.
    pub(crate) fn mutations(&self) -> Result<Option<Vec<Mutation>>> {
        let mut all = Vec::new();
        for (_, payload) in self.payloads.iter().rev() {
            let Some(mut mutations) = payload::mutations(payload, |_| true)? else {
                return Ok(None);
            };
            memory::append(&mut all, &mut mutations)?;
        }
        // The newest mutation of a key comes first, and a stable sort needs memory of its own.
        let mut order: Vec<usize> = memory::collect(0..all.len())?;
        crate::sort::sort_by_key(&mut order, |index| (all[*index].key, *index));
        order.dedup_by_key(|index| all[*index].key);
        let mut newest = Vec::new();
        for index in order {
            let key = all[index].key;
            memory::push(&mut newest, Mutation { key, value: all[index].value.take() })?;
        }
        Ok(Some(newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RecordBuilder;
    use crate::format::key::Key;
    use crate::types::InodeNumber;

    fn payload(changes: &[(u64, Option<&[u8]>)]) -> Vec<u8> {
        let mut builder = RecordBuilder::new(0).unwrap();
        for (number, value) in changes {
            builder.add(&Key::inode(InodeNumber(*number)), *value).unwrap();
        }
        builder.into_payload()
    }

    fn delta(begins_at: u64, sequence: u64, durable: u64, payload: Vec<u8>) -> Delta {
        let place = |lsn| Place { generation: Generation(1), lsn: Lsn(lsn) };
        Delta {
            begins_at,
            sequence,
            durable_sequence: durable,
            durable: place(durable),
            sealed: place(durable),
            payload,
        }
    }

    #[test]
    fn the_newest_value_of_a_key_counts_until_it_is_durable() {
        let mut kept = KeptDeltas::default();
        kept.keep(delta(0, 3, 0, payload(&[(1, Some(b"a")), (2, Some(b"b"))]))).unwrap();
        kept.keep(delta(3, 4, 0, payload(&[(2, None), (3, Some(b"c"))]))).unwrap();
        let values = |kept: &KeptDeltas| {
            let newest = kept.mutations().unwrap().unwrap();
            newest.into_iter().map(|mutation| mutation.value).collect::<Vec<_>>()
        };
        let some = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(values(&kept), [some(b"a"), None, some(b"c")]);
        kept.keep(delta(4, 5, 3, payload(&[(3, Some(b"d"))]))).unwrap();
        assert_eq!(values(&kept), [None, some(b"d")]);
        assert_eq!(kept.payloads.len(), 2);
        // One from the durable state on replaces all.
        kept.keep(delta(3, 6, 3, payload(&[(9, Some(b"e"))]))).unwrap();
        assert_eq!(values(&kept), [some(b"e")]);
        kept.keep(delta(6, 6, 6, Vec::new())).unwrap();
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn a_delta_that_comes_late_or_twice_changes_nothing() {
        let deltas = [
            delta(0, 3, 0, payload(&[(1, Some(b"a"))])),
            delta(3, 5, 0, payload(&[(1, Some(b"b"))])),
            delta(3, 9, 0, payload(&[(1, Some(b"c")), (2, Some(b"d"))])),
        ];
        let mut kept = KeptDeltas::default();
        for at in [0, 1, 2, 1, 0] {
            kept.keep(deltas[at].clone()).unwrap();
        }
        assert_eq!((kept.sequence, kept.payloads.len()), (9, 3));
        let newest = kept.mutations().unwrap().unwrap();
        assert_eq!(newest[0].value.as_deref(), Some(&b"c"[..]));
    }

    #[test]
    fn a_gap_and_a_malformed_payload_are_noticed() {
        let mut kept = KeptDeltas::default();
        kept.keep(delta(0, 3, 0, payload(&[(1, Some(b"a"))]))).unwrap();
        assert!(kept.keep(delta(4, 5, 2, payload(&[(2, None)]))).is_err());
        assert_eq!(kept, KeptDeltas { lacks_changes: true, ..KeptDeltas::default() });
        kept.keep(delta(0, 3, 0, b"no record".to_vec())).unwrap();
        assert_eq!(kept.mutations().unwrap(), None);
    }
}
