//! `steadfast lab`: published file-system comparisons, re-run side by side.

mod progress;
mod run;
mod show;

use crate::failure::Outcome;

/// Compare file systems: published benchmarks, side by side, on this machine
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(run::Args),
    Show(show::ShowArgs),
    Compare(show::CompareArgs),
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the call, the machine or a target.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Show(args) => show::show(args),
        Command::Compare(args) => show::compare(args),
    }
}
