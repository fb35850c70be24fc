//! The command line of `steadfast-lab`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use steadfast_cli::exit;
use steadfast_cli::failure::{Failure, Outcome};
use steadfast_cli::output::Output;
use steadfast_cli::program::{self, Program};
use steadfast_lab::workload::iozone::serve_child;

use crate::{flash_torture, manual, null, run, show, torture};

/// The name of the program.
const NAME: &str = "steadfast-lab";

/// Text below the list of commands.
const AFTER_HELP: &str = "\
'steadfast lab run' is 'steadfast-lab run', so for show and compare; 'steadfast torture' and
'steadfast flash torture' are 'steadfast-lab torture' and 'steadfast-lab flash-torture'.
Exit codes: 0 success, 1 failed or a violation, 2 wrong call, 4 damaged, 5 in use, 6 no space,
7 no permission.";

/// Measure file systems side by side, and prove that Steadfast survives power cuts
#[derive(Debug, Parser)]
#[command(name = NAME, version, about, after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Show(show::ShowArgs),
    Compare(show::CompareArgs),
    Torture(torture::Args),
    FlashTorture(flash_torture::Args),
    /// Print a script that completes command lines, for bash, zsh, fish, elvish or powershell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages of both programs into a directory
    #[command(hide = true)]
    Manpages {
        /// The directory; made where it does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    #[command(hide = true)]
    Null(null::Args),
    /// A process of IOzone's throughput mode; the lab starts it
    #[command(hide = true)]
    Child,
}

/// Runs the program with these arguments, the first being its name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    program::begin(Program { name: NAME, grammar: Cli::command });
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => exit::end(dispatch(&cli.command).map(|()| 0)),
        Err(error) => exit::refuse(&error),
    }
}

fn dispatch(command: &Command) -> Outcome {
    match command {
        Command::Run(args) => run::run(args),
        Command::Show(args) => show::show(args),
        Command::Compare(args) => show::compare(args),
        Command::Torture(args) => torture::run(args),
        Command::FlashTorture(args) => flash_torture::run(args),
        Command::Completions { shell } => completions(*shell),
        Command::Manpages { directory } => manual::write_all(Cli::command(), directory),
        Command::Null(args) => null::run(args),
        Command::Child => child(),
    }
}

fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.finish()
}

fn child() -> Outcome {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    serve_child(input, output)
        .map_err(|error| Failure::host(&error, "talk to", Path::new("the lab")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }
}
