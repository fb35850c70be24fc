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

/// Runs the command. It prints nothing on success, but warns of lost writes.
///
/// # Errors
/// The volume is not mounted, and those of the volume.
pub fn run(args: &Args) -> Outcome {
    let live = Target::find_mounted(&args.target)?;
    live.transact()?;
    // The point has what the volume could store.
    if let Some(lost) = live.lost_writes() {
        let directory = live.directory().display();
        eprintln!("steadfast: warning: {directory}: since it was mounted, {}", lost.text());
    }
    Ok(())
}
