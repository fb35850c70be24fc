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
    /// Also while files are open for writing: their changes are dropped and their descriptors go
    /// stale
    #[arg(long)]
    force: bool,
}

/// Runs the command; it prints nothing on success.
///
/// # Errors
/// The volume is not mounted, files are open for writing, and those of the volume.
pub fn run(args: &Args) -> Outcome {
    Target::find_mounted(&args.target)?.rollback(args.force)
}
