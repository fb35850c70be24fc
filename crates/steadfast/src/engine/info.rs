//! What a volume reports about itself.

use alloc::string::String;

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::engine::budget::Pieces;
use crate::engine::keyspace::SpaceClass;
use crate::error::Result;
use crate::format::Superblock;
use crate::mask::TransactionMask;
use crate::platform::Platform;

/// Parameters of a volume (superblock) and its present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Format version.
    pub version: u32,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Label for people.
    pub label: String,
    /// Size of the volume, bytes.
    pub size: u64,
    /// Block size, bytes.
    pub block_size: u32,
    /// Tree node size, bytes.
    pub node_size: u32,
    /// Copies of each metadata block.
    pub metadata_copies: u8,
    /// Size of the intent log, bytes; 0: every transaction point is a checkpoint.
    pub log_size: u64,
    /// Compatible features in use.
    pub features_compatible: u64,
    /// Read-only-compatible features in use.
    pub features_read_only: u64,
    /// Incompatible features in use.
    pub features_incompatible: u64,
    /// Generation of the newest durable checkpoint.
    pub generation: u64,
    /// Records that opening found in the log; 0 after a clean unmount.
    pub replayed_records: u64,
    /// Bytes of the log in use since the last checkpoint.
    pub log_used: u64,
    /// Transaction points since the volume was opened.
    pub transaction_points: u64,
    /// Accepted batches that a power cut now would lose.
    pub uncommitted: u64,
    /// Metadata reads answered from the second copy since the volume was opened.
    pub repaired_reads: u64,
    /// One superblock copy was found damaged at open.
    pub superblock_damaged: bool,
    /// The live transaction mask.
    pub mask: TransactionMask,
    /// Interval of the transaction timer, milliseconds.
    pub timer_ms: u32,
    /// Opened read-only.
    pub read_only: bool,
    /// Why the volume made itself read-only, if it did.
    pub poisoned: Option<&'static str>,
    /// Rollbacks since open; inode numbers from before a rollback may no longer exist.
    pub incarnation: u64,
}

/// Space and counts of a volume (statfs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Block size, bytes.
    pub block_size: u32,
    /// Blocks of the volume that files and metadata can use.
    pub blocks: u64,
    /// Blocks not in use, including those that become reusable at the next checkpoint.
    pub blocks_free: u64,
    /// Data blocks that one new file can still take. These are the free blocks without the reserve,
    /// the needs of a checkpoint, and the nodes that map the data.
    pub blocks_available: u64,
    /// Blocks in use that only snapshots hold.
    pub blocks_snapshots: u64,
    /// Freed blocks that become reusable at the next durable checkpoint.
    pub blocks_almost_free: u64,
    /// Unpublished blocks of writes in progress, part of no file yet; they count as free.
    pub blocks_unpublished: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Longest name, bytes.
    pub name_max: u32,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Parameters and state.
    pub(crate) fn info(&self) -> VolumeInfo {
        let committed = self.commit.lock().committed;
        let points = self.tally.lock().points;
        let (generation, log_used, sequence) = {
            let working = self.working.lock();
            (working.checkpointed.generation.0, working.log.used(), working.sequence)
        };
        let superblock = &self.store.device.superblock_now();
        let label = superblock.label.split(|byte| *byte == 0).next().unwrap_or_default();
        VolumeInfo {
            version: superblock.version,
            uuid: superblock.known_uuid(),
            label: String::from_utf8_lossy(label).into_owned(),
            size: superblock.byte_size(),
            block_size: superblock.block_size,
            node_size: superblock.node_size,
            metadata_copies: superblock.metadata_copies,
            log_size: superblock.log.count * u64::from(superblock.block_size),
            features_compatible: superblock.features_compatible,
            features_read_only: superblock.features_read_only,
            features_incompatible: superblock.features_incompatible,
            generation,
            replayed_records: u64::from(self.replayed_records),
            log_used: log_used * u64::from(superblock.block_size),
            transaction_points: points,
            uncommitted: sequence.saturating_sub(committed),
            repaired_reads: u64::from(self.store.device.bad_copies()),
            superblock_damaged: self.superblock_damaged,
            mask: self.parameters.mask(),
            timer_ms: self.parameters.timer_ms(),
            read_only: self.read_only,
            poisoned: self.lifecycle.failure(),
            incarnation: u64::from(self.incarnation.load(Ordering::Acquire)),
        }
    }

    /// Changes the label in the superblock. No transaction point is needed, and none is set.
    pub(crate) fn set_label(&self, label: &str) -> Result<()> {
        // All that writes a superblock holds this lock.
        let _commit = self.commit.lock();
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.check_other_writer(true)?;
        let (store, old) = (&self.store, self.store.device.superblock_now());
        let mut new = old.clone();
        new.set_label(label)?;
        new.replace(&old, &store.device.medium, &store.device.platform)?;
        store.device.set_superblock(&new);
        Ok(())
    }

    /// Notes in the superblock that the volume uses a read-only-compatible feature. It is durable
    /// when this returns. No transaction point is needed, and none is set.
    pub(crate) fn use_feature(&self, feature: u64) -> Result<()> {
        let used = |superblock: &Superblock| superblock.features_read_only & feature == feature;
        self.ensure_writable()?;
        if used(&self.store.device.superblock_now()) {
            return Ok(());
        }
        let _commit = self.commit.lock();
        self.ensure_writable()?;
        let (store, old) = (&self.store, self.store.device.superblock_now());
        if used(&old) {
            return Ok(());
        }
        self.check_other_writer(true)?;
        let mut new = old.clone();
        new.features_read_only |= feature;
        new.replace(&old, &store.device.medium, &store.device.platform)?;
        store.device.set_superblock(&new);
        Ok(())
    }

    /// The numbers of the last accepted batch and of the last committed one.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let accepted = {
            let working = self.working.lock();
            // Without the commit lock, which is held while a record is written.
            if let Some(changed) = &working.changed {
                return (working.sequence, changed.durable_sequence());
            }
            working.sequence
        };
        (accepted, self.commit.lock().committed)
    }

    /// Space and counts.
    pub(crate) fn statistics(&self) -> Result<Statistics> {
        self.lifecycle.check_not_closed()?;
        self.lifecycle.check_shown()?;
        self.replay_overlay()?;
        let superblock = &self.store.device.superblock_now();
        let working = self.working.lock();
        let blocks = superblock.usable_blocks();
        let free = blocks.saturating_sub(working.space.used());
        Ok(Statistics {
            block_size: superblock.block_size,
            blocks,
            blocks_free: free,
            blocks_available: self
                .budget()
                .data_budget(&working, SpaceClass::Normal, Pieces::LONG)
                .min(free),
            blocks_snapshots: working.snapshots.blocks,
            blocks_almost_free: working.space.almost_free(),
            blocks_unpublished: working.unpublished_data(&self.store.device.superblock),
            inodes: working.inodes,
            name_max: self.store.device.superblock.name_max() as u32,
        })
    }
}
