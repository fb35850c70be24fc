//! Parity in place: where the home of each block is, and the blocks that hold the checksums of homes.
//!
//! Behind the segments of each server are its homes, a row of one block for each **stripe**. A stripe is `k` blocks and their
//! parity. Blocks that follow each other are in one chunk of a server, so that long reads and writes are long there, too; the
//! servers take turns from one group of chunks to the next.
//!
//! A home has no room for a checksum, so blocks behind those of the medium hold them, 1,020 each. They are blocks like any
//! other, with homes of their own, and checksums of themselves.

use super::map::{Entry, HOME};
use super::shape::{AREA, Shape};
use super::{BLOCK, crc32c};

/// Blocks that follow each other on one server.
const CHUNK: u32 = 16;
/// Checksums in a block.
pub(crate) const SUMS: u32 = 1020;
/// What a log has at least: room for cleaning, and as much for what is new.
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
        let many = |_| "the servers lend more than an array can hold: 16 TiB".to_owned();
        let slots = u32::try_from(log / u64::from(segment)).map_err(many)?;
        let rows = room.saturating_sub(u64::from(slots) * u64::from(segment)) / BLOCK as u64;
        let (groups, group) = (rows / u64::from(CHUNK), u64::from(CHUNK) * data as u64);
        let for_sums = groups.div_ceil(u64::from(SUMS) + 1);
        let (blocks, all) = (groups.saturating_sub(for_sums) * group, groups * group);
        if blocks == 0 {
            return Err("the servers lend too little for an array: give 1 MiB or more each".to_owned());
        }
        if all >= u64::from(HOME) {
            return Err("the servers lend more than an array can hold: 16 TiB".to_owned());
        }
        let (homes, blocks) = (groups as u32 * CHUNK, blocks as u32);
        Ok(Shape { data, parity: 1, segment, slots, blocks, homes })
    }

    /// Whether blocks have homes besides the log.
    pub(crate) fn has_homes(&self) -> bool {
        self.homes > 0
    }

    /// Blocks that hold checksums of homes: those behind the blocks of the medium.
    pub(crate) fn sums(&self) -> u32 {
        if self.has_homes() { self.blocks.div_ceil(SUMS) } else { 0 }
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

    /// The block that is this shard of a stripe. There may be no such block.
    pub(crate) fn home_block(&self, stripe: u32, shard: usize) -> u32 {
        stripe / CHUNK * self.group() + shard as u32 * CHUNK + stripe % CHUNK
    }

    /// The first stripe of checksums: from here on there is nothing else.
    pub(crate) fn stripe_of_sums(&self) -> u32 {
        self.stripe_of(self.blocks)
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
        let room = u64::from(self.homes) * self.data as u64;
        self.parity == 1
            && self.data > 1
            && u64::from(self.slots) * u64::from(self.segment) < 1 << 44
            && self.homes.is_multiple_of(CHUNK)
            && self.blocks.is_multiple_of(self.group())
            && room < u64::from(HOME)
            && u64::from(self.all_blocks()) <= room
    }

    /// That a block is at home, with this checksum.
    pub(crate) fn at_home(&self, block: u32, crc: u32) -> Entry {
        let shard = self.home_shard(block);
        let member = self.member_of(shard, self.turn(self.stripe_of(block))) as u8;
        Entry { slot: HOME, offset: 0, crc: kept(crc), member, shard: shard as u8 }
    }
}

/// A checksum as it is kept for a home: 0 is for blocks that nobody has written.
pub(crate) fn kept(crc: u32) -> u32 {
    crc.max(1)
}

/// The checksum that a block of checksums has of itself. Not the CRC-32C as it is: what ends with that has always the same CRC-32C
/// as a whole, and the map could not tell an old version from a new one.
fn own(bytes: &[u8]) -> u32 {
    crc32c(bytes).wrapping_mul(0x9e37_79b1)
}

/// What a block of checksums says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sums {
    /// A later one has a larger number. 0 where there has been none.
    pub(crate) version: u64,
    /// Of homes, as they are kept.
    pub(crate) crcs: Vec<u32>,
}

impl Sums {
    /// As the bytes of the block with this number.
    pub(crate) fn encode(&self, number: u32) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        for (place, crc) in bytes.chunks_exact_mut(4).zip(&self.crcs) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        let trailer = SUMS as usize * 4;
        bytes[trailer..trailer + 8].copy_from_slice(&self.version.to_le_bytes());
        bytes[trailer + 8..trailer + 12].copy_from_slice(&number.to_le_bytes());
        let crc = own(&bytes[..BLOCK - 4]);
        bytes[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From bytes that may be anything. Zeros are what is there before the first one.
    pub(crate) fn decode(bytes: &[u8], number: u32) -> Option<Sums> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let crcs = || bytes.chunks_exact(4).take(SUMS as usize);
        if bytes.len() != BLOCK {
            return None;
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Sums { version: 0, crcs: vec![0; SUMS as usize] });
        }
        let trailer = SUMS as usize * 4;
        let version = u64::from_le_bytes(*bytes.get(trailer..)?.first_chunk()?);
        if u32_at(BLOCK - 4)? != own(bytes.get(..BLOCK - 4)?)
            || u32_at(trailer + 8)? != number
            || version == 0
        {
            return None;
        }
        Some(Sums {
            version,
            crcs: crcs().filter_map(|crc| crc.first_chunk().copied().map(u32::from_le_bytes)).collect(),
        })
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
                for block in 0..shape.all_blocks() {
                    let (stripe, shard) = (shape.stripe_of(block), shape.home_shard(block));
                    assert_eq!(shape.home_block(stripe, shard), block);
                    assert!(stripe < shape.homes && shard < data);
                    assert_eq!(block >= shape.blocks, stripe >= shape.stripe_of_sums());
                    let entry = shape.at_home(block, 0);
                    assert!(places.insert((stripe, entry.member)) && entry.crc != 0);
                }
            }
        }
        assert!(Shape::in_place(2, 512 << 10).is_err());
        assert!(Shape::in_place(2, u64::MAX).is_err());
        // Fifteen sixteenths, but for the checksums.
        let large = Shape::in_place(2, 1 << 30).unwrap();
        assert!(u64::from(large.blocks) * BLOCK as u64 > (2 << 30) * 93 / 100);
    }

    #[test]
    fn checksums_go_both_ways_and_any_flipped_bit_is_seen() {
        let sums = Sums { version: 77, crcs: (0..SUMS).map(|number| number * 7).collect() };
        let bytes = sums.encode(5);
        assert_eq!(Sums::decode(&bytes, 5).unwrap(), sums);
        assert_eq!(Sums::decode(&bytes, 6), None);
        // As blocks they differ by what the map has of them, too.
        let later = Sums { version: 78, ..sums.clone() }.encode(5);
        assert_ne!(crc32c(&bytes), crc32c(&later));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Sums::decode(&flipped, 5), None, "bit {bit}");
        }
        assert_eq!(Sums::decode(&[0; BLOCK], 5).unwrap().version, 0);
        assert_eq!(Sums::decode(&[0; 100], 5), None);
    }
}
