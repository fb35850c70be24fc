//! Parity in place: where the home of each block is, and what the blocks of checksums say.
//!
//! Behind the segments of each server are its homes, a row of one block for each **stripe**. A stripe is `k` blocks and their
//! parity. Blocks that follow each other are in one chunk of a server, so that long reads and writes are long there, too; the
//! servers take turns from one group of chunks to the next.
//!
//! A home has no room for a checksum, so blocks behind those of the medium hold them, 1,020 each. Those have no homes: the newest of
//! each is always in the log, in segments of their own, so that what is known of records is known of them (`sums.rs`).

use super::BLOCK;
use super::map::{Entry, HOME};
use super::shape::{AREA, RECORD_BLOCKS_MAX, Shape};

/// Blocks that follow each other on one server.
const CHUNK: u32 = 16;
/// Checksums in a block.
pub(crate) const SUMS: u32 = 1020;
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
        let sums = (room - log.min(room)) / BLOCK as u64 * data as u64 / u64::from(SUMS);
        let slots = log / u64::from(segment) + 2 * (sums / shape.segment_blocks() as u64);
        shape.slots = u32::try_from(slots).map_err(|_| many())?;
        let rows = room.saturating_sub(slots * u64::from(segment)) / BLOCK as u64;
        let (groups, group) = (rows / u64::from(CHUNK), u64::from(CHUNK) * data as u64);
        if groups == 0 {
            return Err("the servers lend too little for an array: give 1 MiB or more each".to_owned());
        }
        let blocks = groups.saturating_mul(group);
        if blocks + blocks.div_ceil(u64::from(SUMS)) >= u64::from(HOME) {
            return Err(many());
        }
        (shape.homes, shape.blocks) = (groups as u32 * CHUNK, blocks as u32);
        Ok(shape)
    }

    /// Whether blocks have homes besides the log.
    pub(crate) fn has_homes(&self) -> bool {
        self.homes > 0
    }

    /// Blocks of checksums: those behind the blocks of the medium.
    pub(crate) fn sums(&self) -> u32 {
        if self.has_homes() { self.blocks.div_ceil(SUMS) } else { 0 }
    }

    /// Closed segments of checksums of which some are needed, at most: with one more the emptiest is at most half full, and less
    /// where the log is large.
    pub(crate) fn sums_segments(&self) -> usize {
        let halves = 2 * (self.sums() as usize).div_ceil(self.segment_blocks()).max(1) - 1;
        halves.max(self.slots as usize / 8)
    }

    /// Stripes that are brought home together: no more than a record of blocks, and a sixteenth of the log.
    pub(crate) fn stripes_at_once(&self) -> usize {
        let staged = (self.slots as usize / 16).max(1) * self.segment_blocks();
        (staged.min(RECORD_BLOCKS_MAX) / self.data).max(1)
    }

    /// Segments that this takes: for the blocks, in what is left of one and others behind it, and for the checksums.
    pub(crate) fn part_segments(&self) -> usize {
        let blocks = |count: usize| count.div_ceil(self.segment_blocks()) + 1;
        blocks(self.stripes_at_once() * self.data) + blocks(self.stripes_at_once())
    }

    /// Free segments below which a write waits until there are as many again, and below which it brings some home as it goes.
    pub(crate) fn free_homes(&self) -> (usize, usize) {
        // What waits is flushed first, and old checksums may have to be packed.
        let least = self.part_segments() + 3;
        // The more there are, the longer it takes until one is used again: what arrives late is harmless until then.
        (least, least + (self.slots as usize / 8).max(2))
    }

    /// Blocks of both kinds.
    pub(crate) fn all_blocks(&self) -> u32 {
        self.blocks.saturating_add(self.sums())
    }

    /// Blocks of the chunks that make stripes with each other.
    fn group(&self) -> u32 {
        CHUNK * self.data as u32
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

    /// First byte of a stripe on each server.
    pub(crate) fn home_start(&self, stripe: u32) -> u64 {
        self.slot_start(self.slots) + u64::from(stripe) * BLOCK as u64
    }

    /// Bytes that a server has to lend.
    pub(crate) fn end(&self) -> u64 {
        self.home_start(self.homes)
    }

    /// Whether the homes fit the rest.
    pub(crate) fn homes_are_sound(&self) -> bool {
        let blocks = u64::from(self.homes) * self.data as u64;
        self.parity == 1
            && self.data > 1
            && u64::from(self.slots) * u64::from(self.segment) < 1 << 44
            && self.homes.is_multiple_of(CHUNK)
            && u64::from(self.blocks) == blocks
            && blocks + blocks.div_ceil(u64::from(SUMS)) < u64::from(HOME)
    }

    /// That a block is at home, with this checksum as it is kept.
    pub(crate) fn at_home(&self, block: u32, crc: u32) -> Entry {
        let shard = self.home_shard(block);
        let member = self.member_of(shard, self.turn(self.stripe_of(block))) as u8;
        Entry { slot: HOME, offset: 0, crc, member, shard: shard as u8 }
    }
}

/// Kept for a block that nobody has written.
pub(crate) const NONE: u32 = 0;
/// Kept for a block that no server has any more: nothing fits it.
pub(crate) const LOST: u32 = 1;

/// A checksum as it is kept for a home.
pub(crate) fn kept(crc: u32) -> u32 {
    crc.max(LOST + 1)
}

/// What a block of checksums says. That it is whole is known from the header of its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sums {
    /// When a home was written last, as the number of a record.
    pub(crate) made: u64,
    /// Of homes, as they are kept.
    pub(crate) crcs: Vec<u32>,
}

impl Sums {
    /// As the bytes of a block.
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        for (place, crc) in bytes.chunks_exact_mut(4).zip(&self.crcs) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        let trailer = SUMS as usize * 4;
        bytes[trailer..trailer + 8].copy_from_slice(&self.made.to_le_bytes());
        bytes
    }

    /// From the bytes of a block.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Sums> {
        let crcs = bytes.chunks_exact(4).take(SUMS as usize);
        Some(Sums {
            made: u64::from_le_bytes(*bytes.get(SUMS as usize * 4..)?.first_chunk()?),
            crcs: crcs.filter_map(|crc| crc.first_chunk().copied().map(u32::from_le_bytes)).collect(),
        })
    }
}

/// What is kept of a block, wherever its newest version is. Where that is in the log and has not been brought home, what is at home
/// does not fit, and is not taken for it whatever becomes of the log.
pub(crate) fn kept_of(entry: Option<Entry>) -> u32 {
    match entry {
        Some(entry) if entry.is_home() => entry.crc,
        Some(entry) => kept(entry.crc),
        None => NONE,
    }
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
                assert!(shape.blocks <= shape.sums() * SUMS);
                let mut places = BTreeSet::new();
                for block in 0..shape.blocks {
                    let (stripe, shard) = (shape.stripe_of(block), shape.home_shard(block));
                    assert_eq!(shape.home_block(stripe, shard), block);
                    assert!(stripe < shape.homes && shard < data);
                    let entry = shape.at_home(block, 0);
                    assert!(places.insert((stripe, entry.member)));
                }
            }
        }
        assert!(Shape::in_place(2, 512 << 10).is_err());
        assert!(Shape::in_place(2, u64::MAX).is_err());
        // Fifteen sixteenths, but for what checksums take.
        let large = Shape::in_place(2, 1 << 30).unwrap();
        assert!(u64::from(large.blocks) * BLOCK as u64 > (2 << 30) * 93 / 100);
    }

    #[test]
    fn checksums_go_both_ways() {
        let sums = Sums { made: 77, crcs: (0..SUMS).map(|number| number * 7).collect() };
        assert_eq!(Sums::decode(&sums.encode()).unwrap(), sums);
        assert_eq!(Sums::decode(&[0; BLOCK]).unwrap().crcs, [NONE; SUMS as usize]);
        assert_eq!(Sums::decode(&[0; 100]), None);
        for crc in [0, LOST, LOST + 1, u32::MAX] {
            assert!(![NONE, LOST].contains(&kept(crc)));
        }
    }

    #[test]
    fn what_the_log_must_have_room_for_is_less_than_it_has() {
        for data in 2..=15 {
            for size in [1 << 20, 3 << 20, 70 << 20, 3 << 30, 1 << 38] {
                let shape = Shape::in_place(data, size).unwrap();
                // Checksums: those that are needed and the open one; and one of what is new. All others can be brought home.
                let (sums, fresh, (_, enough)) = (shape.sums_segments() + 1, 1, shape.free_homes());
                assert!(sums + fresh + enough < shape.slots as usize, "{data}, {size}: {shape:?}");
            }
        }
    }
}
