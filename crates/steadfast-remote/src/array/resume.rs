//! Going on after an epoch could not be noted.
//!
//! Who keeps the witness may be away for a long time (etcd, for longer than anybody waits). Then
//! the array fails: the servers have the epoch, but nothing may depend on it. Everything that was
//! taken in is still there, so once the witness takes the epoch after all the array goes on. It
//! does not where another client has taken the array over meanwhile.

use super::members::State;
use super::{Array, ArrayError, Fleet};

impl<F: Fleet> Array<F> {
    /// Whether the array has failed for no other reason than that its epoch could not be noted.
    pub fn awaits_witness(&self) -> bool {
        self.members.read().unnoted.is_some()
    }

    /// Has the epoch noted that could not be, and goes on: for whoever looks after the array. What
    /// had failed meanwhile may have been carried out, like any write without an answer.
    ///
    /// # Errors
    /// The witness refuses again, or another client has taken over; and those of the epoch that
    /// follows.
    pub fn resume(&self) -> Result<(), ArrayError> {
        let _log = self.log.lock();
        if !self.awaits_witness() {
            return Ok(());
        }
        if self.fleet.fenced() {
            return Err(ArrayError::Fenced);
        }
        let order = self.members.read().superblock.order();
        self.witness(order)?;
        {
            let mut members = self.members.write();
            (members.failed, members.unnoted) = (false, None);
        }
        // Whoever was rebuilding them has been told that it failed.
        let abandoned: Vec<usize> = self.members.read().in_state(State::Rebuilding).collect();
        self.lose(&abandoned)
    }
}
