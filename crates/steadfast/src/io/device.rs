//! The device of a volume: its medium as blocks, read and written with retries, and a ledger of
//! what no flush has covered yet.
//!
//! Data checksums are with the caller, and nodes are verified by the tree.

use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;
use steadfast_media::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::retry::Retry;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun};

/// Amount of written data that no flush has covered. It holds positions and not a balance, for two
/// reasons. Two concurrent flushes cover the same bytes. Data written during a flush is covered by
/// neither.
#[derive(Debug, Default)]
struct Unflushed {
    /// Bytes written since the volume was opened.
    written: u64,
    /// How many of them are surely flushed.
    flushed: u64,
}

impl Unflushed {
    fn add(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// A flush has ended that began when `written` bytes had been written.
    fn flushed_to(&mut self, written: u64) {
        self.flushed = self.flushed.max(written);
    }

    fn bytes(&self) -> u32 {
        u32::try_from(self.written - self.flushed).unwrap_or(u32::MAX)
    }
}

/// The fields of a superblock that change while the volume is open: its size, its label, and the
/// features that are used.
#[derive(Debug, Clone, Copy)]
struct Variable {
    blocks: u64,
    reserve_blocks: u64,
    label: [u8; 32],
    features_read_only: u64,
}

impl Variable {
    fn of(superblock: &Superblock) -> Variable {
        let Superblock { blocks, reserve_blocks, label, features_read_only, .. } = *superblock;
        Variable { blocks, reserve_blocks, label, features_read_only }
    }
}

/// The amount of its own upkeep that the medium had done at some time.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep(Option<u64>);

impl Upkeep {
    /// Whether the medium has upkeep to do.
    pub fn is_any(self) -> bool {
        self.0.is_some()
    }
}

/// See the module.
pub struct Device<M: Medium, P: Platform> {
    /// The medium below.
    pub medium: Retry<M>,
    /// Clock, locks and checksum.
    pub platform: P,
    /// Parameters of the volume at open. For fields that can change use
    /// [`superblock_now`](Self::superblock_now).
    pub superblock: Superblock,
    /// The range that could be allocated when the volume was opened: from here, to below
    /// `end_block`.
    first_block: u64,
    end_block: u64,
    variable: RwLock<P::RwLock, Variable>,
    bad_copies: AtomicU32,
    unflushed: Mutex<P::Mutex, Unflushed>,
    written_in_place: AtomicBool,
}

impl<M: Medium, P: Platform> Device<M, P> {
    /// The device of a volume with this superblock.
    pub fn new(medium: M, platform: P, superblock: Superblock) -> Self {
        Device {
            medium: Retry(medium),
            platform,
            first_block: superblock.first_block(),
            end_block: superblock.end_block(),
            variable: RwLock::new(Variable::of(&superblock)),
            superblock,
            bad_copies: AtomicU32::new(0),
            unflushed: Mutex::new(Unflushed::default()),
            written_in_place: AtomicBool::new(false),
        }
    }

    /// The superblock with the present size and label of the volume.
    pub fn superblock_now(&self) -> Superblock {
        let Variable { blocks, reserve_blocks, label, features_read_only } = *self.variable.read();
        Superblock { blocks, reserve_blocks, label, features_read_only, ..self.superblock.clone() }
    }

    /// Number of blocks that files cannot take, at the present size.
    pub fn reserve_blocks(&self) -> u64 {
        self.variable.read().reserve_blocks
    }

    /// The volume has grown, has another label or uses a further feature; `superblock` is the new
    /// one.
    pub fn set_superblock(&self, superblock: &Superblock) {
        *self.variable.write() = Variable::of(superblock);
    }

    /// First half of the uuid, stamped into every node.
    pub fn volume_id(&self) -> u64 {
        self.superblock.volume_id()
    }

    /// CRC-32C of `bytes`.
    pub fn crc(&self, bytes: &[u8]) -> u32 {
        self.platform.crc32c(0, bytes)
    }

    /// Metadata copies found bad; the other copy answered.
    pub fn bad_copies(&self) -> u32 {
        self.bad_copies.load(Ordering::Relaxed)
    }

    /// Whether a run lies wholly in the part of the volume that can be allocated.
    #[inline]
    pub fn contains(&self, run: BlockRun) -> bool {
        // The volume only grows while it is open, so an address that was valid once needs no lock.
        run.count > 0
            && run.start.0 >= self.first_block
            && (is_below(run, self.end_block) || self.contains_by_now(run))
    }

    /// As [`contains`](Self::contains), for a run that does not lie in the volume as it was opened.
    #[cold]
    fn contains_by_now(&self, run: BlockRun) -> bool {
        is_below(run, self.variable.read().blocks - self.superblock.head_blocks())
    }

    pub fn byte_offset(&self, address: BlockAddress) -> u64 {
        address.0 * u64::from(self.superblock.block_size)
    }

    /// Reads whole blocks. It does not check them: the caller has the data checksums.
    pub fn read_blocks(&self, start: BlockAddress, buffer: &mut [u8]) -> Result<()> {
        let count = (buffer.len() as u64).div_ceil(u64::from(self.superblock.block_size));
        if !self.contains(BlockRun { start, count }) {
            return Err(Error::CorruptMetadata {
                address: start,
                reason: "block address out of range",
            });
        }
        Ok(self.medium.read(self.byte_offset(start), buffer)?)
    }

    /// Writes whole blocks of data one after the other.
    pub fn write_blocks(&self, start: BlockAddress, data: &[&[u8]]) -> Result<()> {
        let length: usize = data.iter().map(|piece| piece.len()).sum();
        debug_assert!(self.contains(BlockRun { start, count: 1 }));
        self.medium.write_vectored(self.byte_offset(start), data)?;
        self.unflushed.lock().add(length as u64);
        Ok(())
    }

    /// Writes into blocks of an unwritten extent. The caller publishes them as written afterwards.
    pub fn write_blocks_in_place(&self, start: BlockAddress, data: &[&[u8]]) -> Result<()> {
        self.write_blocks(start, data)?;
        self.note_in_place();
        Ok(())
    }

    /// Notes that blocks were written that were allocated earlier. Call it after the write and
    /// before the extent is published. Opening verifies data that may not have been flushed, and
    /// recognises it by the birth of its extent. Here the extent is older than the data.
    pub fn note_in_place(&self) {
        self.written_in_place.store(true, Ordering::Release);
    }

    /// Whether [`note_in_place`](Self::note_in_place) was called since the last time.
    pub fn test_and_clear_in_place(&self) -> bool {
        self.written_in_place.swap(false, Ordering::AcqRel)
    }

    /// Bytes of data written since the last [`flush`](Self::flush) (saturating).
    pub fn unflushed(&self) -> u32 {
        self.unflushed.lock().bytes()
    }

    /// Makes everything written so far durable.
    pub fn flush(&self) -> Result<()> {
        let written = self.unflushed.lock().written;
        self.medium.flush()?;
        self.unflushed.lock().flushed_to(written);
        Ok(())
    }

    /// Whether the medium is told of freed data before a checkpoint makes it reusable.
    pub fn wants_discards_early(&self) -> bool {
        self.medium.wants_discards() && self.medium.wants_discards_early()
    }

    /// The medium's own upkeep up to now, see [`is_beyond`](Self::is_beyond).
    pub fn upkeep(&self) -> Upkeep {
        Upkeep(self.medium.upkeep())
    }

    /// Whether the medium has done more than `bytes` of its own upkeep since.
    pub fn is_beyond(&self, since: Upkeep, bytes: u64) -> bool {
        let now = self.medium.upkeep();
        since.0.zip(now).is_some_and(|(since, now)| now.saturating_sub(since) > bytes)
    }

    /// A copy of metadata was bad, and another one answered for it.
    pub fn note_bad_copy(&self) {
        self.bad_copies.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a run ends at or before this block.
#[inline]
fn is_below(run: BlockRun, end: u64) -> bool {
    run.start.0 < end && run.count <= end - run.start.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_during_two_flushes_at_once_stay_unflushed() {
        let mut unflushed = Unflushed::default();
        unflushed.add(100);
        let (first, second) = (unflushed.written, unflushed.written);
        unflushed.flushed_to(first);
        unflushed.add(50);
        unflushed.flushed_to(second);
        assert_eq!(unflushed.bytes(), 50);
        unflushed.flushed_to(unflushed.written);
        assert_eq!(unflushed.bytes(), 0);
    }
}
