//! Storing a changed mask and timer by a checkpoint of their own.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Changes mask and timer, and stores them where that publishes no change.
    pub(crate) fn change_parameters(&self, mask: TransactionMask, timer_ms: u32) -> Result<bool> {
        // Checked first: what is refused changes neither.
        if timer_ms == 0 {
            return Err(Error::InvalidArgument("the timer needs at least one millisecond"));
        }
        // Values that already match are not set: a set would write, and replay the log into the
        // tree now.
        if (mask, timer_ms) == (self.parameters.mask(), self.parameters.timer_ms())
            && !self.working.lock().parameters_changed
        {
            return Ok(true);
        }
        let at_any_moment = self.parameters.mask().union(mask).contains(TransactionMask::TIMER);
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
            if self.lifecycle.is_held() || !(with_changes || working.pending.is_empty()) {
                return Ok(false);
            }
            self.freeze(&mut working)?;
            working.sequence
        };
        self.commit_frozen(&mut commit, sequence)?;
        Ok(true)
    }
}
