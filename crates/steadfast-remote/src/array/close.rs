//! Closing: a client records that it has no request in flight, so that the next client need not
//! wait.
//!
//! Requests of a dead client may arrive at a server after the next client has opened the array. So
//! a client that opens an unclosed array for writing waits before it reads the servers
//! ([`quiet`](super::open)). Whatever arrives during the wait is then like earlier contents.
//!
//! # Invariants
//! - A client that opens an array records that on the servers ([`announce`](Array::announce))
//!   before any other write. So `closed` is never set while a request of it may be in flight.
//! - `closed` is recorded only after every request was answered, and nothing is written after it.

use super::members::State;
use super::{Array, ArrayError, Fleet, Superblock};
use crate::sabotage::{Sabotage, planted};

impl<F: Fleet> Array<F> {
    /// Flushes accepted writes and records on the servers that the array is closed. Nothing is
    /// written to them afterwards, whatever the result. If a server was slow or away, the array is
    /// not recorded as closed: requests to that server may be in flight.
    ///
    /// # Errors
    /// As a flush; [`ArrayError::ReadOnly`] for a read-only array.
    pub fn close(&self) -> Result<(), ArrayError> {
        let mut log = self.log_to_write()?;
        let closed = self.flush_held(&mut log).and_then(|()| {
            {
                let mut members = self.members.write();
                if members.unanswered {
                    return Ok(());
                }
                members.superblock.closed = true;
            }
            self.publish()
        });
        self.members.write().closed = true;
        closed
    }

    /// Records on the servers that the array is open, with the member states that were found.
    /// Nothing depends on this epoch, so no witness notes it.
    ///
    /// A previous client that died unseen may have written the same epoch, and its write may arrive
    /// later. The next epoch, which is the decisive one, has another place.
    pub(super) fn announce(&self, states: &[State]) -> Result<(), ArrayError> {
        if planted(Sabotage::ClosedStands) {
            return Ok(());
        }
        let _log = self.log_to_write()?;
        let (superblock, seats) = {
            let mut members = self.members.write();
            members.superblock.epoch += 1 + std::mem::take(&mut members.skip);
            members.superblock.previous = members.complete;
            let superblock = Superblock { states: states.to_vec(), ..members.superblock.clone() };
            (superblock, members.writable_seats())
        };
        let refused = self.put_superblock(&superblock, &seats);
        let mut members = self.members.write();
        members.strike(&refused);
        members.failed = members.good() < self.shape.data;
        if members.failed { Err(ArrayError::TooManyLost) } else { Ok(()) }
    }
}
