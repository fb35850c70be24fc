//! The lock of the core where one task at a time is inside the core, and leaves it only after it
//! has released every lock.

use core::cell::Cell;

use lock_api::{RawMutex, RawRwLock};

/// A mutex and a lock for readers and a writer, for which no task waits. It has the number of its
/// holders; [`WRITER`] is exclusive.
pub struct UncontendedLock(Cell<usize>);

const WRITER: usize = usize::MAX;

// SAFETY: only the task that is inside the core reads or changes the value.
unsafe impl Send for UncontendedLock {}
// SAFETY: as for `Send`.
unsafe impl Sync for UncontendedLock {}

impl UncontendedLock {
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
unsafe impl RawMutex for UncontendedLock {
    const INIT: UncontendedLock = UncontendedLock(Cell::new(0));
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
unsafe impl RawRwLock for UncontendedLock {
    const INIT: UncontendedLock = UncontendedLock(Cell::new(0));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_excludes_all_and_readers_only_writers() {
        let lock = lock_api::RwLock::<UncontendedLock, u8>::new(1);
        let (first, second) = (lock.try_read(), lock.try_read());
        assert!(first.is_some() && second.is_some() && lock.try_write().is_none());
        drop((first, second));
        let writer = lock.try_write();
        assert!(writer.is_some() && lock.try_read().is_none() && lock.try_write().is_none());
        drop(writer);
        assert!(!lock.is_locked());
        let mutex = lock_api::Mutex::<UncontendedLock, u8>::new(1);
        let holder = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(holder);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    #[should_panic(expected = "exclusive")]
    fn a_lock_that_is_held_is_an_internal_error() {
        let mutex = lock_api::Mutex::<UncontendedLock, u8>::new(1);
        let _holder = mutex.lock();
        drop(mutex.lock());
    }
}
