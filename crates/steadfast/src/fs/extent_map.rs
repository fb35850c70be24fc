//! The map of a file: which extents hold which blocks.
//!
//! Invariant: the extents of a file do not overlap. So at most one of them starts at or before a
//! block and holds it. Blocks without an extent are a hole. All indexes are in blocks from the
//! start of the file.

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::Result;
use crate::format::extent::{EXTENT_UNWRITTEN_BLOCKS_MAX, Extent, written_blocks_max};
use crate::format::inode::{Inode, damaged};
use crate::format::key::{Key, Kind};
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, BlockRun, InodeNumber};

/// An extent and the index of its first block within the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub index: u64,
    pub extent: Extent,
}

impl Mapped {
    /// Index after the last block.
    pub fn end(&self) -> u64 {
        self.index + u64::from(self.extent.length)
    }

    /// The address after its last block, or that of block `index` of the file where that is lower.
    pub fn end_before(&self, index: u64) -> BlockAddress {
        let blocks = (index - self.index).min(u64::from(self.extent.length));
        BlockAddress(self.extent.address.0 + blocks)
    }

    /// The blocks of `from..end`, if it extends before and after them: a hole there splits it in
    /// two.
    pub fn split_by(&self, from: u64, end: u64) -> Option<BlockRun> {
        (self.index < from && end < self.end()).then(|| self.run_within(from, end))
    }

    /// Its blocks in `from..end`, which it overlaps.
    pub fn run_within(&self, from: u64, end: u64) -> BlockRun {
        let (from, end) = (from.max(self.index), end.min(self.end()));
        BlockRun {
            start: BlockAddress(self.extent.address.0 + (from - self.index)),
            count: end.saturating_sub(from),
        }
    }

    /// The part within `from..end`, which it overlaps.
    pub fn clip(&self, from: u64, end: u64) -> Result<Mapped> {
        let (from, end) = (from.max(self.index), end.min(self.end()));
        let part =
            self.extent.slice((from - self.index) as u32, end.saturating_sub(from) as u32)?;
        Ok(Mapped { index: from, extent: part })
    }
}

fn decode(parameters: &Parameters, key: &Key, value: &[u8]) -> Result<Mapped> {
    let extent = Extent::decode(value, parameters.granules_per_block())?;
    let index = key.suffix();
    if index.checked_add(u64::from(extent.length)).is_none() {
        return Err(damaged("extent: past the largest file"));
    }
    Ok(Mapped { index, extent })
}

/// The last extent that starts at block `index` or before.
pub(crate) fn at_or_before(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    index: u64,
) -> Result<Option<Mapped>> {
    let (first, _) = Key::kind_range(inode, Kind::Extent);
    let take = |key: &Key, value: &[u8]| decode(parameters, key, value);
    view.previous_with(&first, &Key::extent(inode, index), take)?.transpose()
}

/// The first extent that holds a block of `from..end`.
pub(crate) fn overlap(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    from: u64,
    end: u64,
) -> Result<Option<Mapped>> {
    if from >= end {
        return Ok(None);
    }
    if let Some(mapped) = at_or_before(view, parameters, inode, from)?
        && mapped.end() > from
    {
        return Ok(Some(mapped));
    }
    starting(view, parameters, inode, from, end)
}

/// The first extent that starts in `from..end`.
pub(crate) fn starting(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    from: u64,
    end: u64,
) -> Result<Option<Mapped>> {
    if from >= end {
        return Ok(None);
    }
    let take = |key: &Key, value: &[u8]| decode(parameters, key, value);
    view.next_with(&Key::extent(inode, from), &Key::extent(inode, end - 1), take)?.transpose()
}

/// The last extent that starts before block `index`.
pub(crate) fn preceding(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    index: u64,
) -> Result<Option<Mapped>> {
    match index.checked_sub(1) {
        Some(last) => at_or_before(view, parameters, inode, last),
        None => Ok(None),
    }
}

/// Makes `from..end` a hole, changing at most `budget` keys (at least 2). Returns the index up to
/// which it is done. The caller stores the inode, whose block count is updated.
#[inline(never)]
pub(crate) fn clear<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    file: (InodeNumber, &mut Inode),
    from: u64,
    end: u64,
    budget: usize,
) -> Result<u64> {
    let (inode, attributes) = file;
    let (mut at, mut changed) = (from, 0);
    while changed + 2 <= budget {
        let found = match at == from {
            true => overlap(tx, parameters, inode, at, end)?,
            false => starting(tx, parameters, inode, at, end)?,
        };
        let Some(mapped) = found else {
            return Ok(end);
        };
        if mapped.index < at {
            let head = mapped.clip(mapped.index, at)?;
            tx.put(Key::extent(inode, head.index), head.extent.encode_in(tx.blank())?)?;
        } else {
            let index = if planted(Sabotage::RemoveAtHole) { at } else { mapped.index };
            tx.remove(&Key::extent(inode, index))?;
        }
        changed += 1;
        if mapped.end() > end {
            let tail = mapped.clip(end, mapped.end())?;
            tx.put(Key::extent(inode, tail.index), tail.extent.encode_in(tx.blank())?)?;
            changed += 1;
        }
        let next = mapped.end().min(end);
        attributes.blocks = attributes.blocks.saturating_sub(next - mapped.index.max(at));
        at = next;
        if at == end {
            return Ok(end);
        }
    }
    Ok(at)
}

/// Adds an extent in a hole. It is merged with the preceding extent if both are one run of blocks
/// of one birth and fit one item. Without `may_join` the caller knows that they are not. The caller
/// stores the inode, whose block count is updated.
#[inline(never)]
pub(crate) fn insert<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    file: (InodeNumber, &mut Inode),
    new: &Mapped,
    may_join: bool,
) -> Result<()> {
    let (inode, attributes) = file;
    attributes.blocks = attributes.blocks.saturating_add(u64::from(new.extent.length));
    let length_max = match new.extent.unwritten {
        true => EXTENT_UNWRITTEN_BLOCKS_MAX,
        false => written_blocks_max(parameters.block_size, parameters.granule, tx.value_len_max()),
    };
    if may_join
        && let Some(mut before) = preceding(tx, parameters, inode, new.index)?
        && before.end() == new.index
        && before.extent.joins(&new.extent)
        && before.extent.length.saturating_add(new.extent.length) <= length_max
    {
        before.extent.join(&new.extent)?;
        return tx.put(Key::extent(inode, before.index), before.extent.encode_in(tx.blank())?);
    }
    tx.put(Key::extent(inode, new.index), new.extent.encode_in(tx.blank())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::keyspace::SpaceClass;
    use crate::format::extent::Checksums;
    use crate::format::inode::FileKind;
    use crate::fs::tests::keyspace::{MemoryKeyspace, update};
    use alloc::vec::Vec;

    const INODE: InodeNumber = InodeNumber(30);

    fn with_file() -> MemoryKeyspace {
        let keyspace = MemoryKeyspace::new();
        keyspace.value_len_max.set(4000);
        update(&keyspace, SpaceClass::Normal, |tx| {
            Inode::new(FileKind::Regular, 0, 0, 0, tx.now()).store(tx, INODE)
        })
        .unwrap();
        keyspace
    }

    /// Writes extents for `index..index + blocks`, one for each unpublished run.
    fn fill(keyspace: &MemoryKeyspace, index: u64, blocks: u64, unwritten: bool) {
        let parameters = Parameters::for_tests();
        let mut at = index;
        while at < index + blocks {
            let goal = preceding(keyspace, &parameters, INODE, at).unwrap();
            let goal = goal.map(|before| crate::types::BlockAddress(before.extent.run().end()));
            let run = keyspace.allocate_blocks(index + blocks - at, goal);
            update(keyspace, SpaceClass::Normal, |tx| {
                let mut inode = Inode::load(tx, INODE)?;
                let mut extent = Extent::new_unwritten(run, tx.keyspace().generation())?;
                if !unwritten {
                    extent.unwritten = false;
                    let checksums: Vec<_> = (0..run.count).map(|i| (at + i) as u32).collect();
                    extent.checksums = Checksums::of(&checksums)?;
                }
                let new = Mapped { index: at, extent };
                insert(tx, &parameters, (INODE, &mut inode), &new, true)?;
                inode.store(tx, INODE)
            })
            .unwrap();
            at += run.count;
        }
    }

    fn extents(keyspace: &MemoryKeyspace) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(mapped) =
            starting(keyspace, &Parameters::for_tests(), INODE, from, u64::MAX).unwrap()
        {
            if !mapped.extent.unwritten {
                let expected = (mapped.index..mapped.end()).map(|i| i as u32);
                assert!(mapped.extent.checksums.iter().copied().eq(expected), "checksums moved");
            }
            found.push((mapped.index, mapped.extent.length));
            from = mapped.end();
        }
        let blocks: u64 = found.iter().map(|(_, length)| u64::from(*length)).sum();
        assert_eq!(Inode::load(keyspace, INODE).unwrap().blocks, blocks);
        assert_eq!(keyspace.blocks_used() as u64, blocks);
        found
    }

    fn punch(keyspace: &MemoryKeyspace, from: u64, end: u64) {
        let parameters = Parameters::for_tests();
        let mut at = from;
        while at < end {
            at = update(keyspace, SpaceClass::Freeing, |tx| {
                let mut inode = Inode::load(tx, INODE)?;
                let done = clear(tx, &parameters, (INODE, &mut inode), at, end, 3)?;
                inode.store(tx, INODE)?;
                Ok(done)
            })
            .unwrap();
        }
    }

    #[test]
    fn appends_join_up_to_the_cap() {
        let keyspace = with_file();
        for index in 0..300 {
            fill(&keyspace, index, 1, false);
        }
        let cap = u64::from(written_blocks_max(512, 512, 4000));
        assert_eq!(extents(&keyspace), [(0, cap as u32), (cap, (300 - cap) as u32)]);
        keyspace.generation.set(2);
        fill(&keyspace, 300, 1, false);
        assert_eq!(extents(&keyspace).len(), 3, "another birth, another extent");
    }

    #[test]
    fn holes_split_and_remove() {
        let keyspace = with_file();
        fill(&keyspace, 10, 100, false);
        punch(&keyspace, 20, 30);
        assert_eq!(extents(&keyspace), [(10, 10), (30, 80)]);
        punch(&keyspace, 0, 12);
        punch(&keyspace, 100, 1000);
        assert_eq!(extents(&keyspace), [(12, 8), (30, 70)]);
        fill(&keyspace, 20, 10, true);
        punch(&keyspace, 15, 50);
        assert_eq!(extents(&keyspace), [(12, 3), (50, 50)]);
        let parameters = Parameters::for_tests();
        let at = |from, end| {
            overlap(&keyspace, &parameters, INODE, from, end).unwrap().map(|found| found.index)
        };
        assert_eq!(
            (at(0, 12), at(0, 13), at(14, 15), at(15, 50)),
            (None, Some(12), Some(12), None)
        );
        punch(&keyspace, 0, u64::MAX);
        assert_eq!(extents(&keyspace), []);
        assert_eq!(keyspace.blocks_unpublished(), 0);
    }
}
