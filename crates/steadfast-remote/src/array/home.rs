//! Parity in place: the home of each block, and the geometry of checksum blocks.
//!
//! The homes of each server follow its segments: a row of one block for each **stripe**. A stripe
//! is `k` blocks and their parity. Consecutive blocks are in one chunk of a server, so long reads
//! and writes stay contiguous there. The chunks that form stripes together are a **group**; the
//! shards rotate over the servers from one group to the next.
//!
//! A group lies in a **place**, which is a chunk on every server. There are more places than
//! groups, so that whole groups can be written without the log (`group.rs`).
//!
//! A home has no room for a checksum. Checksum blocks, numbered after the blocks of the medium,
//! hold the checksums of a few whole groups each, and the places of these groups. Checksum blocks
//! have no homes. The newest version of each is always in the log, in segments of their own, so the
//! rules for records apply to them (`sums.rs`).

use super::BLOCK;
use super::location::{HOME, Location};
use super::shape::{AREA, RECORD_BLOCKS_MAX, Shape};

/// Most log segments that a commit takes, packing included.
pub(crate) const COMMIT_SEGMENTS: usize = 2;

/// Consecutive blocks on one server.
pub(crate) const CHUNK: u32 = 16;
/// One of this many places is spare, ...
const SPARE_PART: u64 = 64;
/// ... and at least this many, for a large write or two, ...
const SPARE_MIN: u64 = 8;
/// ... but at most this part of them.
const SPARE_MOST: u64 = 4;
/// Smallest log: room for cleaning, and some for new blocks.
const LOG_MIN: u64 = 16 * (32 << 10);
/// The log takes this part of each server.
const LOG_SHARE: u64 = 16;

impl Shape {
    /// Sizes for parity in place on servers of `size` bytes each.
    ///
    /// # Errors
    /// A message for the user if that is too little or too much.
    pub(crate) fn in_place(data: usize, size: u64) -> Result<Shape, String> {
        let room = size.saturating_sub(AREA);
        let log = (room / LOG_SHARE).max(LOG_MIN);
        let segment = (log / 256).next_power_of_two().clamp(32 << 10, 4 << 20) as u32;
        let many = || "the servers lend more than an array can hold: 16 TiB".to_owned();
        let mut shape = Shape { data, parity: 1, segment, slots: 0, blocks: 0, homes: 0 };
        // Twice the size of the checksums: the current blocks, and as many old ones.
        let sums =
            (room - log.min(room)) / BLOCK as u64 * data as u64 / u64::from(shape.sums_each());
        let slots = log / u64::from(segment) + 2 * (sums / shape.segment_blocks() as u64);
        shape.slots = u32::try_from(slots).map_err(|_| many())?;
        let rows = room.saturating_sub(slots * u64::from(segment)) / BLOCK as u64;
        let places = rows / u64::from(CHUNK);
        let groups = places.saturating_sub(spare_places(places));
        if groups == 0 {
            return Err(
                "the servers lend too little for an array: give 1 MiB or more each".to_owned()
            );
        }
        let blocks = groups.saturating_mul(u64::from(shape.group()));
        let sums = groups.div_ceil(u64::from(shape.groups_each()));
        (shape.homes, shape.blocks) =
            match (u32::try_from(places * u64::from(CHUNK)), u32::try_from(blocks)) {
                (Ok(homes), Ok(blocks)) if u64::from(blocks) + sums < u64::from(HOME) => {
                    (homes, blocks)
                }
                _ => return Err(many()),
            };
        Ok(shape)
    }

    /// Whether blocks have homes besides the log.
    pub(crate) fn has_homes(&self) -> bool {
        self.homes > 0
    }

    /// Number of checksum blocks, numbered after the blocks of the medium.
    pub(crate) fn sums(&self) -> u32 {
        if self.has_homes() { self.groups().div_ceil(self.groups_each()) } else { 0 }
    }

    /// Groups that a checksum block covers. It holds the place of each group, and a bit and a
    /// checksum for each block (`sums.rs`).
    pub(crate) fn groups_each(&self) -> u32 {
        (BLOCK as u32 - 8) / (4 + self.group() / 8 + 4 * self.group())
    }

    /// Blocks that a checksum block covers.
    pub(crate) fn sums_each(&self) -> u32 {
        self.groups_each() * self.group()
    }

    /// Groups; 0 if there is only the log.
    pub(crate) fn groups(&self) -> u32 {
        if self.has_homes() { self.blocks / self.group() } else { 0 }
    }

    /// Places for groups.
    pub(crate) fn places(&self) -> u32 {
        self.homes / CHUNK
    }

    /// Most closed checksum segments with needed blocks. With one more, the emptiest is at most
    /// half full, and less if the log is large.
    pub(crate) fn sums_segments(&self) -> usize {
        let halves = 2 * (self.sums() as usize).div_ceil(self.segment_blocks()).max(1) - 1;
        halves.max(self.slots as usize / 8)
    }

    /// Stripes written back together: at most a record of blocks, and a sixteenth of the log.
    pub(crate) fn stripes_at_once(&self) -> usize {
        let staged = (self.slots as usize / 16).max(1) * self.segment_blocks();
        (staged.min(RECORD_BLOCKS_MAX) / self.data).max(1)
    }

    /// Segments that one such write-back takes. Its blocks use the rest of one segment and further
    /// ones; its checksums use others.
    pub(crate) fn part_segments(&self) -> usize {
        let blocks = |count: usize| count.div_ceil(self.segment_blocks()) + 1;
        blocks(self.stripes_at_once() * self.data) + blocks(self.stripes_at_once())
    }

    /// Two limits of free segments. Below the first, a write waits until as many are free again.
    /// Below the second, a write also writes some blocks back.
    pub(crate) fn free_homes(&self) -> (usize, usize) {
        // A write-back first flushes waiting blocks and commits written groups, and may have to
        // pack old checksums.
        let least = self.part_segments() + 3 + COMMIT_SEGMENTS;
        // More free segments make it longer until one is reused; a late write is harmless until
        // then.
        (least, least + (self.slots as usize / 8).max(2))
    }

    /// Blocks of the medium and checksum blocks.
    pub(crate) fn all_blocks(&self) -> u32 {
        self.blocks.saturating_add(self.sums())
    }

    /// Blocks of a group.
    pub(crate) fn group(&self) -> u32 {
        CHUNK * self.data as u32
    }

    /// The group of a block.
    pub(crate) fn group_of(&self, block: u32) -> u32 {
        block / self.group()
    }

    /// The stripe of a block.
    pub(crate) fn stripe_of(&self, block: u32) -> u32 {
        block / self.group() * CHUNK + block % CHUNK
    }

    /// The shard of its stripe that a block is.
    pub(crate) fn home_shard(&self, block: u32) -> usize {
        (block % self.group() / CHUNK) as usize
    }

    /// The block that is this shard of a stripe.
    pub(crate) fn home_block(&self, stripe: u32, shard: usize) -> u32 {
        stripe / CHUNK * self.group() + shard as u32 * CHUNK + stripe % CHUNK
    }

    /// The members take turns by this number, as they do by the number of a record.
    pub(crate) fn turn(&self, stripe: u32) -> u64 {
        u64::from(stripe / CHUNK)
    }

    /// Number of stripes with homes of blocks.
    pub(crate) fn stripes(&self) -> u32 {
        self.groups() * CHUNK
    }

    /// First byte of a place on each server.
    pub(crate) fn place_start(&self, place: u32) -> u64 {
        self.slot_start(self.slots) + u64::from(place) * u64::from(CHUNK) * BLOCK as u64
    }

    /// First byte of a stripe on each server, if its group is in this place.
    pub(crate) fn home_start(&self, place: u32, stripe: u32) -> u64 {
        self.place_start(place) + u64::from(stripe % CHUNK) * BLOCK as u64
    }

    /// Bytes that a server must lend.
    pub(crate) fn end(&self) -> u64 {
        self.place_start(self.places())
    }

    /// Whether the sizes of the homes are valid.
    pub(crate) fn homes_are_sound(&self) -> bool {
        let places = u64::from(self.places());
        self.parity == 1
            && self.data > 1
            && u64::from(self.slots) * u64::from(self.segment) < 1 << 44
            && self.homes.is_multiple_of(CHUNK)
            && self.blocks.is_multiple_of(self.group())
            && u64::from(self.groups()) == places - spare_places(places)
            && u64::from(self.blocks) + u64::from(self.sums()) < u64::from(HOME)
    }

    /// The entry of a block that is at home, with its recorded checksum.
    pub(crate) fn at_home(&self, block: u32, crc: u32) -> Location {
        let shard = self.home_shard(block);
        let member = self.member_of(shard, self.turn(self.stripe_of(block))) as u8;
        Location { slot: HOME, offset: 0, crc, member, shard: shard as u8 }
    }
}

/// Spare places among this many.
fn spare_places(places: u64) -> u64 {
    (places / SPARE_PART).max(SPARE_MIN).min(places.div_ceil(SPARE_MOST))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_block_has_a_home_of_its_own() {
        for data in 2..=15 {
            for size in [1 << 20, 3 << 20, (70 << 20) + 12345] {
                let shape = Shape::in_place(data, size).unwrap();
                assert!(shape.is_sound() && shape.end() <= size, "{shape:?}");
                assert!(
                    shape.blocks <= shape.sums() * shape.sums_each() && shape.sums_each() > 800
                );
                assert!(shape.groups() < shape.places());
                let mut places = BTreeSet::new();
                for block in 0..shape.blocks {
                    let (stripe, shard) = (shape.stripe_of(block), shape.home_shard(block));
                    assert_eq!(shape.home_block(stripe, shard), block);
                    assert!(stripe < shape.stripes() && shard < data);
                    let entry = shape.at_home(block, 0);
                    assert!(places.insert((stripe, entry.member)));
                }
            }
        }
        assert!(Shape::in_place(2, 512 << 10).is_err());
        assert!(Shape::in_place(2, u64::MAX).is_err());
        // Fifteen sixteenths, less the checksums and the spare places.
        let large = Shape::in_place(2, 1 << 30).unwrap();
        assert!(u64::from(large.blocks) * BLOCK as u64 > (2 << 30) * 91 / 100);
    }

    #[test]
    fn what_the_log_must_have_room_for_is_less_than_it_has() {
        for data in 2..=15 {
            for size in [1 << 20, 3 << 20, 70 << 20, 3 << 30, 1 << 38] {
                let shape = Shape::in_place(data, size).unwrap();
                // Checksum segments with needed blocks and the open one, and one segment of new
                // blocks. All others can be written back.
                let (sums, fresh, (_, enough)) = (shape.sums_segments() + 1, 1, shape.free_homes());
                assert!(sums + fresh + enough < shape.slots as usize, "{data}, {size}: {shape:?}");
            }
        }
    }
}
