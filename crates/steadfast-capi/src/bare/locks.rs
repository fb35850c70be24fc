//! Locks that no task waits for: the lock of the library lets one task in at a time, and a task
//! leaves it only after it has released every lock of the core.

use core::cell::Cell;

use lock_api::{RawMutex, RawRwLock};

/// How often the lock is held; [`WRITER`] is exclusive.
pub struct Counting(Cell<usize>);

const WRITER: usize = usize::MAX;

// SAFETY: only the task that has the lock of the library reads or changes the value.
unsafe impl Send for Counting {}
// SAFETY: as for `Send`.
unsafe impl Sync for Counting {}

impl Counting {
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
unsafe impl RawMutex for Counting {
    const INIT: Counting = Counting(Cell::new(0));
    type Guard = ();

    // A lock that is held here would be held for ever, so the reaction to internal errors follows.
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
unsafe impl RawRwLock for Counting {
    const INIT: Counting = Counting(Cell::new(0));
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
