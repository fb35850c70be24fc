//! `steadfast`: make, mount and inspect Steadfast volumes.

use std::process::ExitCode;

fn main() -> ExitCode {
    steadfast_cli::cli::run(std::env::args_os().collect())
}
