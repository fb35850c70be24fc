//! Names the linker script of the board in `BOARD`.

use std::env;

fn main() {
    println!("cargo::rerun-if-env-changed=BOARD");
    println!("cargo::rerun-if-changed=link");
    let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // A check of the code needs no board.
    let board = env::var("BOARD").unwrap_or_else(|_| "an386".to_owned());
    // AN505 runs at 20 MHz, the other boards with SysTick at 25 MHz.
    println!("cargo::rustc-check-cfg=cfg(slow_tick)");
    if board == "an505" {
        println!("cargo::rustc-cfg=slow_tick");
    }
    println!("cargo::rustc-link-arg-bins=-L{directory}/link");
    println!("cargo::rustc-link-arg-bins=-T{directory}/link/{board}.ld");
    println!("cargo::rustc-link-arg-bins=--gc-sections");
}
