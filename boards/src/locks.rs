//! The platform of one task without interrupts: locks that no task waits for, and a clock that the
//! program sets.

use core::cell::Cell;

use lock_api::{RawMutex, RawRwLock};
use steadfast::{Platform, Timestamp};

/// Clock and locks. The clock stands still, so that every run is the same.
#[derive(Clone, Copy)]
pub struct Board;

impl Platform for Board {
    type Mutex = Lock;
    type RwLock = Lock;

    fn now(&self) -> Timestamp {
        Timestamp { seconds: 1_000_000, nanoseconds: 0 }
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }
}

/// How often the lock is held; [`WRITER`] is exclusive.
pub struct Lock(Cell<usize>);

const WRITER: usize = usize::MAX;

// SAFETY: there is one task.
unsafe impl Send for Lock {}
// SAFETY: there is one task.
unsafe impl Sync for Lock {}

impl Lock {
    fn exclusive(&self) -> bool {
        self.0.get() == 0 && self.0.replace(WRITER) == 0
    }

    fn shared(&self) -> bool {
        let held = self.0.get();
        if held < WRITER - 1 {
            self.0.set(held + 1);
        }
        held < WRITER - 1
    }
}

// SAFETY: the value is WRITER while the lock is held, and then no other task gets it.
unsafe impl RawMutex for Lock {
    const INIT: Lock = Lock(Cell::new(0));
    type Guard = ();

    fn lock(&self) {
        assert!(self.exclusive());
    }

    fn try_lock(&self) -> Option<()> {
        self.exclusive().then_some(())
    }

    // SAFETY: the caller holds the lock.
    unsafe fn unlock(&self, _guard: ()) {
        self.0.set(0);
    }

    fn is_locked(&self) -> bool {
        self.0.get() != 0
    }
}

// SAFETY: as above; otherwise the value is the number of readers.
unsafe impl RawRwLock for Lock {
    const INIT: Lock = Lock(Cell::new(0));
    type SharedGuard = ();
    type ExclusiveGuard = ();

    fn lock_shared(&self) {
        assert!(self.shared());
    }

    fn try_lock_shared(&self) -> Option<()> {
        self.shared().then_some(())
    }

    // SAFETY: the caller is one of the readers.
    unsafe fn unlock_shared(&self, _guard: ()) {
        self.0.set(self.0.get() - 1);
    }

    fn lock_exclusive(&self) {
        assert!(self.exclusive());
    }

    fn try_lock_exclusive(&self) -> Option<()> {
        self.exclusive().then_some(())
    }

    // SAFETY: the caller is the writer.
    unsafe fn unlock_exclusive(&self, _guard: ()) {
        self.0.set(0);
    }

    fn is_locked(&self) -> bool {
        self.0.get() != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.get() == WRITER
    }
}
