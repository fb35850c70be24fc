//! The platform without an operating system that Rust supports. The program links in functions for
//! memory, clock, waiting and panics.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::{Platform, Timestamp};
use lock_api::{RawMutex, RawRwLock};

// SAFETY: these signatures match the prototypes in `steadfast.h`, which the program implements.
// Only `sf_bare_release` has a precondition: the memory must come from `sf_bare_allocate`, with the
// same size and alignment.
unsafe extern "C" {
    /// Returns `size` bytes at a multiple of `alignment` (a power of two), or NULL.
    safe fn sf_bare_allocate(size: usize, alignment: usize) -> *mut c_void;
    /// Frees memory from `sf_bare_allocate`.
    fn sf_bare_release(memory: *mut c_void, size: usize, alignment: usize);
    /// Nanoseconds since 1970-01-01 UTC, for time stamps.
    safe fn sf_bare_now_ns() -> i64;
    /// Monotonic milliseconds since any fixed moment, for the transaction timer.
    safe fn sf_bare_monotonic_ms() -> u64;
    /// Called repeatedly while another task holds a lock: lets that task run. A program with one
    /// task never waits, so this function may be empty.
    safe fn sf_bare_yield();
    /// Called after an internal error, with a line about it. Must not return: reset the machine.
    /// Acknowledged data is safe.
    safe fn sf_bare_panic(text: *const c_char) -> !;
}

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: the program's functions fulfil the contract that `steadfast.h` states, which is the
// contract of this trait.
unsafe impl GlobalAlloc for Memory {
    // SAFETY: the function has no precondition beyond the trait's: any size and alignment may be
    // passed.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sf_bare_allocate(layout.size(), layout.align()).cast()
    }

    // SAFETY: the caller passes memory from `alloc` with the layout that it was allocated with.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` returned this memory for this layout.
        unsafe { sf_bare_release(memory.cast(), layout.size(), layout.align()) }
    }
}

#[panic_handler]
fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
    crate::error::remember("steadfast", &crate::error::Failure::internal(panic));
    sf_bare_panic(crate::error::sf_last_error())
}

/// Clock and locks of the program.
#[derive(Default)]
pub struct Bare;

impl Platform for Bare {
    type Mutex = Spin;
    type RwLock = SpinShared;

    fn now(&self) -> Timestamp {
        let now = sf_bare_now_ns();
        let nanoseconds = now.rem_euclid(1_000_000_000) as u32;
        Timestamp { seconds: now.div_euclid(1_000_000_000), nanoseconds }
    }

    fn monotonic_ms(&self) -> u64 {
        sf_bare_monotonic_ms()
    }
}

/// A lock that waits by yielding to other tasks.
pub struct Spin(AtomicBool);

// SAFETY: at most one task holds the lock: only the task that changes false to true continues.
unsafe impl RawMutex for Spin {
    const INIT: Spin = Spin(AtomicBool::new(false));
    type Guard = ();

    fn lock(&self) {
        while self.try_lock().is_none() {
            sf_bare_yield();
        }
    }

    fn try_lock(&self) -> Option<()> {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok().map(drop)
    }

    // SAFETY: the caller holds the lock, so no other task is inside.
    unsafe fn unlock(&self, _guard: ()) {
        self.0.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of readers, or [`WRITER`].
pub struct SpinShared(AtomicUsize);

const WRITER: usize = usize::MAX;

// SAFETY: the value is WRITER while one writer holds the lock, otherwise it is the number of
// readers.
unsafe impl RawRwLock for SpinShared {
    const INIT: SpinShared = SpinShared(AtomicUsize::new(0));
    type SharedGuard = ();
    type ExclusiveGuard = ();

    fn lock_shared(&self) {
        while self.try_lock_shared().is_none() {
            sf_bare_yield();
        }
    }

    fn try_lock_shared(&self) -> Option<()> {
        let more = |count: usize| if count < WRITER - 1 { Some(count + 1) } else { None };
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).ok().map(drop)
    }

    // SAFETY: the caller holds the lock shared, so the count is at least 1 and not WRITER.
    unsafe fn unlock_shared(&self, _guard: ()) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    fn lock_exclusive(&self) {
        while self.try_lock_exclusive().is_none() {
            sf_bare_yield();
        }
    }

    fn try_lock_exclusive(&self) -> Option<()> {
        self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).ok().map(drop)
    }

    // SAFETY: the caller holds the lock exclusively, so the value is WRITER and no reader is
    // inside.
    unsafe fn unlock_exclusive(&self, _guard: ()) {
        self.0.store(0, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WRITER
    }
}
