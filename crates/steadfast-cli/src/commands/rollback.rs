//! `steadfast rollback`: returns a mounted volume to its last transaction point.

use std::path::PathBuf;

use crate::failure::Outcome;
use crate::target::Target;

/// Return a mounted volume to its last transaction point, dropping everything after it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point (or the image that is mounted)
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Also while files are open for writing; what they hold is dropped and their descriptors go
    /// stale
    #[arg(long)]
    force: bool,
}

/// Runs the command; silent when it succeeds.
///
/// # Errors
/// When it is not mounted, when files are open for writing, and those of the volume.
pub fn run(args: &Args) -> Outcome {
    Target::find_mounted(&args.target)?.rollback(args.force)
}
