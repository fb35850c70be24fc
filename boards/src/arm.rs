//! Cortex-M: vector table, semihosting, and SysTick as a counter of instructions.

use core::arch::asm;
use core::ptr;

unsafe extern "C" {
    static stack_highest: u8;
}

/// An entry of the vector table.
#[repr(C)]
union Vector {
    stack: *const u8,
    code: extern "C" fn() -> !,
}

// SAFETY: the table is never changed, and only the processor reads it.
unsafe impl Sync for Vector {}

#[unsafe(link_section = ".start")]
#[used]
static VECTORS: [Vector; 16] = {
    const FAULT: Vector = Vector { code: fault };
    let mut vectors = [FAULT; 16];
    vectors[0] = Vector { stack: &raw const stack_highest };
    vectors[1] = Vector { code: start };
    vectors
};

unsafe extern "Rust" {
    safe fn run();
}

#[unsafe(no_mangle)]
extern "C" fn start() -> ! {
    run();
    stop(true)
}

extern "C" fn fault() -> ! {
    crate::print::text("the processor reports a fault\n");
    stop(false)
}

/// A request to the emulator.
pub(crate) fn semihosting(request: usize, argument: usize) {
    // SAFETY: the emulator reads what `argument` points to and changes register 0 only.
    unsafe { asm!("bkpt 0xab", inout("r0") request => _, in("r1") argument) }
}

/// Ends the emulator.
pub fn stop(success: bool) -> ! {
    super::print::leave(success)
}

const CONTROL: *mut u32 = 0xe000_e010 as *mut u32;
const RELOAD: *mut u32 = 0xe000_e014 as *mut u32;
const CURRENT: *mut u32 = 0xe000_e018 as *mut u32;
/// The counter has 24 bits.
const MASK: u32 = 0xff_ffff;
/// Quarters of an instruction in a tick: a tick is 40 ns, and 50 ns on AN505. The script runs the
/// emulator with 8 ns an instruction.
const QUARTERS: u64 = if cfg!(slow_tick) { 25 } else { 20 };

/// Runs two instructions for each round.
pub(crate) fn spin(rounds: u32) {
    // SAFETY: only the register and the flags change.
    unsafe { asm!("2:", "subs {0}, {0}, #1", "bne 2b", inout(reg) rounds => _) }
}

/// Begins to count.
pub fn start_counter() {
    // SAFETY: these are the registers of SysTick, which nothing else uses. No interrupt is enabled.
    unsafe {
        ptr::write_volatile(RELOAD, MASK);
        ptr::write_volatile(CURRENT, 0);
        ptr::write_volatile(CONTROL, 5);
    }
}

/// The counter now.
pub fn counter() -> u32 {
    // SAFETY: reading this register of SysTick has no effect.
    unsafe { ptr::read_volatile(CURRENT) }
}

/// Instructions between two values of the counter, at most 80 million.
pub fn instructions(from: u32, to: u32) -> u64 {
    u64::from(from.wrapping_sub(to) & MASK) * QUARTERS / 4
}
