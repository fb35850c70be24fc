//! The platform of one task without interrupts. The clock stands still, so that every run is the
//! same.

use steadfast::{Platform, Timestamp};
use steadfast_bare::UncontendedLock;

/// Clock and locks.
#[derive(Clone, Copy)]
pub struct Board;

impl Platform for Board {
    type Mutex = UncontendedLock;
    type RwLock = UncontendedLock;

    fn now(&self) -> Timestamp {
        Timestamp { seconds: 1_000_000, nanoseconds: 0 }
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }
}
