//! Extents: the value of a [`Kind::Extent`](super::key::Kind::Extent) key. The semantics use it to
//! find which blocks hold which part of a file, the engine to find which blocks are in use.
//!
//! The key's suffix is the index of the first block within the file. The value, little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | address of the first block on the volume |
//! | 8 | 4 | length in blocks, at least 1 |
//! | 12 | 1 | flags; bit 0: unwritten (allocated, reads as zeros); the other bits are zero |
//! | 13 | 8 | birth: the generation in which the blocks were allocated |
//! | 21 | 4 × n | CRC-32C of each checksum granule, in order; n = 0 where unwritten, else length × granules per block |
//!
//! A checksum granule is min(block size, 4096) bytes. Invariants: extents of one file do not
//! overlap; the value of a written extent is exactly as long as its checksums need. The blocks of a
//! written extent are never overwritten. Those of an unwritten extent may be, because nothing
//! refers to their content.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::memory::Short;
use crate::types::{BlockAddress, BlockRun, Generation};

/// Bytes in front of the checksums.
pub(crate) const EXTENT_HEADER_LEN: usize = 21;

/// Limit of the bytes that one written extent covers, so that values stay small whatever the node
/// size.
pub(crate) const EXTENT_BYTES_MAX: u64 = 1 << 20;

/// The limit for nodes smaller than [`SMALL_NODE`], as on flash. An overwrite in the middle puts
/// the remainder of the extent into the log, with all its checksums. A mount reads them, and a log
/// that fills sooner causes more checkpoints.
pub(crate) const EXTENT_BYTES_MAX_SMALL: u64 = 16 << 10;

/// Nodes of this size are not small, bytes.
const SMALL_NODE: usize = 4096;

/// Limit of the blocks in one unwritten extent: its value is short, but freeing it must stay
/// bounded work.
pub(crate) const EXTENT_UNWRITTEN_BLOCKS_MAX: u32 = 1 << 14;

const FLAG_UNWRITTEN: u8 = 1;

/// Checksums of the granules of an extent, in order. Most extents have few.
pub(crate) type Checksums = Short<u32, 3>;

/// A run of blocks of a file with the checksums of their content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block on the volume.
    pub address: BlockAddress,
    /// Number of blocks, at least 1.
    pub length: u32,
    /// Allocated but never written: reads as zeros and has no checksums.
    pub unwritten: bool,
    /// Generation in which the blocks were allocated.
    pub birth: Generation,
    /// CRC-32C of each granule; empty if unwritten.
    pub checksums: Checksums,
}

fn damaged(reason: &'static str) -> Error {
    Error::CorruptMetadata { address: BlockAddress::NONE, reason }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The blocks that an extent value names, without its checksums; `None` if the value is damaged.
pub(crate) fn decode_run(bytes: &[u8]) -> Option<BlockRun> {
    let start = u64_at(bytes, 0)?;
    let count = u64::from(u32_at(bytes, 8)?);
    start.checked_add(count).filter(|end| count > 0 && *end <= i64::MAX as u64)?;
    // Freeing an extent is one step of bounded work, even in a forged image.
    let checksums = bytes.len().saturating_sub(EXTENT_HEADER_LEN) as u64 / 4;
    let most = if is_unwritten(bytes) { u64::from(EXTENT_UNWRITTEN_BLOCKS_MAX) } else { checksums };
    (count <= most).then_some(BlockRun { start: BlockAddress(start), count })
}

/// The birth in an extent value; `None` if the value is too short.
pub(crate) fn decode_birth(bytes: &[u8]) -> Option<Generation> {
    u64_at(bytes, 13).map(Generation)
}

fn is_unwritten(bytes: &[u8]) -> bool {
    bytes.get(12).is_some_and(|flags| flags & FLAG_UNWRITTEN != 0)
}

/// Data blocks in an extent value that were allocated after `generation`.
pub(crate) fn written_since(bytes: &[u8], generation: Generation) -> u64 {
    let born_later = u64_at(bytes, 13).is_some_and(|birth| birth > generation.0);
    let counts = born_later && !is_unwritten(bytes);
    decode_run(bytes).filter(|_| counts).map_or(0, |run| run.count)
}

/// The longest written extent, in blocks: 1 MiB, or 16 KiB in small nodes. Its checksums fill at
/// most a quarter of a node, so that a node holds several extents. At least 1. `value_len_max` is
/// the largest value, which is most of a node. The limit binds writers only: readers accept any
/// length.
pub(crate) fn written_blocks_max(block_size: u32, granule: u32, value_len_max: usize) -> u32 {
    let per_block = (block_size / granule.max(1)).max(1) as usize;
    let quarter = value_len_max.next_power_of_two() / 4;
    let fits = quarter.min(value_len_max.saturating_sub(EXTENT_HEADER_LEN)) / (4 * per_block);
    let small = value_len_max.next_power_of_two() < SMALL_NODE;
    let bytes_max = if small { EXTENT_BYTES_MAX_SMALL } else { EXTENT_BYTES_MAX };
    let cap = (bytes_max / u64::from(block_size.max(1))) as usize;
    u32::try_from(fits.min(cap).max(1)).unwrap_or(u32::MAX)
}

impl Extent {
    /// An extent without data.
    pub fn new_unwritten(run: BlockRun, birth: Generation) -> Result<Extent> {
        let length =
            u32::try_from(run.count).map_err(|_| Error::InvalidArgument("run too long"))?;
        Ok(Extent {
            address: run.start,
            length,
            unwritten: true,
            birth,
            checksums: Checksums::default(),
        })
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// `CorruptMetadata` if a length, an address or the number of checksums is invalid.
    pub fn decode(bytes: &[u8], granules_per_block: u32) -> Result<Extent> {
        let run = decode_run(bytes).ok_or(damaged("extent: address or length out of range"))?;
        let flags = *bytes.get(12).ok_or(damaged("extent: value too short"))?;
        let birth = u64_at(bytes, 13).ok_or(damaged("extent: value too short"))?;
        if flags & !FLAG_UNWRITTEN != 0 {
            return Err(damaged("extent: unknown flags"));
        }
        let unwritten = flags & FLAG_UNWRITTEN != 0;
        let body = bytes.get(EXTENT_HEADER_LEN..).unwrap_or_default();
        let needed = if unwritten { 0 } else { run.count * u64::from(granules_per_block) * 4 };
        if body.len() as u64 != needed {
            return Err(damaged("extent: wrong number of checksums"));
        }
        let (words, _) = body.as_chunks::<4>();
        let checksums = Checksums::collect(words.iter().map(|word| u32::from_le_bytes(*word)))?;
        Ok(Extent {
            address: run.start,
            length: run.count as u32,
            unwritten,
            birth: Generation(birth),
            checksums,
        })
    }

    /// The value.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.encode_in(Vec::new())
    }

    /// The value, in memory that is blank.
    pub fn encode_in(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let length = EXTENT_HEADER_LEN + 4 * self.checksums.len();
        bytes.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
        let mut header = [0; EXTENT_HEADER_LEN];
        header[..8].copy_from_slice(&self.address.0.to_le_bytes());
        header[8..12].copy_from_slice(&self.length.to_le_bytes());
        header[12] = if self.unwritten { FLAG_UNWRITTEN } else { 0 };
        header[13..].copy_from_slice(&self.birth.0.to_le_bytes());
        bytes.extend_from_slice(&header);
        for checksum in self.checksums.iter() {
            bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        Ok(bytes)
    }

    /// The blocks.
    pub fn run(&self) -> BlockRun {
        BlockRun { start: self.address, count: u64::from(self.length) }
    }

    /// `length` blocks of this extent, starting `from` blocks into it.
    ///
    /// # Errors
    /// `InvalidArgument` if the part is empty or not inside; `OutOfMemory`.
    pub fn slice(&self, from: u32, length: u32) -> Result<Extent> {
        let end = from.checked_add(length).filter(|end| length > 0 && *end <= self.length);
        let end = end.ok_or(Error::InvalidArgument("part of an extent out of range"))?;
        let mut checksums = Checksums::default();
        if !self.unwritten {
            let per_block = self.checksums.len() / self.length as usize;
            let part = self.checksums.get(from as usize * per_block..end as usize * per_block);
            checksums = Checksums::of(part.ok_or(damaged("extent: wrong number of checksums"))?)?;
        }
        Ok(Extent {
            address: BlockAddress(self.address.0 + u64::from(from)),
            length,
            unwritten: self.unwritten,
            birth: self.birth,
            checksums,
        })
    }

    /// Whether `next` continues this extent on the volume so that both can be one item.
    pub fn joins(&self, next: &Extent) -> bool {
        self.unwritten == next.unwritten
            && self.birth == next.birth
            && self.run().end() == next.address.0
    }

    /// Appends `next`, which [joins](Self::joins) this extent.
    ///
    /// # Errors
    /// `InvalidArgument` if it does not join; `OutOfMemory`.
    pub fn join(&mut self, next: &Extent) -> Result<()> {
        let length = self.length.checked_add(next.length).filter(|_| self.joins(next));
        let length = length.ok_or(Error::InvalidArgument("extents do not join"))?;
        self.checksums.extend(&next.checksums)?;
        self.length = length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Extent {
        Extent {
            address: BlockAddress(100),
            length: 3,
            unwritten: false,
            birth: Generation(7),
            checksums: Checksums::of(&[1, 2, 3, 4, 5, 6]).unwrap(),
        }
    }

    #[test]
    fn round_trip() {
        let extent = sample();
        let bytes = extent.encode().unwrap();
        assert_eq!(bytes.len(), EXTENT_HEADER_LEN + 24);
        assert_eq!(Extent::decode(&bytes, 2).unwrap(), extent);
        assert_eq!(decode_run(&bytes), Some(BlockRun { start: BlockAddress(100), count: 3 }));
        let unwritten =
            Extent::new_unwritten(BlockRun { start: BlockAddress(5), count: 9 }, Generation(1))
                .unwrap();
        assert_eq!(Extent::decode(&unwritten.encode().unwrap(), 2).unwrap(), unwritten);
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = sample().encode().unwrap();
        for length in 0..bytes.len() {
            assert!(Extent::decode(&bytes[..length], 2).is_err());
        }
        assert!(Extent::decode(&bytes, 1).is_err());
        let mut zero = bytes.clone();
        zero[8..12].fill(0);
        assert!(Extent::decode(&zero, 2).is_err());
        let mut far = bytes.clone();
        far[..8].fill(0xff);
        assert!(Extent::decode(&far, 2).is_err());
        let mut flags = bytes;
        flags[12] = 0x80;
        assert!(Extent::decode(&flags, 2).is_err());
    }

    #[test]
    fn slices_and_joins() {
        let extent = sample();
        let (mut head, tail) = (extent.slice(0, 1).unwrap(), extent.slice(1, 2).unwrap());
        assert_eq!((tail.address, &*tail.checksums), (BlockAddress(101), &[3, 4, 5, 6][..]));
        head.join(&tail).unwrap();
        assert_eq!(head, extent);
        assert!(extent.slice(2, 2).is_err() && extent.slice(0, 0).is_err());
        assert!(head.join(&extent).is_err());
    }

    #[test]
    fn cap_fits_the_value() {
        assert_eq!(written_blocks_max(4096, 4096, 4096), 256);
        assert_eq!(written_blocks_max(4096, 4096, 4000), 256);
        assert_eq!(written_blocks_max(2048, 2048, 1900), 8);
        assert_eq!(written_blocks_max(512, 512, 480), 32);
        for (block, granule, value) in
            [(512, 512, 128), (128, 128, 112), (65536, 4096, 100), (65536, 4096, 16000)]
        {
            let blocks = written_blocks_max(block, granule, value) as usize;
            assert!(
                blocks >= 1 && EXTENT_HEADER_LEN + blocks * 4 * (block / granule) as usize <= value
            );
        }
    }
}
