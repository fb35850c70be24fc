//! The heap: first fit, and a count of what was asked for. It can be made smaller, and
//! refuses what a board would not have.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

/// Bytes of the largest heap.
const SIZE: usize = 512 << 10;
/// Every block begins and ends at a multiple of this. Allocators of small systems give no more, so
/// what asks for a larger alignment is refused.
const UNIT: usize = 8;

#[repr(align(8))]
struct Bytes(UnsafeCell<[u8; SIZE]>);

// SAFETY: there is one task.
unsafe impl Sync for Bytes {}

static BYTES: Bytes = Bytes(UnsafeCell::new([0; SIZE]));

/// A free block. The list is in the order of addresses.
struct Free {
    length: usize,
    next: *mut Free,
}

struct State {
    first: *mut Free,
    begun: bool,
    limit: usize,
    used: usize,
    peak: usize,
}

/// The allocator.
pub struct Heap(UnsafeCell<State>);

// SAFETY: there is one task.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(State {
    first: ptr::null_mut(),
    begun: false,
    limit: SIZE,
    used: 0,
    peak: 0,
}));

fn length_of(layout: Layout) -> usize {
    layout.size().max(UNIT).next_multiple_of(UNIT)
}

// SAFETY: a block is handed out once, because it leaves the list of free blocks, which do not
// overlap.
unsafe impl GlobalAlloc for Heap {
    // SAFETY: the free list has blocks of `BYTES` that are not handed out.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one task, and nothing here is called again from inside.
        let state = unsafe { &mut *self.0.get() };
        let length = length_of(layout);
        if layout.align() > UNIT || state.used + layout.size() > state.limit {
            return ptr::null_mut();
        }
        if !state.begun {
            state.begun = true;
            state.first = BYTES.0.get().cast();
            // SAFETY: the whole heap is one free block now.
            unsafe { state.first.write(Free { length: SIZE, next: ptr::null_mut() }) };
        }
        let mut link = &raw mut state.first;
        // SAFETY: links lead to free blocks, whose first bytes are a `Free`.
        unsafe {
            while !(*link).is_null() {
                let block = *link;
                if (*block).length >= length {
                    let left = (*block).length - length;
                    *link = (*block).next;
                    if left > 0 {
                        let rest = block.byte_add(length);
                        rest.write(Free { length: left, next: (*block).next });
                        *link = rest;
                    }
                    state.used += layout.size();
                    state.peak = state.peak.max(state.used);
                    return block.cast();
                }
                link = &raw mut (*block).next;
            }
        }
        ptr::null_mut()
    }

    // SAFETY: the caller gives back what `alloc` returned for this layout.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        let state = unsafe { &mut *self.0.get() };
        state.used -= layout.size();
        let mut length = length_of(layout);
        let block: *mut Free = memory.cast();
        let mut before: *mut Free = ptr::null_mut();
        let mut behind = state.first;
        // SAFETY: as in `alloc`; the block given back lies between two free ones.
        unsafe {
            while !behind.is_null() && behind < block {
                before = behind;
                behind = (*behind).next;
            }
            if block.byte_add(length) == behind {
                length += (*behind).length;
                behind = (*behind).next;
            }
            block.write(Free { length, next: behind });
            if before.is_null() {
                state.first = block;
            } else if before.byte_add((*before).length) == block {
                (*before).length += length;
                (*before).next = behind;
            } else {
                (*before).next = block;
            }
        }
    }
}

/// Bytes asked for and not given back.
pub fn used() -> usize {
    // SAFETY: there is one task.
    unsafe { (*HEAP.0.get()).used }
}

/// The largest [`used`] since the last call.
pub fn take_peak() -> usize {
    // SAFETY: there is one task.
    let state = unsafe { &mut *HEAP.0.get() };
    core::mem::replace(&mut state.peak, state.used)
}

/// From now on more than this many bytes in use are refused.
pub fn limit(bytes: usize) {
    // SAFETY: there is one task.
    unsafe { (*HEAP.0.get()).limit = bytes }
}
