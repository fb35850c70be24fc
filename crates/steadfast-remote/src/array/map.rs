//! [`Map`]: the location of every block, and the contents of every segment.

use std::collections::HashMap;

use super::hold::HeldBlocks;
use super::location::{Bytes, Location, NOWHERE};
use super::record::{Meta, RecordHeader};
use super::shape::Shape;
use super::{Array, ArrayError, BLOCK, Fleet, Status};

/// Contents of a segment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    /// Sequence number of its first record.
    pub(crate) generation: u64,
    /// In the order of their offsets.
    pub(crate) records: Vec<Meta>,
    /// Blocks whose newest version is here.
    pub(crate) live: u32,
}

impl Segment {
    /// The record that contains this offset.
    pub(crate) fn record_at(&self, offset: u32) -> Option<Meta> {
        let after = self.records.partition_point(|record| record.offset <= offset);
        self.records.get(after.checked_sub(1)?).copied()
    }
}

/// A vector of a size that the superblock gives: memory may not suffice for it.
fn many<T: Clone>(count: u32, of: T) -> Result<Vec<T>, ArrayError> {
    let mut all = Vec::new();
    all.try_reserve_exact(count as usize)
        .map_err(|_| ArrayError::Invalid("no memory for the map of this array".to_owned()))?;
    all.resize(count as usize, of);
    Ok(all)
}

/// Locations of all blocks.
pub(crate) struct Map {
    entries: Vec<Location>,
    /// Blocks that wait to be sent.
    pub(crate) pending: HashMap<u32, Bytes>,
    pub(crate) segments: Vec<Segment>,
    /// Blocks on the servers that are also in memory.
    pub(crate) hold: HeldBlocks,
}

impl Map {
    pub(crate) fn new(shape: &Shape, hold_bytes: u64) -> Result<Map, ArrayError> {
        Ok(Map {
            entries: many(shape.blocks, Location::NONE)?,
            pending: HashMap::new(),
            segments: many(shape.slots, Segment::default())?,
            hold: HeldBlocks::new(hold_bytes),
        })
    }

    /// Location of a block, if it was written.
    pub(crate) fn entry(&self, block: u32) -> Option<Location> {
        self.entries.get(block as usize).copied().filter(|entry| entry.slot != NOWHERE)
    }

    /// Begins a segment with its first record.
    pub(crate) fn begin(&mut self, slot: u32, generation: u64) {
        self.hold.forget(slot);
        if let Some(segment) = self.segments.get_mut(slot as usize) {
            segment.generation = generation;
            segment.records.clear();
        }
    }

    /// A record is on the servers: enters its blocks.
    pub(crate) fn place(&mut self, header: &RecordHeader, shape: &Shape) {
        let meta = Meta::of(header, shape);
        if let Some(segment) = self.segments.get_mut(header.slot as usize) {
            segment.records.push(meta);
        }
        for (index, (block, crc)) in header.entries.iter().enumerate() {
            let shard = index / header.rows as usize;
            let row = index % header.rows as usize;
            let entry = Location {
                slot: header.slot,
                offset: meta.row(row as u32),
                crc: *crc,
                member: shape.member_of(shard, header.sequence) as u8,
                shard: shard as u8,
            };
            self.set(*block, entry);
        }
    }

    /// Holds a block of the record that was just placed.
    pub(crate) fn keep(&mut self, block: u32, bytes: Bytes) {
        if let Some(entry) = self.entry(block) {
            self.hold.put(entry, block, bytes);
        }
    }

    /// Discards a block.
    pub(crate) fn clear(&mut self, block: u32) {
        self.pending.remove(&block);
        self.set(block, Location::NONE);
    }

    /// Sets the location of a block.
    pub(crate) fn set(&mut self, block: u32, entry: Location) {
        let Some(place) = self.entries.get_mut(block as usize) else { return };
        let before = std::mem::replace(place, entry);
        self.hold.drop_at(&before);
        if let Some(segment) = self.segments.get_mut(before.slot as usize) {
            segment.live = segment.live.saturating_sub(1);
        }
        if let Some(segment) = self.segments.get_mut(entry.slot as usize) {
            segment.live += 1;
        }
    }
}

impl<F: Fleet> Array<F> {
    /// Status of the array.
    pub fn status(&self) -> Status {
        let free = self.log.lock().free_count() as u32;
        let members = self.members.read();
        let mut status = Status {
            uuid: members.superblock.uuid,
            policy: self.shape.policy(),
            epoch: members.superblock.epoch,
            members: (0..members.seats.len())
                .map(|member| (members.state(member), members.seat(member)))
                .collect(),
            failed: members.failed,
            size: u64::from(self.shape.blocks) * BLOCK as u64,
            segments: (free, self.shape.slots),
            segment_bytes: self.shape.segment,
            losses: 0,
            reconstructed: 0,
            repaired: 0,
            cleaned: 0,
            moved: 0,
            packed: 0,
            held: self.map.read().hold.total(),
            records: 0,
            hedged: 0,
            trimmed: 0,
        };
        self.tally.fill(&mut status);
        status
    }
}
