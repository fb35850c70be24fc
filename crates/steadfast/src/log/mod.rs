//! The intent log: the key mutations committed since the last checkpoint.
//!
//! The log is a ring of blocks. Every record is one commit: all mutations since the record before
//! it, made durable with one flush. So a record is a transaction point. Small records share two
//! blocks in a [group](record_group).
//!
//! Records are chained. Each holds the LSN after its predecessor's, the digest of the record before
//! its group, and the epoch (mount) that wrote it, which never decreases. So neither a torn record
//! nor the remains of an earlier round of the ring can be taken for the next record. One record is
//! in flight at a time, so a record with a successor was durable before the successor was written.
//!
//! This is a plain logical redo log, as in ZFS's intent log: replay puts the mutations into the
//! tree of the newest metaroot.

mod find;
mod headers;
mod log_overlay;
mod past;
mod record_group;
mod ring;
mod scan;

use crate::format::RECORD_HEADER;
use crate::format::record::Header;
pub use log_overlay::LogOverlay;
pub use past::lsn_after_the_past;
pub use record_group::Next;
pub use scan::{LogContent, Stranded, data_is_there, scan, stranded};

use alloc::vec::Vec;

use record_group::RecordGroup;
use steadfast_media::{Medium, Temperature};

use crate::error::Result;
use crate::format::{ERASED, LogPosition, Superblock};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::Store;
use crate::types::{BlockRun, Lsn};

/// No record is longer than this part of the ring, so that a checkpoint comes in time.
pub const RECORD_SHARE: u64 = 4;

/// The log of an open volume: the place of the next record.
#[derive(Debug)]
pub struct Log {
    region: BlockRun,
    block_size: u64,
    position: LogPosition,
    /// Blocks of records that the newest checkpoint does not cover.
    used: u64,
    /// Blocks of records that the frozen state covers; free after it is durable.
    covered: u64,
    /// The medium's atomic unit is no longer than a block, so writing a block leaves its neighbour
    /// intact.
    may_group: bool,
    group: Option<RecordGroup>,
}

impl Log {
    /// A log that continues at `position`, after `used` blocks of records, in a new epoch.
    pub fn new(superblock: &Superblock, atomic_unit: u32, position: LogPosition, used: u64) -> Log {
        let position = LogPosition { epoch: position.epoch + 1, ..position };
        Log {
            region: superblock.log,
            block_size: u64::from(superblock.block_size),
            position,
            used,
            covered: 0,
            may_group: atomic_unit <= superblock.block_size,
            group: None,
        }
    }

    /// The same log with its last group ended.
    pub fn without_group(&self) -> Log {
        Log { group: None, ..*self }
    }

    /// Later records have at least this LSN. The caller makes a checkpoint before the next record,
    /// because that record continues no chain.
    pub fn pass(&mut self, lsn: Lsn) {
        self.group = None;
        self.position.lsn = self.position.lsn.max(lsn);
    }

    /// Later records belong to at least this epoch.
    pub fn raise_epoch(&mut self, epoch: u64) {
        self.position.epoch = self.position.epoch.max(epoch);
    }

    /// Blocks of the whole log.
    pub fn blocks(&self) -> u64 {
        self.region.count
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Where the next record that joins no group begins.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Whether `blocks` more fit beside those that are still needed.
    fn has_budget(&self, blocks: u64) -> bool {
        self.used + blocks <= self.region.count
    }

    /// Erases the remains of a record that a power cut interrupted. They are in the place of the
    /// next record and in the `spare` block of the last group. After a mount has continued without
    /// these remains, nothing may complete them. A later record in the same place, torn in turn,
    /// could do so. For a record with "check data", a rewrite of its data could. Durable when it
    /// returns. A full log has no such place: the block after the last record holds the first one.
    pub fn erase_unfinished<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        spare: Option<u64>,
    ) -> Result<()> {
        let mut erased = memory::zeroed(self.block_size as usize)?;
        erased.fill(ERASED);
        let next = self.has_budget(1).then_some(self.position.block);
        for block in spare.into_iter().chain(next) {
            store.device.medium.write((self.region.start.0 + block) * self.block_size, &erased)?;
        }
        Ok(store.device.medium.flush()?)
    }

    /// Seals the next record and moves past it, but writes nothing. Returns the block where the
    /// record begins, and its bytes for [`write()`].
    pub fn seal<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        next: Next,
        check_data: bool,
    ) -> (u64, Vec<u8>) {
        let position = LogPosition { previous: next.previous, ..self.position };
        let (volume, crc) = (store.device.volume_id(), |bytes: &[u8]| store.device.crc(bytes));
        let (bytes, digest) = next.body.finish(
            &position,
            next.index,
            volume,
            check_data,
            self.block_size as usize,
            crc,
        );
        self.position.lsn = Lsn(self.position.lsn.0 + 1);
        self.position.block = (self.position.block + next.blocks) % self.region.count.max(1);
        if !planted(Sabotage::KeepChainDigest) {
            self.position.previous = digest;
        }
        self.used += next.blocks;
        self.group = next.group;
        (next.at, bytes)
    }

    /// Skips an LSN, because the frozen state has changes that no record has. Later records count
    /// only after the metaroot of that state. Without it, opening ends at the gap.
    pub fn skip(&mut self) {
        self.position.lsn = Lsn(self.position.lsn.0 + 1);
    }

    /// The frozen state covers everything so far.
    pub fn cover(&mut self) {
        self.group = None;
        self.covered = self.used;
    }

    /// The frozen state is durable, so its records are no longer needed. A medium that wants
    /// discards gets one. A discard is advice: its failure loses nothing.
    pub fn release_checkpointed<M: Medium, P: Platform>(&mut self, store: &Store<M, P>) {
        if store.device.medium.wants_discards() && self.covered > 0 {
            let first = (self.position.block + self.region.count - self.used) % self.region.count;
            let head = self.covered.min(self.region.count - first);
            let discard = |block: u64, count: u64| {
                let offset = (self.region.start.0 + block) * self.block_size;
                let _ = store.device.medium.discard(offset, count * self.block_size);
            };
            discard(first, head);
            if head < self.covered {
                discard(0, self.covered - head);
            }
        }
        self.used -= self.covered;
        self.covered = 0;
    }
}

/// Writes a finished record at this block of the log. The caller flushes.
pub fn write<M: Medium, P: Platform>(store: &Store<M, P>, at: u64, record: &[u8]) -> Result<()> {
    let (region, block_size) =
        (store.device.superblock.log, u64::from(store.device.superblock.block_size));
    let first = (record.len() as u64).min((region.count - at) * block_size) as usize;
    let offset = |block: u64| (region.start.0 + block) * block_size;
    store.device.medium.write_hinted(offset(at), &[&record[..first]], Temperature::Hot)?;
    if first < record.len() {
        store.device.medium.write_hinted(offset(0), &[&record[first..]], Temperature::Hot)?;
    }
    Ok(())
}

/// Bytes that [`glance`] reads: the header of a record, and the bytes that the medium reads with
/// it.
pub fn glance_size<M: Medium, P: Platform>(store: &Store<M, P>) -> usize {
    RECORD_HEADER.next_multiple_of(store.device.medium.geometry().atomic_unit.max(1) as usize)
}

/// The present beginning of a block of the log on the medium, whichever writer wrote it; `None` if
/// it cannot be read.
pub fn glance<M: Medium, P: Platform>(store: &Store<M, P>, block: u64) -> Option<Vec<u8>> {
    let mut bytes = memory::zeroed(glance_size(store)).ok()?;
    let block = store.device.superblock.log.start.0 + block;
    store
        .device
        .medium
        .read_afresh(block * u64::from(store.device.superblock.block_size), &mut bytes)
        .ok()?;
    Some(bytes)
}

/// Whether this is the beginning of a record that continues the log of the volume at `position`.
pub fn continues(bytes: &[u8], volume: u64, position: &LogPosition) -> bool {
    Header::decode(bytes, volume).is_some_and(|header| header.follows(position))
}
