//! The header of a record, stored in front of each of its shards.
//!
//! All numbers are little-endian. A header is a multiple of 512 bytes; its checksum covers
//! everything after the checksum field. Every server has the same header, so one header describes
//! all shards.

use super::shape::{FIXED_BYTES, Shape};
use super::{BLOCK, Superblock, crc32c};

/// What is appended to a segment. New blocks become obsolete sooner than moved ones, so they do not
/// share segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SegmentStream {
    /// Blocks as they are written.
    #[default]
    Fresh,
    /// Blocks that cleaning moves.
    Moved,
}

const MAGIC: u32 = u32::from_le_bytes(*b"SfRr");

/// Header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Identity of the array.
    pub(crate) uuid: [u8; 16],
    /// Stamp of the session that wrote it.
    pub(crate) session: u64,
    /// Sequence number of the first record of its segment.
    pub(crate) generation: u64,
    /// Its own sequence number; strictly increasing.
    pub(crate) sequence: u64,
    /// When this record was written, every record up to this one was flushed.
    pub(crate) durable: u64,
    /// Segment number.
    pub(crate) slot: u32,
    /// First byte of the header within the segment.
    pub(crate) offset: u32,
    /// Blocks of each shard.
    pub(crate) rows: u32,
    /// Checksums of the shards, data shards first. 0 for a data shard without blocks, which is not
    /// written.
    pub(crate) shards: Vec<u32>,
    /// Blocks and their checksums: the first `rows` entries belong to the first data shard, and so
    /// on. A **mark** has no entries: nothing older in the segment is needed.
    pub(crate) entries: Vec<(u32, u32)>,
}

impl RecordHeader {
    /// The mark of an obsolete segment, written in front of its old contents.
    pub(crate) fn mark(
        shape: &Shape,
        superblock: &Superblock,
        sequence: u64,
        durable: u64,
        slot: u32,
    ) -> RecordHeader {
        let (uuid, session) = (superblock.uuid, superblock.stamp);
        let (generation, offset, rows) = (sequence, 0, 1);
        let (shards, entries) = (vec![0; shape.servers()], Vec::new());
        RecordHeader {
            uuid,
            session,
            generation,
            sequence,
            durable,
            slot,
            offset,
            rows,
            shards,
            entries,
        }
    }

    /// Whether this is a mark.
    pub(crate) fn is_mark(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the header itself.
    pub(crate) fn bytes(&self, shape: &Shape) -> usize {
        shape.header_bytes(self.rows as usize * shape.data)
    }

    /// Bytes of the whole record on a server.
    pub(crate) fn record_bytes(&self, shape: &Shape) -> usize {
        self.bytes(shape) + self.rows as usize * BLOCK
    }

    /// As bytes.
    pub(crate) fn encode(&self, shape: &Shape) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes(shape));
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.session.to_le_bytes());
        bytes.extend_from_slice(&self.slot.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.durable.to_le_bytes());
        bytes.extend_from_slice(&self.rows.to_le_bytes());
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.resize(FIXED_BYTES, 0);
        self.shards.iter().for_each(|crc| bytes.extend_from_slice(&crc.to_le_bytes()));
        for (block, crc) in &self.entries {
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        bytes.resize(self.bytes(shape), 0);
        let crc = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the header at the front of `bytes`. It must belong to this array and this place.
    pub(crate) fn decode(
        bytes: &[u8],
        shape: &Shape,
        uuid: &[u8; 16],
        slot: u32,
        offset: u32,
    ) -> Option<RecordHeader> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if u32_at(0)? != MAGIC || bytes.get(8..24)? != uuid {
            return None;
        }
        let (rows, count) = (u32_at(64)?, u32_at(68)?);
        // Bounded before they are used.
        if rows == 0
            || rows as usize > shape.rows_max()
            || count as usize > rows as usize * shape.data
        {
            return None;
        }
        let mut header = RecordHeader {
            uuid: *uuid,
            session: u64_at(24)?,
            slot: u32_at(32)?,
            offset: u32_at(36)?,
            generation: u64_at(40)?,
            sequence: u64_at(48)?,
            durable: u64_at(56)?,
            rows,
            shards: Vec::new(),
            entries: Vec::new(),
        };
        let whole = bytes.get(..header.bytes(shape))?;
        if crc32c(whole.get(8..)?) != u32_at(4)? || header.slot != slot || header.offset != offset {
            return None;
        }
        if offset as usize + header.record_bytes(shape) > shape.segment as usize {
            return None;
        }
        let mut at = FIXED_BYTES;
        for _ in 0..shape.servers() {
            header.shards.push(u32_at(at)?);
            at += 4;
        }
        for _ in 0..count {
            let (block, crc) = (u32_at(at)?, u32_at(at + 4)?);
            if block >= shape.blocks {
                return None;
            }
            header.entries.push((block, crc));
            at += 8;
        }
        Some(header)
    }
}

/// What the client keeps in memory of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) sequence: u64,
    /// First byte of the header within the segment.
    pub(crate) offset: u32,
    /// Bytes of the header.
    pub(crate) header: u32,
    /// Blocks of each shard.
    pub(crate) rows: u32,
    /// Blocks in all.
    pub(crate) count: u32,
}

impl Meta {
    pub(crate) fn of(header: &RecordHeader, shape: &Shape) -> Meta {
        Meta {
            sequence: header.sequence,
            offset: header.offset,
            header: header.bytes(shape) as u32,
            rows: header.rows,
            count: header.entries.len() as u32,
        }
    }

    /// Whether a data shard has no blocks. Such a shard is not written and reads as zeros.
    pub(crate) fn is_empty(&self, shard: usize, shape: &Shape) -> bool {
        shard < shape.data && shard as u64 * u64::from(self.rows) >= u64::from(self.count)
    }

    /// First byte of a row within the segment.
    pub(crate) fn row(&self, row: u32) -> u32 {
        self.offset + self.header + row * BLOCK as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> RecordHeader {
        RecordHeader {
            uuid: [7; 16],
            session: 3,
            generation: 40,
            sequence: 41,
            durable: 39,
            slot: 5,
            offset: 1024,
            rows: 2,
            shards: vec![1, 2, 3, 4],
            entries: vec![(1, 10), (2, 20), (9, 90), (0, 1), (7, 7)],
        }
    }

    #[test]
    fn headers_go_both_ways_and_any_flipped_bit_is_seen() {
        let shape = Shape::plan(3, 1, 8 << 20).unwrap();
        let header = header();
        let bytes = header.encode(&shape);
        assert_eq!(bytes.len() % 512, 0);
        let decode = |bytes: &[u8]| RecordHeader::decode(bytes, &shape, &[7; 16], 5, 1024);
        assert_eq!(decode(&bytes).unwrap(), header);
        assert_eq!(RecordHeader::decode(&bytes, &shape, &[8; 16], 5, 1024), None);
        assert_eq!(RecordHeader::decode(&bytes, &shape, &[7; 16], 6, 1024), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&flipped), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None);
        }
        let void = RecordHeader { entries: Vec::new(), ..header.clone() };
        assert_eq!(void.encode(&shape).len(), bytes.len());
        assert_eq!(decode(&void.encode(&shape)).unwrap(), void);
    }

    #[test]
    fn blocks_beyond_the_medium_are_refused() {
        let shape = Shape::plan(3, 1, 8 << 20).unwrap();
        for block in [0, shape.blocks - 1, shape.blocks, u32::MAX] {
            let header = RecordHeader { rows: 1, entries: vec![(block, 10)], ..header() };
            let found = RecordHeader::decode(&header.encode(&shape), &shape, &[7; 16], 5, 1024);
            assert_eq!(found, (block < shape.blocks).then_some(header), "{block}");
        }
    }
}
