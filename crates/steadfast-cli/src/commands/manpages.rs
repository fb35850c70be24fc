//! `steadfast manpages`, hidden: makes the manual from the command line's own help, when packages
//! are built. `mkfs.steadfast` has the same grammar; the other helpers have pages of their own in
//! packaging/man.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::failure::Outcome;
use crate::{cli, manual, mkfs_name};

/// Commands of another program, which has their pages.
const ELSEWHERE: &[&str] = &["steadfast-lab", "steadfast-torture", "steadfast-flash-torture"];

/// Write manual pages into a directory: one a command, and mkfs.steadfast.8
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Those of the host's file system.
pub fn run(args: &Args) -> Outcome {
    manual::write(cli::grammar(), &args.directory, ELSEWHERE)?;
    manual::page(mkfs_name::Call::command(), "mkfs.steadfast", 8, &args.directory)
}
