//! Groups of records: many small transaction points in the space of two blocks.
//!
//! A record of a few changes is much shorter than a block. The records of a group alternate between
//! two neighbouring blocks. Each holds the mutations of the whole group so far, so the newest
//! record replaces all others. While it is being written, the other block has the previous record,
//! which is durable: nothing that was acknowledged is ever at risk. The group ends when the next
//! record would be longer than a block, and with every checkpoint and mount. The log then continues
//! after its blocks.
//!
//! To the chain a group is one record. Each of its records names the digest of the last record
//! *before the group*, and the records are numbered within the group. The scan takes the newer
//! whole record.
//!
//! Writing alternately to two places is how SQLite, LMDB and many others keep their newest header.
//! Replacing redo records by a record that repeats them is the log rewriting of main-memory
//! databases.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::record::Body;
use crate::format::{Digest, GAIN_MAX, GroupPayload, RECORD_HEADER, RecordBuilder};
use crate::log::Log;
use crate::sabotage::{Sabotage, planted};

/// The group that the next record may join.
#[derive(Debug)]
pub(super) struct RecordGroup {
    /// Block of its first record, counted from the start of the log.
    start: u64,
    /// Number of its last record.
    index: u32,
    /// Digest of the record before it.
    previous: Digest,
    /// Payload of its last record.
    payload: GroupPayload,
}

/// Packing saves this part of a payload at most, as an estimate.
const PACKED: usize = 4;

impl RecordGroup {
    /// Whether the group may have room for a record with `new` bytes of plain payload. A record
    /// that is clearly too long is not tried.
    fn may_take(&self, new: usize, block_size: usize) -> bool {
        let payload = &self.payload;
        payload.packed().len() + new / PACKED <= block_size
            && payload.plain_len() + new <= GAIN_MAX * block_size
            && payload.values_len() <= 2 * GAIN_MAX * block_size
    }
}

/// The next record: its content and its place.
pub struct Next {
    pub(super) body: Body,
    /// Its first block.
    pub(super) at: u64,
    /// Its number in its group.
    pub(super) index: u32,
    pub(super) previous: Digest,
    /// Blocks that it takes in addition to those in use.
    pub(super) blocks: u64,
    /// The group that it leaves open.
    pub(super) group: Option<RecordGroup>,
}

impl Log {
    /// Place of a record with these mutations, and the records that it is joined with; `None` if
    /// the log has no room for it. The present group goes into the result; in every other case it
    /// has ended. A short record takes `memory`.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn next(&mut self, builder: &RecordBuilder, memory: &mut Vec<u8>) -> Result<Option<Next>> {
        let block_size = self.block_size as usize;
        let new = builder.payload();
        // The memory of a group that ends is for the next one.
        let ended = match self.group.take() {
            Some(group) if group.may_take(new.len(), block_size) => {
                let before = RECORD_HEADER + group.payload.packed().len();
                let payload = group.payload.joined(new, memory)?;
                let length = RECORD_HEADER + payload.packed().len();
                let blocks = u64::from(group.index == 0);
                let index = group.index + 1;
                // A reader of the log reads the second block of a group only if the newest record
                // is not in the first. So a group should not end in the second block, as far as
                // this can be predicted.
                let grown = length.saturating_sub(before);
                let ends_in_second =
                    index % 2 == 1 && length + grown > block_size && self.has_budget(1);
                if length <= block_size && self.has_budget(blocks) && !ends_in_second {
                    let body = Body::of_group(&payload, block_size, core::mem::take(memory))?;
                    let turn = if planted(Sabotage::OverwriteNewestRecord) {
                        0
                    } else {
                        u64::from(index % 2)
                    };
                    let at = (group.start + turn) % self.region.count;
                    let (start, previous) = (group.start, group.previous);
                    let group = Some(RecordGroup { start, index, previous, payload });
                    return Ok(Some(Next { body, at, index, previous, blocks, group }));
                }
                payload
            }
            Some(group) => group.payload,
            None => GroupPayload::default(),
        };
        let (start, previous) = (self.position.block, self.position.previous);
        // The first record of a group, if it is short enough.
        if self.may_group && new.len() / PACKED <= block_size {
            let payload = ended.cleared().joined(new, memory)?;
            if RECORD_HEADER + payload.packed().len() <= block_size {
                if !self.has_budget(1) {
                    return Ok(None);
                }
                let body = Body::of_group(&payload, block_size, core::mem::take(memory))?;
                let group = Some(RecordGroup { start, index: 0, previous, payload });
                return Ok(Some(Next { body, at: start, index: 0, previous, blocks: 1, group }));
            }
        }
        let body = builder.body(block_size)?;
        let blocks = body.len().div_ceil(block_size) as u64;
        // File content must not be found as a stray record: a checkpoint replaces such a record.
        let forged = body.has_false_start(block_size);
        if !self.has_budget(blocks) || forged {
            return Ok(None);
        }
        Ok(Some(Next { body, at: start, index: 0, previous, blocks, group: None }))
    }
}
