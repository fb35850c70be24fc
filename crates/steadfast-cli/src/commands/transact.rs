//! `steadfast transact`: sets a transaction point on a mounted volume.

use std::path::PathBuf;

use crate::failure::Outcome;
use crate::target::Target;

/// Set a transaction point: everything written so far becomes durable, all of it or nothing
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point (or the image that is mounted)
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

/// Runs the command. It prints nothing on success.
///
/// # Errors
/// The volume is not mounted, and those of the volume. Programs had written something that the
/// volume could not store, and no call has told a program: the point does not have it.
pub fn run(args: &Args) -> Outcome {
    let live = Target::find_mounted(&args.target)?;
    live.transact()?;
    match live.lost_writes_new() {
        Some(lost) => Err(lost.failure("a transaction point is set", live.directory().display())),
        None => Ok(()),
    }
}
