//! `steadfast flash`: raw NAND.

mod torture;

use crate::failure::Outcome;

/// Raw NAND flash: try the file system and its translation layer on a model of a part
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Torture(torture::Args),
}

/// Runs the command.
///
/// # Errors
/// Those of the subcommand.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Torture(args) => torture::run(args),
    }
}
