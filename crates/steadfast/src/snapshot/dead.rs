//! Dead lists: runs of blocks that the live tree has let go and that snapshots still hold.
//!
//! The entries of one list are disjoint from each other and from those of every other list. Their
//! order means nothing.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::fs::memory;
use crate::layout::{FieldReader, FieldWriter};
use crate::types::{BlockAddress, BlockRun, Generation};

/// Bytes of an entry.
const ENTRY_LEN: usize = 20;
/// Bytes of a tree item beside its value.
const ITEM_OVERHEAD: usize = 21;

/// A run of blocks of one birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeadEntry {
    pub run: BlockRun,
    pub birth: Generation,
}

/// Entries in one value at most: a quarter of a node.
pub(crate) fn entries_max(value_len_max: usize) -> usize {
    (((value_len_max + ITEM_OVERHEAD) / 4).saturating_sub(ITEM_OVERHEAD) / ENTRY_LEN).max(1)
}

/// Length of a value with so many entries, bytes.
pub(crate) const fn dead_item_len(entries: usize) -> usize {
    entries * ENTRY_LEN
}

/// The value for some entries.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn encode_dead_list(entries: &[DeadEntry]) -> Result<Vec<u8>> {
    let mut bytes = memory::zeroed(entries.len() * ENTRY_LEN)?;
    let mut fields = FieldWriter::new(&mut bytes);
    for entry in entries {
        fields.u64(entry.run.start.0).u32(entry.run.count as u32).u64(entry.birth.0);
    }
    Ok(bytes)
}

/// The entries of a value. `contains` says whether a run can be allocated at all.
///
/// # Errors
/// `CorruptMetadata`, `OutOfMemory`.
pub(crate) fn decode_dead_list(
    value: &[u8],
    contains: impl Fn(BlockRun) -> bool,
) -> Result<Vec<DeadEntry>> {
    let damaged = |reason| Error::CorruptMetadata { address: BlockAddress::NONE, reason };
    if value.is_empty() || !value.len().is_multiple_of(ENTRY_LEN) {
        return Err(damaged("dead list: wrong length"));
    }
    let mut entries = Vec::new();
    entries.try_reserve_exact(value.len() / ENTRY_LEN).map_err(|_| Error::OutOfMemory)?;
    for bytes in value.chunks_exact(ENTRY_LEN) {
        let mut fields = FieldReader::new(bytes);
        let run = BlockRun { start: BlockAddress(fields.u64()), count: u64::from(fields.u32()) };
        let birth = Generation(fields.u64());
        if !contains(run) {
            return Err(damaged("dead list: blocks out of range"));
        }
        entries.push(DeadEntry { run, birth });
    }
    Ok(entries)
}

/// Entries of the newest snapshot's dead list that are not in the tree yet.
#[derive(Debug, Default)]
pub(crate) struct Dying {
    /// Sorted by first block.
    runs: Vec<DeadEntry>,
}

impl Dying {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Makes room for `count` more, which need no memory then.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        self.runs.try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// Adds a run, which is in no dead list.
    pub fn add(&mut self, run: BlockRun, birth: Generation) {
        let at = self.runs.partition_point(|entry| entry.run.start < run.start);
        let joins = |first: &DeadEntry, second: &DeadEntry| {
            first.run.end() == second.run.start.0
                && first.birth == second.birth
                && first.run.count + second.run.count <= u64::from(u32::MAX)
        };
        let new = DeadEntry { run, birth };
        let before = at.checked_sub(1).filter(|before| joins(&self.runs[*before], &new));
        let Some(before) = before else {
            match self.runs.get_mut(at).filter(|behind| joins(&new, behind)) {
                Some(behind) => {
                    behind.run = BlockRun { start: run.start, count: run.count + behind.run.count }
                }
                None => self.runs.insert(at, new),
            }
            return;
        };
        self.runs[before].run.count += run.count;
        if self.runs.get(at).is_some_and(|behind| joins(&self.runs[before], behind)) {
            let behind = self.runs.remove(at);
            self.runs[before].run.count += behind.run.count;
        }
    }

    /// The first `limit` entries.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn first(&self, limit: usize) -> Result<Vec<DeadEntry>> {
        memory::copy(&self.runs[..limit.min(self.runs.len())])
    }

    /// Takes out entries that [`first`](Self::first) gave.
    pub fn remove(&mut self, entries: &[DeadEntry]) {
        self.runs.retain(|entry| {
            entries.binary_search_by_key(&entry.run.start, |gone| gone.run.start).is_err()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u64, count: u64, birth: u64) -> DeadEntry {
        DeadEntry { run: BlockRun { start: BlockAddress(start), count }, birth: Generation(birth) }
    }

    #[test]
    fn round_trip_and_damage() {
        let entries = [entry(5, 2, 3), entry(100, 1, 1)];
        let value = encode_dead_list(&entries).unwrap();
        assert_eq!(decode_dead_list(&value, |_| true).unwrap(), entries);
        assert!(decode_dead_list(&value, |run| run.start.0 < 100).is_err());
        for length in [0, 19, 21, 39] {
            assert!(decode_dead_list(&value[..length], |_| true).is_err());
        }
    }

    #[test]
    fn neighbours_of_one_birth_are_one_entry() {
        let mut dying = Dying::default();
        for (start, count, birth) in [(10, 2, 1), (14, 2, 1), (16, 1, 2), (12, 2, 1), (9, 1, 1)] {
            dying.add(entry(start, count, birth).run, Generation(birth));
        }
        assert_eq!(dying.first(9).unwrap(), [entry(9, 7, 1), entry(16, 1, 2)]);
        dying.remove(&dying.first(1).unwrap());
        assert_eq!(dying.first(9).unwrap(), [entry(16, 1, 2)]);
        dying.add(entry(17, u64::from(u32::MAX), 2).run, Generation(2));
        assert_eq!(dying.len(), 2, "a count has 32 bits");
    }

    #[test]
    fn a_value_is_a_quarter_of_a_node() {
        assert_eq!((entries_max(443), entries_max(4027)), (4, 49));
    }
}
