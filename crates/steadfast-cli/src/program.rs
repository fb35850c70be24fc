//! What the programs of Steadfast have in common: how a wrong call and a panic end, and where the
//! other program is.
//!
//! A program [`begin`]s with its name and its grammar; advice that names a command comes from them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::error::ErrorKind;

use crate::failure::{Exit, Failure, Outcome};

/// The program that this process runs.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// As it is called: `steadfast`.
    pub name: &'static str,
    /// Its command line.
    pub grammar: fn() -> clap::Command,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Says which program this is, once, before anything else. A panic ends in one line from here on.
pub fn begin(program: Program) {
    let _ = PROGRAM.set(program);
    // A panic is a bug in this program. The message is one line with the place of the panic.
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string().replace('\n', " ");
        eprintln!(
            "steadfast: internal error: {text}: please report it; what was acknowledged is safe"
        );
    }));
}

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

/// Names the manual of the command that was called, subcommands included.
pub fn help_advice() -> String {
    let Some(program) = PROGRAM.get() else { return "see the manual".to_owned() };
    let mut command = (program.grammar)();
    let mut words = program.name.to_owned();
    for word in std::env::args_os().skip(1) {
        let Some(below) = command.find_subcommand(&word).cloned() else { break };
        words = format!("{words} {}", below.get_name());
        command = below;
    }
    format!("see '{words} --help'")
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

/// The other program: beside this one, else where the shell would find it.
pub fn find(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(|path| is_program(path)).or_else(|| {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        in_path(&path, name)
    })
}

fn in_path(path: &OsStr, name: &str) -> Option<PathBuf> {
    // An empty entry is the directory that the shell is in: no place for programs.
    let directories = std::env::split_paths(path).filter(|entry| !entry.as_os_str().is_empty());
    directories.map(|directory| directory.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_files_that_can_be_run() {
        assert_eq!(in_path(OsStr::new("/none::/bin"), "sh"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(in_path(OsStr::new("/etc:/"), "passwd"), None);
        assert_eq!(in_path(OsStr::new("/"), "bin"), None);
    }
}
