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
//! *before the group*, and the records are numbered within the group. Replay reads both blocks and
//! takes the newer whole record.
//!
//! Writing alternately to two places is how SQLite, LMDB and many others keep their newest header.
//! Replacing redo records by a record that repeats them is the log rewriting of main-memory
//! databases.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::record::Body;
use crate::format::{Digest, GAIN_MAX, RecordBuilder};
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
    /// Payload of its last record, not packed.
    payload: Vec<u8>,
    /// Bytes of that record.
    length: usize,
}

/// A joined record may be shorter than the two records together: they have a header each, and
/// changes of the same keys. This part of a block is the saving that is assumed at most.
const SHARED: usize = 4;

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
    /// RecordPlace of a record with these mutations, and the records that it is joined with; `None` if
    /// the log has no room for it.
    ///
    /// # Errors
    /// `OutOfMemory`; nothing has changed then.
    pub fn next(&self, builder: RecordBuilder) -> Result<Option<Next>> {
        let block_size = self.block_size as usize;
        let alone = builder.body(block_size)?;
        // A record that is clearly too long is not tried: joining and packing it costs more than
        // the rest of a mark.
        if let Some(group) = &self.group
            && group.length + alone.len() <= block_size + block_size / SHARED
            && group.payload.len() + builder.payload().len() <= GAIN_MAX * block_size
        {
            let joined = builder.joined(&group.payload)?;
            let body = joined.body(block_size)?;
            let blocks = u64::from(group.index == 0);
            let index = group.index + 1;
            // A reader of the log reads the second block of a group only if the newest record is
            // not in the first. So a group should not end in the second block, as far as this can
            // be predicted.
            let grown = body.len().saturating_sub(group.length);
            let ends_behind =
                index % 2 == 1 && body.len() + grown > block_size && self.has_budget(1);
            if body.len() <= block_size && self.has_budget(blocks) && !ends_behind {
                let turn =
                    if planted(Sabotage::OverwriteNewestRecord) { 0 } else { u64::from(index % 2) };
                let at = (group.start + turn) % self.region.count;
                let (start, previous) = (group.start, group.previous);
                let length = body.len();
                let group = Some(RecordGroup {
                    start,
                    index,
                    previous,
                    payload: joined.into_payload(),
                    length,
                });
                return Ok(Some(Next { body, at, index, previous, blocks, group }));
            }
        }
        let length = alone.len();
        let blocks = length.div_ceil(block_size) as u64;
        // File content must not be found as a stray record: a checkpoint replaces such a record.
        let forged = alone.has_false_start(block_size);
        if !self.has_budget(blocks) || forged {
            return Ok(None);
        }
        let (start, previous) = (self.position.block, self.position.previous);
        let may_go_on = self.may_group && blocks == 1;
        let group = may_go_on.then(|| RecordGroup {
            start,
            index: 0,
            previous,
            payload: builder.into_payload(),
            length,
        });
        Ok(Some(Next { body: alone, at: start, index: 0, previous, blocks, group }))
    }
}
