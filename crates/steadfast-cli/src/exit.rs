//! How a program ends: with one line for a failure or a wrong command line, and its exit code.

use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::{Exit, Failure, Outcome};
use crate::program::help_advice;

/// The exit code of a command, whose failure is printed.
pub fn end(outcome: Outcome<u8>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Reports a wrong command line in one line, like every other failure. Help and version go to
/// standard output.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        let _ = error.print();
        return ExitCode::from(u8::from(error.use_stderr()) * Exit::Usage as u8);
    }
    let text = error.render().to_string();
    // clap prints paragraphs: the mistake, then tips, then usage and where to find help.
    let mistake: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        // Words that begin with a dash are always options here, so this tip is wrong.
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass '-"))
        .collect();
    let mistake = mistake.join(" ");
    let mistake = mistake.strip_prefix("error: ").unwrap_or(&mistake);
    // In one line a tip needs a mark before it.
    let mistake = mistake.replace(" tip: ", "; ");
    let failure = Failure::new(Exit::Usage, mistake, "command line", help_advice());
    eprintln!("{failure}");
    ExitCode::from(Exit::Usage as u8)
}
