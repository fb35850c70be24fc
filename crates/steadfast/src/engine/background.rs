//! Work that nobody waits for: the timer, the device I/O of checkpoints, discards behind them,
//! reclaiming deleted files and snapshots.
//!
//! A turn is one bounded step, so that whoever needs the medium or a lock meanwhile waits for no
//! more than that. What is not bounded by the caller is a transaction point of the timer that is
//! too much for the log, and a unit of deleting a snapshot: each is a checkpoint as a whole.

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

    /// Tells the medium of some of the blocks that checkpoints have made free, up to so many bytes,
    /// or until it has done as much of its own. `false`: there were none.
    pub(super) fn discard_step(&self, bytes: u64) -> bool {
        let block_size = u64::from(self.store.superblock.block_size);
        let mut left = (bytes / block_size).max(1);
        // Held throughout: nobody may be given one of them meanwhile.
        let mut working = self.working.lock();
        let mut any = false;
        let upkeep = self.upkeep();
        while let Some(run) = working.space.next_discard(left) {
            // Advice only: where it fails nothing is lost.
            let _ = self.store.medium.discard(run.start.0 * block_size, run.count * block_size);
            left -= run.count;
            any = true;
            if left == 0 || self.is_beyond(upkeep, bytes) {
                break;
            }
        }
        any
    }

    /// Whether the medium is told of freed data before a checkpoint makes it free.
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

    /// Deleted files may be waiting to be reclaimed: the next background step looks.
    pub(crate) fn wake_reclaim(&self) {
        self.orphans.store(true, Ordering::Release);
    }
}
