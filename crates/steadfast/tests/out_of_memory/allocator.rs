//! An allocator that refuses requests, and a medium whose own memory is always granted.
//!
//! Memory that was just freed and is requested again in the same size is granted and not counted,
//! because it is available. The core relies on that where the library cannot report a lack of
//! memory (`Arc`).
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;

use steadfast::Result;
use steadfast_media::{Geometry, Medium, MediumError, MemoryMedium};

/// Which allocations are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuse {
    /// One allocation.
    Once,
    /// That allocation and every later one.
    FromThereOn,
}

thread_local! {
    /// How many allocations are granted before one is refused; `None`: disarmed.
    static GRANTED: Cell<Option<u64>> = const { Cell::new(None) };
    static PERSISTS: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<bool> = const { Cell::new(false) };
    /// The memory that was freed since the last allocation.
    static GIVEN_BACK: Cell<Option<Layout>> = const { Cell::new(None) };
    static TRACE: Cell<bool> = const { Cell::new(false) };
}

/// Refuses allocations of the thread that has armed it.
struct Scarce;

impl Scarce {
    fn refuses(&self, layout: Layout) -> bool {
        let Ok(Some(granted)) = GRANTED.try_with(Cell::get) else { return false };
        if GIVEN_BACK.take() == Some(layout) {
            return false;
        }
        if granted > 0 {
            GRANTED.set(Some(granted - 1));
            return false;
        }
        GRANTED.set(PERSISTS.get().then_some(0));
        REFUSED.set(true);
        if TRACE.get() {
            outside(|| eprintln!("{}", Backtrace::force_capture()));
        }
        true
    }
}

// SAFETY: every call that is not refused goes to the system allocator with the same arguments. With
// null the trait reports a lack of memory.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.refuses(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.refuses(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let wanted = Layout::from_size_align(size, layout.align()).unwrap_or(layout);
        // Also a smaller size: many allocators of small systems take a new block for it.
        if self.refuses(wanted) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on; the pointer came from the system allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = GIVEN_BACK.try_with(|cell| cell.set(Some(layout)));
        // SAFETY: the pointer came from the system allocator with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// Reports where the core is when an allocation is refused.
pub fn trace() {
    TRACE.set(true);
}

/// Runs with the allocation after `granted` others refused. Returns whether there was one.
pub fn scarce<T>(granted: u64, refuse: Refuse, run: impl FnOnce() -> T) -> (T, bool) {
    REFUSED.set(false);
    GIVEN_BACK.set(None);
    PERSISTS.set(refuse == Refuse::FromThereOn);
    GRANTED.set(Some(granted));
    let result = run();
    GRANTED.set(None);
    (result, REFUSED.get())
}

/// The medium below the core: its own allocations are always granted.
pub struct Chip(pub MemoryMedium);

fn outside<T>(run: impl FnOnce() -> T) -> T {
    let before = GRANTED.replace(None);
    let result = run();
    GRANTED.set(before);
    GIVEN_BACK.set(None);
    result
}

impl Medium for &Chip {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        outside(|| self.0.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        outside(|| self.0.write(offset, data))
    }

    fn flush(&self) -> Result<(), MediumError> {
        outside(|| self.0.flush())
    }
}
