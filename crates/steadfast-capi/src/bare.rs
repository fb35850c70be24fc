//! The surroundings where there is no operating system, or one that Rust does not know: the program
//! links in memory, clock and the end of the world as functions of its own.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::{Platform, Timestamp};
use lock_api::{RawMutex, RawRwLock};

unsafe extern "C" {
    /// Memory of `size` bytes at a multiple of `alignment` (a power of two), or NULL.
    safe fn sf_bare_allocate(size: usize, alignment: usize) -> *mut c_void;
    /// Gives memory of `sf_bare_allocate` back.
    fn sf_bare_release(memory: *mut c_void, size: usize, alignment: usize);
    /// Nanoseconds since 1970-01-01 UTC, for time stamps.
    safe fn sf_bare_now_ns() -> i64;
    /// Milliseconds since any moment, never going backwards, for the transaction timer.
    safe fn sf_bare_monotonic_ms() -> u64;
    /// Called again and again while a lock is held by another task: let that task run. In a program
    /// with one task nobody ever waits, and it can be empty.
    safe fn sf_bare_yield();
    /// An internal error, with a line about it. Must not return: reset the machine. What was
    /// acknowledged is safe.
    safe fn sf_bare_panic(text: *const c_char) -> !;
}

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: the program's functions keep to what is asked of them above, which is what this trait
// asks for.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sf_bare_allocate(layout.size(), layout.align()).cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: memory that `alloc` returned for this layout.
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

/// Waits by giving the processor to others.
pub struct Spin(AtomicBool);

// SAFETY: one holder at a time: only who changes false to true goes on.
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

    unsafe fn unlock(&self, _guard: ()) {
        self.0.store(false, Ordering::Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of readers, or [`WRITER`].
pub struct SpinShared(AtomicUsize);

const WRITER: usize = usize::MAX;

// SAFETY: the count is WRITER for one writer and nobody else, otherwise the number of readers.
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
