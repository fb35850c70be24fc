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

/// Runs the command; it prints nothing on success.
///
/// # Errors
/// The volume is not mounted, and those of the volume.
pub fn run(args: &Args) -> Outcome {
    Target::find_mounted(&args.target)?.transact()
}
