//! Gathers blocks into records and sends them to the servers.
//!
//! Blocks wait in memory until a record is full or a flush comes. A waiting block that is written
//! again is replaced. A flush makes a short record of the waiting blocks: no stripe is read back to
//! be filled. Large writes do not wait; they are sent from the caller's buffer.
//!
//! New blocks and blocks that cleaning moves are two streams with a segment each. New blocks,
//! mostly of small flushes, are soon written again or moved; moved blocks tend to stay. A segment
//! with both kinds would never be cheap to clean.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::hold::HeldBlocks;
use super::location::Bytes;
use super::record::SegmentStream;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Fleet};
use crate::sabotage::{Sabotage, planted};

/// Fewest blocks that are sent without gathering, if a record has room for them. Copying them would
/// cost more than another header.
const DIRECT_MIN: usize = 128;

/// A segment that records are appended to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenSegment {
    /// The stream that is appended to it.
    pub(crate) stream: SegmentStream,
    /// Its segment number on every server.
    pub(crate) slot: u32,
    /// Sequence number of its first record.
    pub(crate) generation: u64,
    pub(crate) offset: u32,
}

/// State that only appends need.
pub(crate) struct Log {
    /// The open segment of each stream.
    pub(crate) fresh: Option<OpenSegment>,
    pub(crate) moved: Option<OpenSegment>,
    /// Sequence number of the next record.
    pub(crate) next: u64,
    /// Every record up to this one is flushed.
    pub(crate) durable: u64,
    /// Waiting blocks, in the order of arrival.
    pub(crate) waiting: Vec<u32>,
    /// Free segments.
    pub(crate) free: BTreeSet<u32>,
    /// The segment that was used last: segments are used in turn.
    pub(crate) cursor: u32,
    /// Segments without valid contents that have no mark yet.
    pub(crate) unmarked: Vec<u32>,
    /// Segments that are free after the next flush.
    pub(crate) marked: Vec<u32>,
    /// Something was sent that no flush covers.
    pub(crate) unflushed: bool,
    /// Parity buffers of the last record, reused for the next one.
    pub(crate) parity: Vec<Vec<u8>>,
    /// Gather buffer of the last record, reused.
    pub(crate) gathered: Vec<u8>,
}

impl Log {
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Whether the segment is open for appending.
    pub(crate) fn is_open(&self, slot: u32) -> bool {
        [self.fresh, self.moved].iter().flatten().any(|open| open.slot == slot)
    }

    /// Closes the open segments: the next records begin new ones.
    pub(crate) fn close(&mut self) {
        (self.fresh, self.moved) = (None, None);
    }

    fn open(&mut self, stream: SegmentStream) -> &mut Option<OpenSegment> {
        match stream {
            SegmentStream::Fresh => &mut self.fresh,
            SegmentStream::Moved => &mut self.moved,
        }
    }
}

impl<F: Fleet> Array<F> {
    /// Accepts blocks. They are readable at once and durable after the next flush.
    pub(crate) fn append(&self, first: u32, data: &[u8]) -> Result<(), ArrayError> {
        let mut log = self.log_to_write()?;
        self.make_room(&mut log)?;
        self.take_in(&mut log, first, data)?;
        self.tally.written(data.len());
        self.alive()
    }

    /// Sends blocks to the log or lets them wait.
    fn take_in(
        &self,
        log: &mut MutexGuard<'_, Log>,
        mut block: u32,
        mut rest: &[u8],
    ) -> Result<(), ArrayError> {
        while rest.len() >= BLOCK {
            let taken = if rest.len() / BLOCK >= DIRECT_MIN.min(self.shape.batch()) {
                self.mark_ahead(log)?;
                self.seal_direct(log, block, rest)?
            } else {
                let room = self.shape.batch().saturating_sub(log.waiting.len()).max(1);
                let taken = room.min(rest.len() / BLOCK);
                for (index, bytes) in rest.chunks_exact(BLOCK).take(taken).enumerate() {
                    let mut copy = [0; BLOCK];
                    copy.copy_from_slice(bytes);
                    self.put(log, block + index as u32, Arc::new(copy));
                }
                if log.waiting.len() >= self.shape.batch() {
                    self.seal(log, SegmentStream::Fresh, false)?;
                }
                taken
            };
            self.make_room(log)?;
            block += taken as u32;
            rest = rest.get(taken * BLOCK..).unwrap_or_default();
        }
        Ok(())
    }

    /// Makes a block wait.
    pub(crate) fn put(&self, log: &mut Log, block: u32, bytes: Bytes) {
        if self.map.write().pending.insert(block, bytes).is_none() {
            log.waiting.push(block);
        }
    }

    /// Sends the first blocks of `data`, for block `first` and the following ones, without copying.
    /// Returns their number.
    fn seal_direct(&self, log: &mut Log, first: u32, data: &[u8]) -> Result<usize, ArrayError> {
        let open = self.room(log, SegmentStream::Fresh)?;
        let most = self.fits(&open).min(data.len() / BLOCK);
        // Whole stripes, or what fits if the segment has room for less than one.
        let count = if most >= self.shape.data { most - most % self.shape.data } else { most };
        let blocks: Vec<u32> = (first..first + count as u32).collect();
        // Waiting versions of these blocks are older.
        log.waiting.retain(|block| !(first..first + count as u32).contains(block));
        let bytes = data.get(..count * BLOCK).unwrap_or_default();
        // So they are not kept for these blocks.
        let keep = planted(Sabotage::HoldOlder);
        self.seal_record(log, open, &blocks, Cow::Borrowed(bytes), keep, false)?;
        Ok(count)
    }

    /// Sends all waiting blocks, in as many records as needed. With `durable`, a flush of
    /// everything sent before accompanies the last record. That record itself is written durably if
    /// the servers can do that in one request.
    pub(crate) fn seal(
        &self,
        log: &mut Log,
        stream: SegmentStream,
        durable: bool,
    ) -> Result<(), ArrayError> {
        while !log.waiting.is_empty() {
            let open = self.room(log, stream)?;
            let count = log.waiting.len().min(self.fits(&open));
            let blocks: Vec<u32> = log.waiting.iter().take(count).copied().collect();
            let mut bytes = std::mem::take(&mut log.gathered);
            bytes.clear();
            {
                let map = self.map.read();
                for block in &blocks {
                    let waits = map.pending.get(block).ok_or(ArrayError::Unreadable(*block))?;
                    bytes.extend_from_slice(&waits[..]);
                }
            }
            bytes.resize(self.shape.stripe_bytes(count), 0);
            let last = count == log.waiting.len();
            let keep = stream == SegmentStream::Fresh && HeldBlocks::wants(&self.shape, count);
            self.seal_record(log, open, &blocks, Cow::Borrowed(&bytes), keep, durable && last)?;
            log.gathered = bytes;
            log.waiting.drain(..count);
        }
        Ok(())
    }

    /// Makes a record of blocks, sends it, and enters it into the map. With `keep`, waiting blocks
    /// of it stay in memory.
    fn seal_record(
        &self,
        log: &mut Log,
        open: OpenSegment,
        blocks: &[u32],
        bytes: Cow<'_, [u8]>,
        keep: bool,
        durable: bool,
    ) -> Result<(), ArrayError> {
        let header = self.send(log, open, blocks, bytes, durable)?;
        {
            let mut map = self.map.write();
            map.place(&header, &self.shape);
            for block in blocks {
                if !map.pending.is_empty()
                    && let Some(bytes) = map.pending.remove(block)
                    && keep
                {
                    map.keep(*block, bytes);
                }
            }
        }
        let offset = open.offset + header.record_bytes(&self.shape) as u32;
        let open = OpenSegment { offset: offset.next_multiple_of(SECTOR as u32), ..open };
        *log.open(open.stream) = Some(open);
        self.tally.records(1);
        Ok(())
    }

    /// How many blocks fit into the rest of a segment as one record.
    fn fits(&self, open: &OpenSegment) -> usize {
        let left = (self.shape.segment - open.offset) as usize;
        (1..=self.shape.rows_max())
            .rev()
            .find(|rows| self.shape.header_bytes(rows * self.shape.data) + rows * BLOCK <= left)
            .map_or(0, |rows| rows * self.shape.data)
    }

    /// The open segment of a stream if it has room for a record, or else the next one.
    fn room(&self, log: &mut Log, stream: SegmentStream) -> Result<OpenSegment, ArrayError> {
        if let Some(open) = *log.open(stream)
            && self.fits(&open) > 0
        {
            return Ok(open);
        }
        *log.open(stream) = None;
        let after = log.free.range(log.cursor.saturating_add(1)..).next();
        let slot = after.or_else(|| log.free.first()).copied().ok_or(ArrayError::NoSpace)?;
        log.free.remove(&slot);
        log.cursor = slot;
        let open = OpenSegment { stream, slot, generation: log.next, offset: 0 };
        {
            let mut map = self.map.write();
            map.begin(slot, open.generation);
            if stream == SegmentStream::Fresh {
                map.hold.begin(slot);
            }
        }
        *log.open(stream) = Some(open);
        Ok(open)
    }
}
