//! A global allocator that counts. It costs a repetition a few instructions for each allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with counts while [`start`] is in effect.
pub struct CountingAllocator;

fn note(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

// SAFETY: each method passes its arguments on to the system's allocator, which upholds the
// contract; counting touches only static numbers and does not allocate.
#[allow(unsafe_code, reason = "a global allocator has unsafe methods only")]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's guarantees are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer is from this allocator, thus from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Allocations, reallocations included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocations {
    /// How many.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

fn now() -> Allocations {
    Allocations { count: COUNT.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
}

/// Counts from here on. The process has one thread that allocates meanwhile.
pub fn start() -> Allocations {
    let before = now();
    COUNTING.store(true, Ordering::Relaxed);
    before
}

/// Stops counting; the allocations since `before`.
pub fn stop(before: Allocations) -> Allocations {
    COUNTING.store(false, Ordering::Relaxed);
    let after = now();
    Allocations { count: after.count - before.count, bytes: after.bytes - before.bytes }
}
