//! The transaction mask and the interval of the transaction timer. A change holds at once, and is
//! stored by the next checkpoint.

use core::sync::atomic::Ordering;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// The live transaction mask.
    pub(crate) fn mask(&self) -> TransactionMask {
        TransactionMask(self.mask.load(Ordering::Acquire))
    }

    /// Changes the live mask at once, and the stored mask at the next transaction point.
    pub(crate) fn set_mask(&self, mask: TransactionMask) -> Result<()> {
        self.ensure_writable()?;
        self.check_not_held()?;
        if !TransactionMask::ALL.contains(mask) {
            return Err(Error::InvalidArgument("transaction mask has unknown bits"));
        }
        self.mask.store(mask.0, Ordering::Release);
        self.working.lock().parameters_changed = true;
        Ok(())
    }

    /// Interval of the transaction timer, milliseconds.
    pub(crate) fn timer_ms(&self) -> u32 {
        self.timer_ms.load(Ordering::Acquire)
    }

    /// Changes the interval of the transaction timer at once, and the stored interval at the next
    /// transaction point.
    pub(crate) fn set_timer_ms(&self, milliseconds: u32) -> Result<()> {
        self.ensure_writable()?;
        self.check_not_held()?;
        if milliseconds == 0 {
            return Err(Error::InvalidArgument("the timer needs at least one millisecond"));
        }
        self.timer_ms.store(milliseconds, Ordering::Release);
        self.working.lock().parameters_changed = true;
        Ok(())
    }

    /// Changes mask and timer, and stores them where that publishes no change.
    pub(crate) fn change_parameters(&self, mask: TransactionMask, timer_ms: u32) -> Result<bool> {
        // Checked first: what is refused changes neither.
        if timer_ms == 0 {
            return Err(Error::InvalidArgument("the timer needs at least one millisecond"));
        }
        // Values that already match are not set: a set would write, and replay the log into the
        // tree now.
        if (mask, timer_ms) == (self.mask(), self.timer_ms())
            && !self.working.lock().parameters_changed
        {
            return Ok(true);
        }
        let at_any_moment = self.mask().union(mask).contains(TransactionMask::TIMER);
        self.set_mask(mask)?;
        self.set_timer_ms(timer_ms)?;
        self.keep_parameters(at_any_moment)
    }

    /// Makes a changed mask and timer durable by a checkpoint. With `with_changes`, other changes
    /// since the last transaction point become durable too. Without it, and with such changes
    /// present, nothing is done and the result is `false`.
    fn keep_parameters(&self, with_changes: bool) -> Result<bool> {
        self.ensure_writable()?;
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        self.finish_checkpoint()?;
        let sequence = {
            let mut working = self.working.lock();
            if !working.parameters_changed {
                return Ok(true);
            }
            if self.is_held() || !(with_changes || working.pending.is_empty()) {
                return Ok(false);
            }
            self.freeze(&mut working)?;
            working.sequence
        };
        self.commit_frozen(&mut commit, sequence)?;
        Ok(true)
    }
}
