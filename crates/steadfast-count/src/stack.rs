//! How deep the stack of an operation becomes.
//!
//! The memory below the stack pointer is painted, the operation runs, and the lowest place that is
//! no longer painted shows its depth. The calling thread must have [`PAINTED`] bytes of stack left
//! and some more.

#![allow(unsafe_code, reason = "memory below the stack pointer is only reached by address")]

use std::ptr;

/// Depth that can be measured, bytes.
pub const PAINTED: usize = 256 << 10;
/// Left alone below the frame of [`measure`]: frames of the painting functions themselves. A depth
/// is exact only above this.
const SPARED: usize = 1024;
const WORD: usize = size_of::<u64>();
const PAINT: u64 = 0x5afe_57ac_c0ff_ee11;

/// Runs `operation`; its result, and the bytes of stack that it used below this frame.
#[inline(never)]
pub fn measure<T>(operation: impl FnOnce() -> T) -> (T, usize) {
    let here = 0_u64;
    let top = (ptr::from_ref(&here).addr() & !(WORD - 1)) - SPARED;
    paint(top);
    let result = operation();
    (result, SPARED + unpainted(top))
}

#[inline(never)]
fn paint(top: usize) {
    for at in (top - PAINTED..top).step_by(WORD) {
        // SAFETY: the address is aligned. It is inside this thread's stack, which the caller made
        // large enough, and below every live frame, so no value in use changes.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(at).write_volatile(PAINT) };
    }
}

#[inline(never)]
fn unpainted(top: usize) -> usize {
    let painted = (top - PAINTED..top).step_by(WORD).take_while(|at| {
        // SAFETY: as in `paint`, which has written this word.
        unsafe { ptr::with_exposed_provenance::<u64>(*at).read_volatile() == PAINT }
    });
    PAINTED - painted.count() * WORD
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[inline(never)]
    fn deep<const BYTES: usize>() -> u8 {
        let mut room = [1_u8; BYTES];
        black_box(&mut room)[BYTES / 2]
    }

    fn depth_of(operation: fn() -> u8) -> usize {
        let thread = std::thread::Builder::new().stack_size(4 << 20);
        thread.spawn(move || measure(operation).1).expect("a thread").join().expect("its result")
    }

    #[test]
    fn deeper_functions_are_deeper() {
        let (small, large) = (depth_of(deep::<4096>), depth_of(deep::<65_536>));
        assert!((4096..16_384).contains(&small), "{small}");
        assert!((65_536..81_920).contains(&large), "{large}");
    }
}
