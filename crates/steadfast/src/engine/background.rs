//! Background work: the timer, the device I/O of checkpoints, the discards after them, and
//! reclaiming deleted files and snapshots.
//!
//! A turn is one bounded step, so an operation that needs the medium or a lock waits for one step
//! at most. Two kinds of step have no bound, because each is a whole checkpoint. One is a
//! transaction point of the timer that is too large for the log. The other is a unit of deleting a
//! snapshot.

use steadfast_media::Medium;
use steadfast_media::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::engine::Engine;
use crate::error::Result;
use crate::mask::TransactionMask;
use crate::platform::Platform;

/// What one step of background work has come to.
pub(crate) enum Turn {
    /// The volume takes no changes.
    Stopped,
    /// The medium was written to; the rest of the turn belongs to others.
    Busy,
    /// Nothing was in the way of more work.
    Done {
        /// The engine has more to do.
        more: bool,
    },
}

/// What waits for background work.
pub(crate) struct BackgroundWork {
    /// Orphans may wait to be reclaimed.
    orphans: AtomicBool,
    /// Commit records since background work last ran.
    commits: AtomicU32,
    /// Deleted snapshots may wait for their blocks to be freed.
    pub(super) snapshots: AtomicBool,
    /// Deleted snapshots wait for a transaction point.
    pub(super) snapshots_starve: AtomicBool,
}

impl BackgroundWork {
    /// A power cut may have left anything behind.
    pub(super) fn after_opening() -> Self {
        BackgroundWork {
            orphans: AtomicBool::new(true),
            commits: AtomicU32::new(0),
            snapshots: AtomicBool::new(true),
            snapshots_starve: AtomicBool::new(false),
        }
    }

    /// Counts a commit record. When the count wraps to 0, it seems for one step that no record
    /// was written since the last one.
    pub(super) fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Commit records since background work last ran.
    pub(super) fn commits(&self) -> u32 {
        self.commits.load(Ordering::Acquire)
    }

    fn attend(&self) {
        self.commits.store(0, Ordering::Release);
    }

    /// Deleted files may be waiting to be reclaimed: the next background step checks.
    pub fn wake_reclaim(&self) {
        self.orphans.store(true, Ordering::Release);
    }

    /// Whether deleted files may be waiting to be reclaimed. They are no longer announced then.
    pub fn take_reclaim(&self) -> bool {
        self.orphans.swap(false, Ordering::AcqRel)
    }

    /// Tells background work that there may be a snapshot to delete.
    pub(super) fn wake_snapshots(&self) {
        self.snapshots.store(true, Ordering::Release);
    }

    /// Whether a snapshot may be waiting for its blocks to be freed.
    pub(super) fn snapshots_wait(&self) -> bool {
        self.snapshots.load(Ordering::Acquire)
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// One bounded step of background work: the timer, a step of a checkpoint of up to `bytes`,
    /// discards, deleting snapshots.
    pub(crate) fn background_step(&self, bytes: u64) -> Result<Turn> {
        if !self.may_repair() {
            return Ok(Turn::Stopped);
        }
        self.background.attend();
        self.replay_overlay()?;
        let writing = self.checkpoint_step(bytes)?;
        if self.timer_due() {
            self.commit_for_event()?;
        }
        if writing || self.discard_step(bytes) {
            return Ok(Turn::Busy);
        }
        let more =
            self.delete_in_background(self.parameters.mask().contains(TransactionMask::TIMER))?;
        Ok(Turn::Done { more })
    }

    /// Discards some of the blocks that checkpoints have freed: up to `bytes`, or until the medium
    /// has done as much upkeep of its own. Returns `false` if there were none.
    pub(super) fn discard_step(&self, bytes: u64) -> bool {
        let block_size = u64::from(self.store.device.superblock.block_size);
        let mut left = (bytes / block_size).max(1);
        // Held throughout: these blocks must not be allocated meanwhile.
        let mut working = self.working.lock();
        let mut any = false;
        let upkeep = self.store.device.upkeep();
        while let Some(run) = working.space.next_discard(left) {
            // A discard is advice: its failure loses nothing.
            let _ =
                self.store.device.medium.discard(run.start.0 * block_size, run.count * block_size);
            left -= run.count;
            any = true;
            if left == 0 || self.store.device.is_beyond(upkeep, bytes) {
                break;
            }
        }
        any
    }

    fn timer_due(&self) -> bool {
        if !self.active_mask().contains(TransactionMask::TIMER) {
            return false;
        }
        let sequence = self.working.lock().sequence;
        let commit = self.commit.lock();
        let elapsed = self.store.device.platform.monotonic_ms().saturating_sub(commit.last_ms);
        commit.committed < sequence && elapsed >= u64::from(self.parameters.timer_ms())
    }
}
