//! [`HeldBlocks`]: blocks of partly filled stripes, kept in memory as long as that can save I/O.
//!
//! A flush of fewer blocks than data shards takes a whole row of every server. Segments of such
//! flushes are mostly padding, so cleaning empties them first, and soon. Their blocks were in the
//! client's memory a moment ago. The blocks of the newest segments stay there, and cleaning packs
//! them into full stripes without reading a server.
//!
//! The amount held follows the traffic: nothing while records are full, up to the limit while
//! flushes are small.
//!
//! # Invariants
//! - Bytes are held for a **place** (segment, row, shard), and the map says which block is there.
//!   Code that moves a block away from its place drops its held bytes, and a new segment begins
//!   with nothing held. So held bytes are never older than the place that the map names.
//! - Nothing depends on held bytes. They were sent, and are flushed or not, exactly as if they were
//!   not held.
//! - At most the configured number of bytes is held, in at most [`SEGMENTS_MAX`] segments. The
//!   segment limit alone bounds nothing: up to half as many blocks as there are data shards share a
//!   row.

use std::collections::{HashMap, VecDeque};

use super::BLOCK;
use super::location::{Bytes, Location};
use super::shape::Shape;

/// Segments whose blocks are held, the open one included. Cleaning lags by a flush and a mark.
const SEGMENTS_MAX: usize = 4;

/// Held rows of a segment.
struct Held {
    slot: u32,
    /// Block number and bytes, by row and shard.
    rows: HashMap<(u32, u8), (u32, Bytes)>,
}

/// All held blocks.
pub(crate) struct HeldBlocks {
    blocks_max: u64,
    /// Newest segment last.
    newest: VecDeque<Held>,
}

impl HeldBlocks {
    /// Holds at most this many bytes of blocks.
    pub(crate) fn new(bytes_max: u64) -> HeldBlocks {
        HeldBlocks { blocks_max: bytes_max / BLOCK as u64, newest: VecDeque::new() }
    }

    /// Whether the blocks of a record are worth holding: at least half of its stripes is padding.
    /// Packed, they take at most half of the room.
    pub(crate) fn wants(shape: &Shape, blocks: usize) -> bool {
        2 * blocks <= shape.stripe_blocks(blocks)
    }

    /// Begins a new segment; the oldest one is no longer held.
    pub(crate) fn begin(&mut self, slot: u32) {
        self.forget(slot);
        self.newest.push_back(Held { slot, rows: HashMap::new() });
        while self.newest.len() > SEGMENTS_MAX {
            self.newest.pop_front();
        }
    }

    /// Drops the blocks of a segment.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.newest.retain(|held| held.slot != slot);
    }

    /// Holds a block at its place in the newest segment. If the limit is reached, the oldest
    /// segment is dropped; if there is no other segment, this block is not held.
    pub(crate) fn put(&mut self, entry: Location, block: u32, bytes: Bytes) {
        while self.total() >= self.blocks_max && self.newest.len() > 1 {
            self.newest.pop_front();
        }
        if self.total() >= self.blocks_max {
            return;
        }
        if let Some(held) = self.newest.back_mut().filter(|held| held.slot == entry.slot) {
            held.rows.insert((entry.offset, entry.shard), (block, bytes));
        }
    }

    /// The bytes at this place, if they are held.
    pub(crate) fn at(&self, entry: &Location) -> Option<&Bytes> {
        let held = self.of(entry.slot)?;
        held.rows.get(&(entry.offset, entry.shard)).map(|(_, bytes)| bytes)
    }

    /// Drops the block at this place, because it moves elsewhere.
    pub(crate) fn drop_at(&mut self, entry: &Location) {
        if let Some(held) = self.newest.iter_mut().find(|held| held.slot == entry.slot) {
            held.rows.remove(&(entry.offset, entry.shard));
        }
    }

    /// How many blocks of a segment are held.
    pub(crate) fn count(&self, slot: u32) -> u32 {
        self.of(slot).map_or(0, |held| held.rows.len() as u32)
    }

    /// Those blocks, in the order of writing.
    pub(crate) fn blocks(&self, slot: u32) -> Vec<u32> {
        let mut rows: Vec<((u32, u8), u32)> = match self.of(slot) {
            Some(held) => held.rows.iter().map(|(place, (block, _))| (*place, *block)).collect(),
            None => Vec::new(),
        };
        rows.sort_unstable();
        rows.into_iter().map(|(_, block)| block).collect()
    }

    /// Number of held blocks.
    pub(crate) fn total(&self) -> u64 {
        self.newest.iter().map(|held| held.rows.len() as u64).sum()
    }

    fn of(&self, slot: u32) -> Option<&Held> {
        self.newest.iter().find(|held| held.slot == slot)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn no_more_is_held_than_the_bound_and_nothing_that_has_moved() {
        let shape = Shape::plan(4, 1, 8 << 20).unwrap();
        assert!(
            HeldBlocks::wants(&shape, 2)
                && !HeldBlocks::wants(&shape, 3)
                && !HeldBlocks::wants(&shape, 5)
        );
        let mirror = Shape::plan(1, 2, 8 << 20).unwrap();
        assert!((1..10).all(|blocks| !HeldBlocks::wants(&mirror, blocks)));
        let entry = |slot, row, shard| Location {
            slot,
            offset: row * 4608 + 512,
            crc: 0,
            member: 0,
            shard,
        };
        let bytes = || Arc::new([7; BLOCK]);
        let room = |blocks: u64| blocks * BLOCK as u64;
        for (bytes_max, kept) in
            [(0, 0), (room(3), 3), (room(11), 10), (room(14) + 9, 14), (u64::MAX, 20)]
        {
            let mut hold = HeldBlocks::new(bytes_max);
            for slot in 0..9 {
                hold.begin(slot);
                for row in 0..5 {
                    hold.put(entry(slot, row, 1), 100 + row, bytes());
                    assert!(hold.total() * BLOCK as u64 <= bytes_max);
                }
                // No longer the newest segment.
                hold.put(entry(slot.wrapping_sub(1), 7, 0), 9, bytes());
            }
            let held: Vec<u32> = (0..9).map(|slot| hold.count(slot)).collect();
            // The newest whole segments are held, unless not even one fits.
            let whole = held.iter().rev().take(kept as usize / 5).all(|count| *count == 5);
            assert!(whole && hold.total() <= kept, "{bytes_max}: {held:?}");
            assert!(kept == 0 || hold.total() > 0);
        }
        // Two blocks in a row of four data shards are more bytes than the segment has on each
        // server.
        let mut hold = HeldBlocks::new(u64::from(shape.segment));
        hold.begin(0);
        let rows = shape.segment / (BLOCK as u32 + 512);
        (0..rows).for_each(|row| {
            (0..2).for_each(|shard| hold.put(entry(0, row, shard), 2 * row, bytes()))
        });
        assert_eq!(hold.total() * BLOCK as u64, u64::from(shape.segment));
        let mut hold = HeldBlocks::new(u64::MAX);
        hold.begin(3);
        for (row, shard, block) in [(2, 0, 30), (0, 1, 20), (0, 0, 10)] {
            hold.put(entry(3, row, shard), block, bytes());
        }
        assert_eq!(hold.blocks(3), [10, 20, 30]);
        hold.drop_at(&entry(3, 0, 1));
        assert!(hold.at(&entry(3, 0, 1)).is_none() && hold.at(&entry(3, 0, 0)).is_some());
        assert_eq!(hold.blocks(3), [10, 30]);
        hold.begin(3);
        assert_eq!((hold.total(), hold.blocks(3)), (0, Vec::new()));
    }
}
