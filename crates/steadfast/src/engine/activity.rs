//! What a volume is doing: counts since open, and the fill level of everything with a bound.
//!
//! It is cheap to read often. It takes the writer's lock for a moment and never the commit lock, so
//! a monitor does not wait for a flush.

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::Result;
use crate::platform::Platform;
pub use crate::tree::CacheUse;

/// Counts since open, under a lock of their own.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Transaction points.
    pub points: u64,
    /// Checkpoints that have become durable.
    pub checkpoints: u64,
}

/// The blocks of a volume by use. The fields add up to all blocks of the volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceUse {
    /// Superblocks and metaroots, both copies.
    pub fixed: u64,
    /// The intent log.
    pub log: u64,
    /// Tree nodes of the working state, all copies.
    pub metadata: u64,
    /// Everything else that is in use: data of files.
    pub data: u64,
    /// Held by snapshots only: the live tree has released them.
    pub snapshots: u64,
    /// Freed, and reusable after the next durable checkpoint.
    pub almost_free: u64,
    /// Unpublished: allocated for operations in progress, and part of no state yet.
    pub unpublished: u64,
    /// Can be allocated now.
    pub free: u64,
}

impl SpaceUse {
    /// All blocks of the volume.
    pub fn total(&self) -> u64 {
        self.fixed
            + self.log
            + self.metadata
            + self.data
            + self.snapshots
            + self.almost_free
            + self.unpublished
            + self.free
    }
}

/// See the module. Counts are since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Block size, bytes.
    pub block_size: u32,
    /// Tree node size, bytes.
    pub node_size: u32,
    /// Transaction points.
    pub transaction_points: u64,
    /// Checkpoints that have become durable.
    pub checkpoints: u64,
    /// Size of the intent log, bytes.
    pub log_size: u64,
    /// Bytes of the intent log that the next checkpoint frees.
    pub log_used: u64,
    /// Keys that have changed since the last transaction point; the next log record holds them.
    /// Also 0 when they exceed a record, see `pending_overflow`.
    pub pending_keys: u64,
    /// Bytes of that record.
    pub pending_bytes: u64,
    /// The changes do not fit a record: the next transaction point is a checkpoint.
    pub pending_overflow: bool,
    /// Bytes of data written to the medium and not yet flushed (reported up to 4 GiB).
    pub unflushed_bytes: u64,
    /// The cache of tree nodes.
    pub cache: CacheUse,
    /// Inodes in use.
    pub inodes: u64,
    /// Blocks by use.
    pub space: SpaceUse,
    /// Blocks that files cannot take, so that deleting and committing work on a full volume. They
    /// are part of [`SpaceUse::free`] as far as it suffices.
    pub reserve_blocks: u64,
    /// Metadata reads answered from the second copy.
    pub repaired_reads: u64,
    /// Rollbacks.
    pub rollbacks: u64,
    /// The volume made itself read-only.
    pub poisoned: bool,
}

impl Activity {
    /// Bytes accepted and not yet durable in place: data not flushed, and tree nodes not written
    /// (each copy once).
    pub fn dirty_bytes(&self) -> u64 {
        self.unflushed_bytes + self.cache.dirty as u64 * u64::from(self.node_size)
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// What the volume is doing.
    pub(crate) fn activity(&self) -> Result<Activity> {
        self.lifecycle.check_not_closed()?;
        self.replay_overlay()?;
        let superblock = &self.store.device.superblock_now();
        let block_size = u64::from(superblock.block_size);
        let (transaction_points, checkpoints) = {
            let tally = self.tally.lock();
            (tally.points, tally.checkpoints)
        };
        let working = self.working.lock();
        let space = &working.space;
        let node_cost = superblock.node_cost();
        // A damaged image may count more snapshot blocks than used blocks.
        let snapshots = working.snapshots.blocks.min(space.used());
        let metadata = working.nodes.saturating_mul(node_cost).min(space.used() - snapshots);
        Ok(Activity {
            block_size: superblock.block_size,
            node_size: superblock.node_size,
            transaction_points,
            checkpoints,
            log_size: superblock.log.count * block_size,
            log_used: working.log.used() * block_size,
            pending_keys: working.pending.len() as u64,
            pending_bytes: working.pending.bytes() as u64,
            pending_overflow: working.pending.overflow(),
            unflushed_bytes: u64::from(self.store.device.unflushed()),
            cache: self.store.cache_use(),
            inodes: working.inodes,
            space: SpaceUse {
                fixed: 2 * superblock.head_blocks(),
                log: superblock.log.count,
                metadata,
                data: space.used() - snapshots - metadata,
                snapshots,
                almost_free: space.almost_free(),
                unpublished: space.unpublished(),
                free: space.available(),
            },
            reserve_blocks: superblock.reserve_blocks,
            repaired_reads: u64::from(self.store.device.bad_copies()),
            rollbacks: u64::from(self.incarnation.load(Ordering::Acquire)),
            poisoned: self.lifecycle.has_failed(),
        })
    }
}
