//! Closing: the client says that nothing of his is under way, so that the next one need not wait
//! for it.
//!
//! What a client that died had sent may arrive at a server after the next one has opened the array.
//! So whoever opens one for writing that nobody has closed lets some time pass before he looks
//! ([`quiet`]): everything that arrives late is then like something that was there before.
//!
//! # Invariants
//! - Who has opened an array says so on the servers ([`announce`](Array::announce)) before he
//!   writes anything else, so `closed` never stands while something of his may be under way.
//! - `closed` is said only after everything that was asked for was answered, and nothing is written
//!   after it.

use super::members::State;
use super::open::{Found, look};
use super::{Array, ArrayError, ArrayOptions, Fleet, Superblock};
use crate::sabotage::{Sabotage, planted};

impl<F: Fleet> Array<F> {
    /// Flushes what was taken in and says on the servers that the array is closed. Nothing is
    /// written to them from here on, whatever comes of this. Where a server had been slow or away
    /// the array is not said to be closed: what was sent to it may be under way.
    ///
    /// # Errors
    /// As a flush; and who only looks has nothing to close.
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

    /// Says on the servers that the array is open, with everybody in the state that was found:
    /// nothing depends on this, so nobody notes it. Whoever opened the array before, and died
    /// before anybody had seen that, may have written this epoch, too, and his may arrive later:
    /// the next one, which says what counts, is in another place.
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

/// What is on the servers once nothing of a client that has died is under way any more. `open` is
/// whether somebody may have died who had it open.
pub(super) fn quiet<F: Fleet>(
    fleet: &F,
    options: &ArrayOptions,
    found: Found,
    open: impl Fn(&Found) -> bool,
) -> Found {
    if options.read_only || options.late_ms == 0 || !open(&found) || planted(Sabotage::LateIgnored)
    {
        return found;
    }
    fleet.pause(options.late_ms);
    look(fleet, options.patience_ms)
}
