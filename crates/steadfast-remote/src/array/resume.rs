//! Continues after an epoch could not be noted.
//!
//! The witness may be away for a long time, such as etcd for longer than its wait limit. Then the
//! array fails: the servers have the epoch, but nothing may depend on it. All accepted data is
//! still there, so the array continues once the witness takes the epoch after all. It does not
//! continue if another client has taken the array over meanwhile.

use super::members::State;
use super::{Array, ArrayError, Fleet};

impl<F: Fleet> Array<F> {
    /// Whether the array has failed only because its epoch could not be noted.
    pub fn awaits_witness(&self) -> bool {
        self.members.read().unnoted.is_some()
    }

    /// Notes the pending epoch and continues; the tender of the array calls it. Operations that
    /// failed meanwhile may have been carried out, like any write without an answer.
    ///
    /// # Errors
    /// The witness refuses again, or another client has taken over. Also the errors of publishing
    /// the following epoch.
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
        // The rebuild of these members has been told that it failed.
        let abandoned: Vec<usize> = self.members.read().in_state(State::Rebuilding).collect();
        self.lose(&abandoned)
    }
}
