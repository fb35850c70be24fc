//! `steadfast completions`: scripts with which a shell completes command lines.

use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output::Output;

/// Print a script that completes command lines, for bash, zsh, fish, elvish or powershell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: steadfast completions bash > /etc/bash_completion.d/steadfast")]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command: completes the command lines of `grammar`.
///
/// # Errors
/// Those of standard output.
pub fn run(args: &Args, mut grammar: clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut grammar, "steadfast", &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.finish()
}
