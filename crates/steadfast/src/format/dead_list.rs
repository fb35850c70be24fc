//! Dead lists: runs of blocks that the live tree has released and that snapshots still hold.
//!
//! The entries of one list are disjoint from each other and from those of every other list. Their
//! order has no meaning.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::{FieldReader, FieldWriter};
use crate::memory;
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

/// Limit of the entries in one value: a quarter of a node.
pub(crate) fn entries_max(value_len_max: usize) -> usize {
    (((value_len_max + ITEM_OVERHEAD) / 4).saturating_sub(ITEM_OVERHEAD) / ENTRY_LEN).max(1)
}

/// Length of a value with `entries` entries, bytes.
pub(crate) const fn dead_item_len(entries: usize) -> usize {
    entries * ENTRY_LEN
}

/// The value for these entries.
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
    fn a_value_is_a_quarter_of_a_node() {
        assert_eq!((entries_max(443), entries_max(4027)), (4, 49));
    }
}
