//! RISC-V: start, semihosting, and the counter of retired instructions.

use core::arch::{asm, global_asm};

global_asm!(
    ".section .start, \"ax\"",
    ".globl start",
    "start:",
    "la sp, stack_highest",
    "la t0, machine_fault",
    "csrw mtvec, t0",
    "call machine_start",
    ".balign 4",
    "machine_fault:",
    "la sp, stack_highest",
    "j machine_faulted",
);

unsafe extern "Rust" {
    safe fn run();
}

#[unsafe(no_mangle)]
extern "C" fn machine_start() -> ! {
    run();
    stop(true)
}

#[unsafe(no_mangle)]
extern "C" fn machine_faulted() -> ! {
    crate::print::text("the processor reports a fault\n");
    stop(false)
}

/// A request to the emulator.
pub(crate) fn semihosting(request: usize, argument: usize) {
    // SAFETY: the emulator reads what `argument` points to and changes register a0 only. These
    // three instructions, uncompressed and on one page, are the request.
    unsafe {
        asm!(
            ".option push",
            ".option norvc",
            ".balign 16",
            "slli x0, x0, 0x1f",
            "ebreak",
            "srai x0, x0, 7",
            ".option pop",
            inout("a0") request => _,
            in("a1") argument,
        );
    }
}

/// Ends the emulator.
pub fn stop(success: bool) -> ! {
    super::print::leave(success)
}

/// Runs two instructions for each round.
pub(crate) fn spin(rounds: u32) {
    // SAFETY: only the register changes.
    unsafe { asm!("2:", "addi {0}, {0}, -1", "bnez {0}, 2b", inout(reg) rounds => _) }
}

/// Begins to count.
pub fn start_counter() {}

/// The counter now.
pub fn counter() -> u32 {
    let now: u32;
    // SAFETY: reading this register has no effect.
    unsafe { asm!("csrr {}, minstret", out(reg) now) };
    now
}

/// The counter advances by the nanoseconds that the script gives an instruction.
const NANOSECONDS: u64 = 8;

/// Instructions between two values of the counter, at most 500 million.
pub fn instructions(from: u32, to: u32) -> u64 {
    u64::from(to.wrapping_sub(from)) / NANOSECONDS
}
