//! Parity in place: where the home of each block is, and what the blocks of checksums say.
//!
//! Behind the segments of each server are its homes, a row of one block for each **stripe**. A
//! stripe is `k` blocks and their parity. Blocks that follow each other are in one chunk of a
//! server, so that long reads and writes are long there, too. The chunks that make stripes with
//! each other are a **group**; the servers take turns from one to the next.
//!
//! A group lies in a **place**, a chunk of every server. There are more places than groups, so that
//! whole groups can be written without the log (`group.rs`).
//!
//! A home has no room for a checksum, so blocks behind those of the medium hold them, those of a
//! few whole groups each, and where these groups are. Those blocks have no homes: the newest of
//! each is always in the log, in segments of their own, so that what is known of records is known
//! of them (`sums.rs`).

use super::BLOCK;
use super::group::COMMIT_SEGMENTS;
use super::map::{Entry, HOME};
use super::shape::{AREA, RECORD_BLOCKS_MAX, Shape};

/// Blocks that follow each other on one server.
pub(crate) const CHUNK: u32 = 16;
/// One of so many places has no group, ...
const SPARE_PART: u64 = 64;
/// ... and so many at least, for a large write or two, ...
const SPARE_MIN: u64 = 8;
/// ... but never more than this part of them.
const SPARE_MOST: u64 = 4;
/// What a log has at least: room for cleaning, and some for what is new.
const LOG_MIN: u64 = 16 * (32 << 10);
/// Part of each server that is the log.
const LOG_SHARE: u64 = 16;

impl Shape {
    /// Sizes for parity in place on servers of `size` bytes each.
    ///
    /// # Errors
    /// A line for people where that is too little or too much.
    pub(crate) fn in_place(data: usize, size: u64) -> Result<Shape, String> {
        let room = size.saturating_sub(AREA);
        let log = (room / LOG_SHARE).max(LOG_MIN);
        let segment = (log / 256).next_power_of_two().clamp(32 << 10, 4 << 20) as u32;
        let many = || "the servers lend more than an array can hold: 16 TiB".to_owned();
        let mut shape = Shape { data, parity: 1, segment, slots: 0, blocks: 0, homes: 0 };
        // Checksums are there once, and as often again where they are old.
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

    /// Blocks of checksums: those behind the blocks of the medium.
    pub(crate) fn sums(&self) -> u32 {
        if self.has_homes() { self.groups().div_ceil(self.groups_each()) } else { 0 }
    }

    /// Groups that a block of checksums is for: each takes its place, a bit and a checksum for each
    /// block (`sums.rs`).
    pub(crate) fn groups_each(&self) -> u32 {
        (BLOCK as u32 - 8) / (4 + self.group() / 8 + 4 * self.group())
    }

    /// Blocks that a block of checksums is for.
    pub(crate) fn sums_each(&self) -> u32 {
        self.groups_each() * self.group()
    }

    /// Groups; none where the log is all there is.
    pub(crate) fn groups(&self) -> u32 {
        if self.has_homes() { self.blocks / self.group() } else { 0 }
    }

    /// Places that groups can lie in.
    pub(crate) fn places(&self) -> u32 {
        self.homes / CHUNK
    }

    /// Closed segments of checksums of which some are needed, at most: with one more the emptiest
    /// is at most half full, and less where the log is large.
    pub(crate) fn sums_segments(&self) -> usize {
        let halves = 2 * (self.sums() as usize).div_ceil(self.segment_blocks()).max(1) - 1;
        halves.max(self.slots as usize / 8)
    }

    /// Stripes that are brought home together: no more than a record of blocks, and a sixteenth of
    /// the log.
    pub(crate) fn stripes_at_once(&self) -> usize {
        let staged = (self.slots as usize / 16).max(1) * self.segment_blocks();
        (staged.min(RECORD_BLOCKS_MAX) / self.data).max(1)
    }

    /// Segments that this takes: for the blocks, in what is left of one and others behind it, and
    /// for the checksums.
    pub(crate) fn part_segments(&self) -> usize {
        let blocks = |count: usize| count.div_ceil(self.segment_blocks()) + 1;
        blocks(self.stripes_at_once() * self.data) + blocks(self.stripes_at_once())
    }

    /// Free segments below which a write waits until there are as many again, and below which it
    /// brings some home as it goes.
    pub(crate) fn free_homes(&self) -> (usize, usize) {
        // What waits is flushed first, groups that were written are committed, and old checksums
        // may have to be packed.
        let least = self.part_segments() + 3 + COMMIT_SEGMENTS;
        // The more there are, the longer it takes until one is used again: what arrives late is
        // harmless until then.
        (least, least + (self.slots as usize / 8).max(2))
    }

    /// Blocks of both kinds.
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

    /// Which shard of its stripe a block is.
    pub(crate) fn home_shard(&self, block: u32) -> usize {
        (block % self.group() / CHUNK) as usize
    }

    /// The block that is this shard of a stripe.
    pub(crate) fn home_block(&self, stripe: u32, shard: usize) -> u32 {
        stripe / CHUNK * self.group() + shard as u32 * CHUNK + stripe % CHUNK
    }

    /// By this the members take turns, as they do by the number of a record.
    pub(crate) fn turn(&self, stripe: u32) -> u64 {
        u64::from(stripe / CHUNK)
    }

    /// Stripes that blocks have homes in.
    pub(crate) fn stripes(&self) -> u32 {
        self.groups() * CHUNK
    }

    /// First byte of a place on each server.
    pub(crate) fn place_start(&self, place: u32) -> u64 {
        self.slot_start(self.slots) + u64::from(place) * u64::from(CHUNK) * BLOCK as u64
    }

    /// First byte of a stripe on each server, where its group is in this place.
    pub(crate) fn home_start(&self, place: u32, stripe: u32) -> u64 {
        self.place_start(place) + u64::from(stripe % CHUNK) * BLOCK as u64
    }

    /// Bytes that a server has to lend.
    pub(crate) fn end(&self) -> u64 {
        self.place_start(self.places())
    }

    /// Whether the homes fit the rest.
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

    /// That a block is at home, with this checksum as it is kept.
    pub(crate) fn at_home(&self, block: u32, crc: u32) -> Entry {
        let shard = self.home_shard(block);
        let member = self.member_of(shard, self.turn(self.stripe_of(block))) as u8;
        Entry { slot: HOME, offset: 0, crc, member, shard: shard as u8 }
    }
}

/// Places without a group, of so many.
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
        // Fifteen sixteenths, but for what checksums take, and spare places.
        let large = Shape::in_place(2, 1 << 30).unwrap();
        assert!(u64::from(large.blocks) * BLOCK as u64 > (2 << 30) * 91 / 100);
    }

    #[test]
    fn what_the_log_must_have_room_for_is_less_than_it_has() {
        for data in 2..=15 {
            for size in [1 << 20, 3 << 20, 70 << 20, 3 << 30, 1 << 38] {
                let shape = Shape::in_place(data, size).unwrap();
                // Checksums: those that are needed and the open one; and one of what is new. All
                // others can be brought home.
                let (sums, fresh, (_, enough)) = (shape.sums_segments() + 1, 1, shape.free_homes());
                assert!(sums + fresh + enough < shape.slots as usize, "{data}, {size}: {shape:?}");
            }
        }
    }
}
