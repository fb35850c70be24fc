//! Work that nobody waits for: the timer, the device I/O of checkpoints, reclaiming deleted files and snapshots.

use core::sync::atomic::Ordering;

use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// One bounded step of background work. Returns `true` while there is more to do at once. A host calls it from a
    /// thread of its own at least every 100 ms; where there are no threads, between operations.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn background(&self) -> Result<bool> {
        let idle =
            self.read_only || self.closed.load(Ordering::Acquire) || self.failed.load(Ordering::Acquire);
        if idle {
            return Ok(false);
        }
        self.finish_checkpoint()?;
        if self.timer_due() {
            self.transact_now()?;
        }
        let deleting = self.delete_in_background(self.mask().contains(TransactionMask::TIMER))?;
        if !self.orphans.swap(false, Ordering::AcqRel) {
            return Ok(deleting);
        }
        let more = self.reclaim_step()?;
        if more {
            self.wake_reclaim();
        }
        Ok(more || deleting)
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
