//! The heap: an arena, and a count of the bytes that were asked for.

use core::alloc::{GlobalAlloc, Layout};

use steadfast_bare::{Arena, RacyCell};

/// Bytes of the heap.
const SIZE: usize = 512 << 10;

static WORDS: RacyCell<[u64; SIZE / 8]> = RacyCell::new([0; SIZE / 8]);

struct State {
    arena: Arena,
    used: usize,
    peak: usize,
}

static STATE: RacyCell<State> = RacyCell::new(State { arena: Arena::EMPTY, used: 0, peak: 0 });

fn state() -> &'static mut State {
    // SAFETY: there is one task, and no caller calls another function while it has the reference.
    unsafe { &mut *STATE.get() }
}

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

// SAFETY: the arena gives out a block once until it is released.
unsafe impl GlobalAlloc for Heap {
    // SAFETY: the function has no precondition beyond the trait's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let state = state();
        if state.arena.size() == 0 {
            // SAFETY: only the arena uses these bytes.
            state.arena = unsafe { Arena::new(WORDS.get().cast(), SIZE) };
        }
        let memory = state.arena.allocate(layout);
        if !memory.is_null() {
            state.used += layout.size();
            state.peak = state.peak.max(state.used);
        }
        memory
    }

    // SAFETY: the caller gives back what `alloc` returned for this layout.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let state = state();
        state.used -= layout.size();
        // SAFETY: the arena gave this memory for this layout.
        unsafe { state.arena.release(memory, layout) }
    }
}

/// Bytes asked for and not given back.
pub fn used() -> usize {
    state().used
}

/// The largest [`used`] since the last call.
pub fn take_peak() -> usize {
    let state = state();
    core::mem::replace(&mut state.peak, state.used)
}
