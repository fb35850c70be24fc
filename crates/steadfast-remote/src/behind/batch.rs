//! A batch in the journal: all changes between two flush points.
//!
//! Header and table come first and carry their own checksum; the table holds the checksum of every
//! block. A torn batch is ignored.

use super::layer::{HOLES_MAX, Layer};
use super::{BLOCK, LogHeader, Point};
use crate::array::crc32c;

const MAGIC: [u8; 8] = *b"SfBatch1";
/// Bytes before the table.
pub(super) const FIXED_BYTES: usize = 96;

/// Header and table of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    /// Increases by one with every batch.
    pub(super) number: u64,
    /// The flush point of the image after this batch is applied.
    pub(super) point: Point,
    /// The image is complete: nothing is left to copy.
    pub(super) complete: bool,
    pub(super) holes: Vec<(u32, u32)>,
    /// Block numbers and checksums, in order.
    pub(super) blocks: Vec<(u32, u32)>,
}

impl Batch {
    /// The batch of a layer.
    pub(super) fn of(layer: &Layer, number: u64, point: Point, complete: bool) -> Batch {
        let blocks =
            layer.writes.iter().map(|(block, bytes)| (*block, crc32c(&bytes[..]))).collect();
        Batch { number, point, complete, holes: layer.holes.clone(), blocks }
    }

    /// Bytes of header and table.
    pub(super) fn bytes(&self) -> usize {
        (FIXED_BYTES + 8 * (self.holes.len() + self.blocks.len())).next_multiple_of(BLOCK)
    }

    /// As bytes.
    pub(super) fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(uuid);
        let Point { order: (stamp, epoch), sequence, time_ms } = self.point;
        for number in [self.number, stamp, epoch, sequence, time_ms, u64::from(self.complete)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.holes.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        bytes.resize(FIXED_BYTES, 0);
        for (first, second) in self.holes.iter().chain(&self.blocks) {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&second.to_le_bytes());
        }
        bytes.resize(self.bytes(), 0);
        let crc = crc32c(&bytes[16..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Bytes of header and table, from the first block of the batch.
    pub(super) fn bytes_of(first: &[u8], header: &LogHeader) -> Option<usize> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*first.get(at..)?.first_chunk()?));
        let (holes, blocks) = (u32_at(80)? as usize, u32_at(84)? as usize);
        // Bounded before they are used.
        let sound = first.get(..8)? == MAGIC
            && holes <= HOLES_MAX
            && blocks as u64 <= header.bound / BLOCK as u64
            && first.get(16..32)? == header.uuid;
        sound.then(|| (FIXED_BYTES + 8 * (holes + blocks)).next_multiple_of(BLOCK))
    }

    /// Decodes header and table of a batch of the log with this header.
    pub(super) fn decode(bytes: &[u8], header: &LogHeader) -> Option<Batch> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let length = Batch::bytes_of(bytes, header)?;
        if bytes.len() != length || u32_at(8)? != crc32c(bytes.get(16..)?) || u32_at(12)? != 0 {
            return None;
        }
        let (holes, blocks) = (u32_at(80)? as usize, u32_at(84)? as usize);
        let pairs = |from: usize, count: usize| -> Option<Vec<(u32, u32)>> {
            (from..from + count)
                .map(|index| {
                    Some((u32_at(FIXED_BYTES + 8 * index)?, u32_at(FIXED_BYTES + 8 * index + 4)?))
                })
                .collect()
        };
        let batch = Batch {
            number: u64_at(32)?,
            point: Point {
                order: (u64_at(40)?, u64_at(48)?),
                sequence: u64_at(56)?,
                time_ms: u64_at(64)?,
            },
            complete: u64_at(72)? != 0,
            holes: pairs(0, holes)?,
            blocks: pairs(holes, blocks)?,
        };
        let inside = batch.number < u64::MAX
            && batch.blocks.iter().all(|(block, _)| *block < header.blocks())
            && batch.holes.iter().all(|(first, count)| {
                first.checked_add(*count).is_some_and(|end| end <= header.blocks())
            });
        inside.then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_go_both_ways_and_any_flipped_bit_is_seen() {
        let header = LogHeader::first([7; 16], 64 << 20, 4 << 20).unwrap();
        let mut layer = Layer::default();
        layer.discard(3, 5);
        layer.write(4, &[1; 2 * BLOCK]);
        let point = Point { order: (1, 2), sequence: 3, time_ms: 4 };
        let batch = Batch::of(&layer, 9, point, true);
        let bytes = batch.encode(&[7; 16]);
        assert_eq!(bytes.len(), BLOCK);
        assert_eq!(Batch::decode(&bytes, &header).unwrap(), batch);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Batch::decode(&flipped, &header), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Batch::decode(&bytes[..length], &header), None);
        }
        let outside = Batch { blocks: vec![(header.blocks(), 0)], ..batch };
        assert_eq!(Batch::decode(&outside.encode(&[7; 16]), &header), None);
    }
}
