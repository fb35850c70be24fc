//! `steadfast-lab`: measures file systems side by side, and cuts the power of Steadfast volumes.
//!
//! `steadfast lab …`, `steadfast torture …` and `steadfast flash torture …` run it. The crates
//! `steadfast-lab` and `steadfast-torture` do the work; here are command line, progress and words.

mod cli;
mod flash_torture;
mod manual;
mod null;
mod progress;
mod run;
mod show;
mod torture;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os().collect())
}
