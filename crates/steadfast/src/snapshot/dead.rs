//! Dead lists: runs of blocks that the live tree has let go and that snapshots still hold.
//!
//! The entries of one list are disjoint from each other and from those of every other list. Their order means nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::error::{Error, Result};
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

/// The value for some entries.
pub(crate) fn encode_dead_list(entries: &[DeadEntry]) -> Vec<u8> {
    let mut bytes = alloc::vec![0; entries.len() * ENTRY_LEN];
    let mut fields = FieldWriter::new(&mut bytes);
    for entry in entries {
        fields.u64(entry.run.start.0).u32(entry.run.count as u32).u64(entry.birth.0);
    }
    bytes
}

/// The entries of a value. `contains` says whether a run can be allocated at all.
///
/// # Errors
/// `CorruptMetadata`, `OutOfMemory`.
pub(crate) fn decode_dead_list(value: &[u8], contains: impl Fn(BlockRun) -> bool) -> Result<Vec<DeadEntry>> {
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
    /// By first block: number of blocks, birth.
    runs: BTreeMap<u64, (u64, Generation)>,
}

impl Dying {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds a run, which is in no dead list.
    pub fn add(&mut self, run: BlockRun, birth: Generation) {
        let (mut start, mut count) = (run.start.0, run.count);
        let joins = |count: u64, more: u64| count + more <= u64::from(u32::MAX);
        if let Some((before, (length, born))) = self.runs.range(..start).next_back()
            && before + length == start
            && *born == birth
            && joins(*length, count)
        {
            start = *before;
            count += length;
        }
        if let Some((length, born)) = self.runs.get(&run.end()).copied()
            && born == birth
            && joins(length, count)
        {
            self.runs.remove(&run.end());
            count += length;
        }
        self.runs.insert(start, (count, birth));
    }

    /// The first `limit` entries.
    pub fn first(&self, limit: usize) -> Vec<DeadEntry> {
        let entry = |(start, (count, birth)): (&u64, &(u64, Generation))| DeadEntry {
            run: BlockRun { start: BlockAddress(*start), count: *count },
            birth: *birth,
        };
        self.runs.iter().take(limit).map(entry).collect()
    }

    /// Takes out entries that [`first`](Self::first) gave.
    pub fn remove(&mut self, entries: &[DeadEntry]) {
        for entry in entries {
            self.runs.remove(&entry.run.start.0);
        }
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
        let value = encode_dead_list(&entries);
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
        assert_eq!(dying.first(9), [entry(9, 7, 1), entry(16, 1, 2)]);
        dying.remove(&dying.first(1));
        assert_eq!(dying.first(9), [entry(16, 1, 2)]);
        dying.add(entry(17, u64::from(u32::MAX), 2).run, Generation(2));
        assert_eq!(dying.len(), 2, "a count has 32 bits");
    }

    #[test]
    fn a_value_is_a_quarter_of_a_node() {
        assert_eq!((entries_max(443), entries_max(4027)), (4, 49));
    }
}
