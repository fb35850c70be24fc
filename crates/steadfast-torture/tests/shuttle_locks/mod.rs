//! The platform of a volume under shuttle: its locks, and a medium where every I/O may switch
//! threads.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_api::{RawMutex, RawRwLock};
use shuttle::sync::{Condvar, Mutex, MutexGuard};
use steadfast::{Platform, Timestamp};
use steadfast_media::{Geometry, Medium, MediumError};

/// The holders of a lock.
#[derive(Debug, Default)]
struct Held {
    readers: u32,
    writer: bool,
    writers_waiting: u32,
}

/// A readers-writer lock built from shuttle's locks. Like the host's locks, it admits no new reader
/// while a writer waits. A thread that takes it twice for reading can deadlock on the host, so it
/// must deadlock here too.
pub struct Lock {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Lock {
    const fn new() -> Lock {
        Lock {
            held: Mutex::new(Held { readers: 0, writer: false, writers_waiting: 0 }),
            changed: Condvar::new(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("a panic ends the schedule")
    }

    fn wait_until<'a>(
        &'a self,
        mut held: MutexGuard<'a, Held>,
        free: impl Fn(&Held) -> bool,
    ) -> MutexGuard<'a, Held> {
        while !free(&held) {
            held = self.changed.wait(held).expect("a panic ends the schedule");
        }
        held
    }

    fn lock_write(&self) {
        let mut held = self.held();
        held.writers_waiting += 1;
        let mut held = self.wait_until(held, |held| !held.writer && held.readers == 0);
        held.writers_waiting -= 1;
        held.writer = true;
    }

    fn try_lock_write(&self) -> bool {
        let mut held = self.held();
        let free = !held.writer && held.readers == 0;
        held.writer |= free;
        free
    }

    fn lock_read(&self) {
        let held = self.held();
        self.wait_until(held, |held| !held.writer && held.writers_waiting == 0).readers += 1;
    }

    fn try_lock_read(&self) -> bool {
        let mut held = self.held();
        let free = !held.writer && held.writers_waiting == 0;
        held.readers += u32::from(free);
        free
    }

    fn release(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.held());
        self.changed.notify_all();
    }
}

/// Proof of a held lock; it stays on its thread, like the host's.
pub struct Guard(PhantomData<*const ()>);

const GUARD: Guard = Guard(PhantomData);

// SAFETY: `writer` is set only while it is unset and there are no readers, under the inner lock.
// Only `unlock` unsets it. So there is one holder at a time.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Lock = Lock::new();
    type Guard = Guard;

    fn lock(&self) -> Guard {
        self.lock_write();
        GUARD
    }

    fn try_lock(&self) -> Option<Guard> {
        self.try_lock_write().then_some(GUARD)
    }

    unsafe fn unlock(&self, _guard: Guard) {
        self.release(|held| held.writer = false);
    }

    fn is_locked(&self) -> bool {
        self.held().writer
    }
}

// SAFETY: as above. Readers enter only while there is no writer, and a writer enters only while
// there are no readers.
unsafe impl RawRwLock for Lock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Lock = Lock::new();
    type SharedGuard = Guard;
    type ExclusiveGuard = Guard;

    fn lock_shared(&self) -> Guard {
        self.lock_read();
        GUARD
    }

    fn try_lock_shared(&self) -> Option<Guard> {
        self.try_lock_read().then_some(GUARD)
    }

    unsafe fn unlock_shared(&self, _guard: Guard) {
        self.release(|held| held.readers -= 1);
    }

    fn lock_exclusive(&self) -> Guard {
        self.lock_write();
        GUARD
    }

    fn try_lock_exclusive(&self) -> Option<Guard> {
        self.try_lock_write().then_some(GUARD)
    }

    unsafe fn unlock_exclusive(&self, _guard: Guard) {
        self.release(|held| held.writer = false);
    }

    fn is_locked(&self) -> bool {
        let held = self.held();
        held.writer || held.readers > 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.held().writer
    }
}

/// Locks of shuttle, and a clock that advances at each reading.
#[derive(Default)]
pub struct ShuttlePlatform(AtomicU64);

impl Platform for ShuttlePlatform {
    type Mutex = Lock;
    type RwLock = Lock;

    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.fetch_add(1, Ordering::Relaxed) as i64, nanoseconds: 0 }
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A medium that may switch to another thread before and after each request.
pub struct Yielding<M>(pub M);

impl<M: Medium> Medium for Yielding<M> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        shuttle::thread::yield_now();
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        shuttle::thread::yield_now();
        let result = self.0.write(offset, data);
        shuttle::thread::yield_now();
        result
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        shuttle::thread::yield_now();
        self.0.write_fua(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        shuttle::thread::yield_now();
        let result = self.0.flush();
        shuttle::thread::yield_now();
        result
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.0.discard(offset, length)
    }
}
