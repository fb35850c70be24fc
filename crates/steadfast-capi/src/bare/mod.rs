//! The platform without an operating system that Rust supports. The program describes it with
//! `sf_start` ([`port`]): memory, clocks, entropy, a lock and the reaction to an internal error.
//!
//! One lock protects the whole library: at most one task is inside a function of it. So the locks
//! of the core only count, and need no atomic compare-and-swap. The program gives a single lock
//! with the priority inheritance of its RTOS. Processors without compare-and-swap count owners the
//! same way: no other task is inside, so nothing can come in between.

pub mod port;

use core::alloc::{GlobalAlloc, Layout};

use engine::{Error, Platform, Timestamp};
use steadfast_bare::UncontendedLock;

use crate::codes;
use crate::error::{Failure, Outcome};

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: the memory is the caller's alone until it is released. The arena keeps it out of its list
// of free blocks, and `sf_port.allocate` promises the same.
unsafe impl GlobalAlloc for Memory {
    // SAFETY: the function has no precondition beyond the trait's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        port::allocate(layout)
    }

    // SAFETY: the caller passes memory from `alloc` with the layout that it was allocated with.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `alloc` returned this memory for this layout.
        unsafe { port::release(memory, layout) }
    }
}

/// What `portable-atomic` calls around each step on a processor without compare-and-swap.
#[cfg(not(target_has_atomic = "ptr"))]
struct OneTask;

#[cfg(not(target_has_atomic = "ptr"))]
critical_section::set_impl!(OneTask);

// SAFETY: all values that `portable-atomic` keeps are used inside functions, with the lock of the
// library held. Interrupts do not use them: a call from one is refused by `port::Turn::take`.
#[cfg(not(target_has_atomic = "ptr"))]
unsafe impl critical_section::Impl for OneTask {
    // SAFETY: the lock of the library is held.
    unsafe fn acquire() -> critical_section::RawRestoreState {}

    // SAFETY: as above.
    unsafe fn release(_state: critical_section::RawRestoreState) {}
}

#[panic_handler]
fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
    crate::error::remember("steadfast", &crate::error::Failure::internal(panic));
    port::stop_here(crate::error::sf_last_error())
}

/// Runs the body of a function with the lock of the library.
pub fn inside<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let _turn = port::Turn::take()?;
    body()
}

/// Clock and locks of the program.
#[derive(Default)]
pub struct Bare;

impl Platform for Bare {
    type Mutex = UncontendedLock;
    type RwLock = UncontendedLock;

    fn now(&self) -> Timestamp {
        let now = port::now_ns();
        let nanoseconds = now.rem_euclid(1_000_000_000) as u32;
        Timestamp { seconds: now.div_euclid(1_000_000_000), nanoseconds }
    }

    fn monotonic_ms(&self) -> u64 {
        port::monotonic_ms()
    }
}

/// A failure of making or opening a volume. Too little memory has a code of its own there, because
/// the remedy is another arena.
pub fn failure_of_mount(error: Error) -> Failure {
    if error != Error::OutOfMemory {
        return error.into();
    }
    let memory = port::memory();
    Failure::new(
        codes::SF_ENOBUFS,
        format_args!(
            "the arena of {} bytes is too small: {} were needed at once, and more may follow",
            memory.size, memory.wanted
        ),
    )
}
