//! What the programs for emulated boards share. That is the start of the machine, memory that is
//! measured, and a medium in RAM that loses power where it is told to.
//!
//! There is one task and no interrupt. Everything that is `Sync` here relies on that.
#![no_std]

extern crate alloc;

#[cfg_attr(target_arch = "arm", path = "arm.rs")]
#[cfg_attr(target_arch = "riscv32", path = "riscv.rs")]
pub mod machine;

pub mod chip;
pub mod heap;
pub mod platform;
pub mod print;
pub mod stack;

/// The value of a step that must not fail. The place of the caller is reported.
#[track_caller]
pub fn must<T>(result: steadfast::Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(_) => panic!(),
    }
}

/// Begins to count instructions, and compares the counter with a loop of known length.
pub fn start_counter() {
    const ROUNDS: u32 = 100_000;
    machine::start_counter();
    let from = machine::counter();
    machine::spin(ROUNDS);
    let counted = machine::instructions(from, machine::counter());
    let expected = u64::from(2 * ROUNDS);
    assert!(counted >= expected && counted < expected + 100);
}

#[panic_handler]
fn failed(panic: &core::panic::PanicInfo<'_>) -> ! {
    // Without `core::fmt`, which would count as code of the file system.
    if let Some(place) = panic.location() {
        print::text("failed at ");
        print::text(place.file());
        print::text(" ");
        print::number(u64::from(place.line()));
    }
    print::text("\n");
    machine::stop(false)
}
