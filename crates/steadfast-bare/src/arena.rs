//! An allocator over a piece of memory that the firmware gives: first fit. The free blocks are in
//! the order of their addresses, so that neighbours join again.
//!
//! Every block begins and ends at a multiple of [`UNIT`]. The caller passes the size again when it
//! releases a block, so a block in use has no header.

use core::alloc::Layout;
use core::ptr;

/// A free block.
struct Free {
    length: usize,
    next: *mut Free,
}

/// The unit of blocks, which holds a [`Free`]: 8 bytes with addresses of 32 bits. Requests for a
/// larger alignment are refused.
pub const UNIT: usize = size_of::<Free>();

const _: () = assert!(align_of::<Free>() <= UNIT && UNIT.is_power_of_two());

/// The memory and its free blocks.
pub struct Arena {
    first: *mut Free,
    size: usize,
    used: usize,
    peak: usize,
    wanted: usize,
}

impl Arena {
    /// Without memory; every request is refused.
    pub const EMPTY: Arena = Arena { first: ptr::null_mut(), size: 0, used: 0, peak: 0, wanted: 0 };

    /// An arena of the whole units in `size` bytes at `memory`.
    ///
    /// # Safety
    /// The bytes belong to the arena until the last block and the arena are no longer used.
    pub unsafe fn new(memory: *mut u8, size: usize) -> Arena {
        let skipped = memory.align_offset(UNIT);
        let size = size.saturating_sub(skipped) / UNIT * UNIT;
        if memory.is_null() || size == 0 {
            return Arena::EMPTY;
        }
        let first = memory.wrapping_add(skipped).cast::<Free>();
        // SAFETY: `first` is aligned and at least one unit of the caller's bytes follows it.
        unsafe { first.write(Free { length: size, next: ptr::null_mut() }) };
        Arena { first, size, ..Arena::EMPTY }
    }

    /// Bytes of the arena.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the blocks in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The most bytes that were in use at once.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// The largest sum of [`used`](Self::used) and a request that was refused.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Bytes of the largest free block.
    pub fn largest_free(&self) -> usize {
        let (mut largest, mut block) = (0, self.first);
        while !block.is_null() {
            // SAFETY: the list leads to free blocks, whose first bytes are a `Free`.
            unsafe {
                largest = largest.max((*block).length);
                block = (*block).next;
            }
        }
        largest
    }

    /// A block, or NULL if none is large enough.
    pub fn allocate(&mut self, layout: Layout) -> *mut u8 {
        let Some(length) = length_of(layout) else { return ptr::null_mut() };
        let mut link = &raw mut self.first;
        // SAFETY: links lead to free blocks, whose first bytes are a `Free`. What is left of a
        // block has at least one unit, which holds a `Free`.
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
                    self.used += length;
                    self.peak = self.peak.max(self.used);
                    return block.cast();
                }
                link = &raw mut (*block).next;
            }
        }
        self.wanted = self.wanted.max(self.used + length);
        ptr::null_mut()
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `memory` came from [`allocate`](Self::allocate) of this arena for this layout, and is not
    /// used any more.
    pub unsafe fn release(&mut self, memory: *mut u8, layout: Layout) {
        let Some(mut length) = length_of(layout) else { return };
        self.used -= length;
        let block: *mut Free = memory.cast();
        let mut before: *mut Free = ptr::null_mut();
        let mut after = self.first;
        // SAFETY: as in `allocate`; the block given back lies between two free ones.
        unsafe {
            while !after.is_null() && after < block {
                before = after;
                after = (*after).next;
            }
            if block.byte_add(length) == after {
                length += (*after).length;
                after = (*after).next;
            }
            block.write(Free { length, next: after });
            if before.is_null() {
                self.first = block;
            } else if before.byte_add((*before).length) == block {
                (*before).length += length;
                (*before).next = after;
            } else {
                (*before).next = block;
            }
        }
    }
}

/// Bytes of a block for a layout; `None` if no block can be for it.
fn length_of(layout: Layout) -> Option<usize> {
    (layout.align() <= UNIT).then(|| layout.size().max(1).next_multiple_of(UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a layout")
    }

    #[test]
    fn blocks_do_not_overlap_and_join_again() {
        let mut memory = [0_u64; 1024];
        let begin = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the array outlives the arena. It begins one byte late, to be cut at both ends.
        let mut arena = unsafe { Arena::new(begin.wrapping_add(1), 8190) };
        let size = arena.size();
        assert!(size > 8190 - 2 * UNIT && size.is_multiple_of(UNIT));
        let mut live: Vec<(*mut u8, usize, u8)> = Vec::new();
        // This crate uses no other one, so it has a sequence of its own.
        let (mut seed, mut refused) = (7_u32, 0);
        for round in 0..20_000_u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = (seed >> 8) as usize;
            if live.is_empty() || random % 5 < 3 {
                let wanted = 1 + random / 5 % 600;
                let block = arena.allocate(layout(wanted));
                if block.is_null() {
                    refused += 1;
                    assert!(arena.largest_free() < wanted.next_multiple_of(UNIT));
                } else {
                    assert!(block.is_aligned_to_unit());
                    // SAFETY: the block has this many bytes.
                    unsafe { block.write_bytes(round as u8, wanted) };
                    live.push((block, wanted, round as u8));
                }
            }
            if random % 5 >= 2 && !live.is_empty() {
                let (block, length, value) = live.swap_remove(random / 7 % live.len());
                // SAFETY: the block is in use, with this length.
                unsafe {
                    assert!((0..length).all(|at| *block.add(at) == value));
                    arena.release(block, layout(length));
                }
            }
            let sum: usize = live.iter().map(|(_, length, _)| length.next_multiple_of(UNIT)).sum();
            assert_eq!(arena.used(), sum);
        }
        assert!(refused > 100, "the arena was never full");
        for (block, length, _) in live {
            // SAFETY: the block is in use, with this length.
            unsafe { arena.release(block, layout(length)) };
        }
        assert_eq!((arena.used(), arena.largest_free()), (0, size));
        assert!(arena.peak() <= size && arena.peak() > size / 2);
    }

    trait Aligned {
        fn is_aligned_to_unit(&self) -> bool;
    }

    impl Aligned for *mut u8 {
        fn is_aligned_to_unit(&self) -> bool {
            self.addr().is_multiple_of(UNIT)
        }
    }

    #[test]
    fn what_an_arena_cannot_give_is_refused() {
        let mut empty = Arena::EMPTY;
        assert!(empty.allocate(layout(1)).is_null());
        let mut memory = [0_u64; 8];
        // SAFETY: the array outlives the arenas, of which only the last is used.
        let mut arena = unsafe {
            assert_eq!(Arena::new(memory.as_mut_ptr().cast(), UNIT - 1).size(), 0);
            assert_eq!(Arena::new(ptr::null_mut(), 64).size(), 0);
            Arena::new(memory.as_mut_ptr().cast(), 64)
        };
        assert!(arena.allocate(layout(65)).is_null());
        assert!(arena.allocate(Layout::from_size_align(8, 2 * UNIT).expect("one")).is_null());
        let all = arena.allocate(layout(64));
        assert!(!all.is_null() && arena.wanted() == 65_usize.next_multiple_of(UNIT));
        assert!(arena.allocate(layout(1)).is_null() && arena.wanted() == 64 + UNIT);
        // SAFETY: the block is in use, with this length.
        unsafe { arena.release(all, layout(64)) };
        assert_eq!(arena.largest_free(), 64);
    }
}
