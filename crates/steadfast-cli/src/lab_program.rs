//! `steadfast lab`, `steadfast torture`, `steadfast flash torture`: commands of the program
//! `steadfast-lab`, which this process becomes.
//!
//! They are a program of their own because of what they carry: SQLite, FAT, fonts, a model file
//! system ([decision 0038](../../../docs/decisions/0038-two-programs.md)). Devices do without.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::failure::{Exit, Failure, Outcome};
use crate::program;

/// The program.
const NAME: &str = "steadfast-lab";

/// Arguments for the other program, options included; it has its own help.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The arguments: see --help
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the program, with `words` in front of the arguments; returns only where it cannot.
///
/// # Errors
/// The program is not installed, or cannot be run.
pub fn run(words: &[&str], args: &Args) -> Outcome {
    become_lab(words, &args.arguments)
}

/// `steadfast help lab`, `steadfast help torture` and `steadfast help flash torture`: the words
/// for the other program, or `None` where something else is asked for.
pub fn help(arguments: &[OsString]) -> Option<Outcome> {
    let words: Vec<&str> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let asked = match words.as_slice() {
        ["help", "lab", below @ ..] => below.to_vec(),
        ["help", "torture"] => vec!["torture"],
        ["help", "flash", "torture"] | ["flash", "help", "torture"] => vec!["flash-torture"],
        _ => return None,
    };
    Some(become_lab(&["help"], &asked))
}

fn become_lab<S: AsRef<OsStr>>(words: &[&str], arguments: &[S]) -> Outcome {
    let Some(path) = program::find(NAME) else {
        return Err(Failure::new(
            Exit::Failed,
            "the lab is not installed",
            NAME,
            "install the package steadfast-lab, or put the program beside steadfast",
        ));
    };
    let error = Command::new(&path).args(words).args(arguments).exec();
    Err(Failure::host(&error, "run", &path))
}
