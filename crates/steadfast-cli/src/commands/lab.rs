//! `steadfast lab`: published file-system comparisons, re-run side by side.

mod null;
mod progress;
mod run;
mod show;

use std::path::Path;

use steadfast_lab::workload::iozone::serve_child;

use crate::failure::{Failure, Outcome};

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
    #[command(hide = true)]
    Null(null::Args),
    /// A process of IOzone's throughput mode; the lab starts it
    #[command(hide = true)]
    Child,
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
        Command::Null(args) => null::run(args),
        Command::Child => child(),
    }
}

fn child() -> Outcome {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    serve_child(input, output)
        .map_err(|error| Failure::host(&error, "talk to", Path::new("the lab")))
}
