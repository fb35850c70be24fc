//! Background work: the timer, the device I/O of checkpoints, the discards after them, and
//! reclaiming deleted files and snapshots.
//!
//! A turn is one bounded step, so an operation that needs the medium or a lock waits for one step
//! at most. Two kinds of step are not bounded by the caller, because each is a whole checkpoint: a
//! transaction point of the timer that is too large for the log, and a unit of deleting a snapshot.

use core::sync::atomic::Ordering;

use steadfast_media::Medium;

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

impl<M: Medium, P: Platform> Engine<M, P> {
    /// One bounded step of what the engine has to do in the background: the timer, a step of a
    /// checkpoint of up to `bytes`, discards, deleting snapshots.
    pub(crate) fn background_step(&self, bytes: u64) -> Result<Turn> {
        let idle = self.read_only
            || self.closed.load(Ordering::Acquire)
            || self.failed.load(Ordering::Acquire);
        if idle {
            return Ok(Turn::Stopped);
        }
        self.marks_unattended.store(0, Ordering::Release);
        self.catch_up()?;
        let writing = self.checkpoint_step(bytes)?;
        if self.timer_due() {
            self.transact_now()?;
        }
        if writing || self.discard_step(bytes) {
            return Ok(Turn::Busy);
        }
        let more = self.delete_in_background(self.mask().contains(TransactionMask::TIMER))?;
        Ok(Turn::Done { more })
    }

    /// Whether deleted files may be waiting to be reclaimed. They are no longer announced then.
    pub(crate) fn take_reclaim(&self) -> bool {
        self.orphans.swap(false, Ordering::AcqRel)
    }

    /// Discards some of the blocks that checkpoints have freed: up to `bytes`, or until the medium
    /// has done as much upkeep of its own. Returns `false` if there were none.
    pub(super) fn discard_step(&self, bytes: u64) -> bool {
        let block_size = u64::from(self.store.superblock.block_size);
        let mut left = (bytes / block_size).max(1);
        // Held throughout: these blocks must not be reserved meanwhile.
        let mut working = self.working.lock();
        let mut any = false;
        let upkeep = self.upkeep();
        while let Some(run) = working.space.next_discard(left) {
            // A discard is advice: its failure loses nothing.
            let _ = self.store.medium.discard(run.start.0 * block_size, run.count * block_size);
            left -= run.count;
            any = true;
            if left == 0 || self.is_beyond(upkeep, bytes) {
                break;
            }
        }
        any
    }

    /// Whether the medium is told of freed data before a checkpoint makes it reusable.
    pub(super) fn wants_discards_early(&self) -> bool {
        self.store.medium.wants_discards() && self.store.medium.wants_discards_early()
    }

    fn timer_due(&self) -> bool {
        if !self.active_mask().contains(TransactionMask::TIMER) {
            return false;
        }
        let sequence = self.working.lock().sequence;
        let commit = self.commit.lock();
        let elapsed = self.store.platform.monotonic_ms().saturating_sub(commit.last_ms);
        commit.durable < sequence && elapsed >= u64::from(self.timer_ms())
    }

    /// Deleted files may be waiting to be reclaimed: the next background step checks.
    pub(crate) fn wake_reclaim(&self) {
        self.orphans.store(true, Ordering::Release);
    }
}
