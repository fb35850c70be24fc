//! [`Shape`]: sizes that stay fixed for the lifetime of an array.

use super::{BLOCK, Policy};

/// Bytes before the checksums of the shards.
pub(crate) const FIXED_BYTES: usize = 80;

/// First byte of the segments on a server; superblocks are before it.
pub(crate) const AREA: u64 = 64 << 10;
/// Most blocks of a record.
pub(crate) const RECORD_BLOCKS_MAX: usize = 256;
/// Alignment of records within a segment, bytes.
pub(crate) const SECTOR: usize = 512;
/// Segments that blocks never fill: cleaning needs them.
const RESERVE_SLOTS: u64 = 12;

/// Sizes of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Data shards.
    pub(crate) data: usize,
    /// Parity shards.
    pub(crate) parity: usize,
    /// Bytes of a segment on one server.
    pub(crate) segment: u32,
    /// Segments on each server.
    pub(crate) slots: u32,
    /// Blocks of the medium.
    pub(crate) blocks: u32,
}

impl Shape {
    /// Sizes for servers of `size` bytes each.
    ///
    /// # Errors
    /// A message for the user if that is too little or too much.
    pub(crate) fn plan(data: usize, parity: usize, size: u64) -> Result<Shape, String> {
        let room = size.saturating_sub(AREA);
        let segment = (room / 256).next_power_of_two().clamp(32 << 10, 4 << 20) as u32;
        let slots = u32::try_from(room / u64::from(segment))
            .map_err(|_| "the servers lend more than an array can hold".to_owned())?;
        let mut shape = Shape { data, parity, segment, slots, blocks: 0 };
        let filled = u64::from(slots).saturating_sub(RESERVE_SLOTS);
        // Four fifths, so that cleaning the emptiest segment gains at least a fifth of it.
        let blocks = filled * shape.rows_per_segment() as u64 * data as u64 * 4 / 5;
        shape.blocks = u32::try_from(blocks)
            .ok()
            .filter(|blocks| *blocks < u32::MAX)
            .ok_or_else(|| "the servers lend more than an array can hold: 16 TiB".to_owned())?;
        match shape.blocks {
            0 => {
                Err("the servers lend too little for an array: give 1 MiB or more each".to_owned())
            }
            _ => Ok(shape),
        }
    }

    /// How blocks are spread.
    pub(crate) fn policy(&self) -> Policy {
        Policy::of_shards(self.data, self.parity)
    }

    /// Servers.
    pub(crate) fn servers(&self) -> usize {
        self.data + self.parity
    }

    /// Most rows of a record.
    pub(crate) fn rows_max(&self) -> usize {
        (RECORD_BLOCKS_MAX / self.data).max(1)
    }

    /// Blocks to gather before sending: those of one record, and never more than a segment holds.
    /// This bounds the segments that a flush needs.
    pub(crate) fn batch(&self) -> usize {
        RECORD_BLOCKS_MAX.min(self.segment_blocks())
    }

    /// Blocks of a segment that is filled with the largest records.
    pub(crate) fn segment_blocks(&self) -> usize {
        self.rows_per_segment() * self.data
    }

    /// Rows of a segment that is filled with the largest records.
    fn rows_per_segment(&self) -> usize {
        let (rows, segment) = (self.rows_max(), self.segment as usize);
        let record = self.header_bytes(rows * self.data) + rows * BLOCK;
        let rest = segment % record;
        let header = self.header_bytes(rows * self.data);
        segment / record * rows + rest.saturating_sub(header) / BLOCK
    }

    /// Blocks that fit into the data shards of a record of this many blocks.
    pub(crate) fn stripe_blocks(&self, blocks: usize) -> usize {
        blocks.div_ceil(self.data) * self.data
    }

    /// Bytes of the data shards of a record of this many blocks.
    pub(crate) fn stripe_bytes(&self, blocks: usize) -> usize {
        self.stripe_blocks(blocks) * BLOCK
    }

    /// Bytes of a record header for this many blocks.
    pub(crate) fn header_bytes(&self, blocks: usize) -> usize {
        (FIXED_BYTES + 4 * self.servers() + 8 * blocks).next_multiple_of(SECTOR)
    }

    /// First byte of a segment on each server.
    pub(crate) fn slot_start(&self, slot: u32) -> u64 {
        AREA + u64::from(slot) * u64::from(self.segment)
    }

    /// One past the last byte that an array needs of each server.
    pub(crate) fn end(&self) -> u64 {
        self.slot_start(self.slots)
    }

    /// The shard that a member holds of a record with this sequence number.
    pub(crate) fn shard_of(&self, member: usize, sequence: u64) -> usize {
        let servers = self.servers();
        (member + servers - (sequence % servers as u64) as usize) % servers
    }

    /// The member that holds a shard of a record with this sequence number: members take turns.
    pub(crate) fn member_of(&self, shard: usize, sequence: u64) -> usize {
        (shard + (sequence % self.servers() as u64) as usize) % self.servers()
    }

    /// Whether these sizes are valid for an array. Rejects sizes that would overflow or divide by
    /// zero.
    pub(crate) fn is_sound(&self) -> bool {
        let servers = self.data.saturating_add(self.parity);
        self.data > 0
            && servers <= super::policy::SERVERS_MAX
            && self.segment.is_power_of_two()
            && (32 << 10..=4 << 20).contains(&self.segment)
            && self.slots as u64 > RESERVE_SLOTS
            && self.blocks > 0
            && u64::from(self.blocks)
                <= u64::from(self.slots) * u64::from(self.segment) / BLOCK as u64 * self.data as u64
    }
}
