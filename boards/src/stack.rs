//! How deep the stack becomes: it is painted, and the lowest word that lost its paint shows it.

use core::ptr;

unsafe extern "C" {
    static stack_lowest: u8;
}

const PAINT: u32 = 0x5afe_57ac;
/// Bytes below the caller that the painting itself uses.
const SPARED: usize = 256;

fn words() -> (usize, usize) {
    let here = 0_u32;
    let lowest = (&raw const stack_lowest).addr();
    (lowest, (ptr::from_ref(&here).addr() - SPARED) & !3)
}

/// Paints what is free.
#[inline(never)]
pub fn paint() {
    let (lowest, top) = words();
    for at in (lowest..top).step_by(4) {
        // SAFETY: this memory is below every live frame, so no value in use changes.
        unsafe { ptr::with_exposed_provenance_mut::<u32>(at).write_volatile(PAINT) };
    }
}

/// Bytes used below the caller since [`paint`].
#[inline(never)]
pub fn deepest() -> usize {
    let (lowest, top) = words();
    // SAFETY: as in `paint`, which has written these words.
    let painted =
        |at: &usize| unsafe { ptr::with_exposed_provenance::<u32>(*at).read_volatile() == PAINT };
    let left = (lowest..top).step_by(4).take_while(painted).count();
    // A stack that was used up may have overwritten what lies below.
    assert!(left > 0);
    top + SPARED - (lowest + 4 * left)
}
