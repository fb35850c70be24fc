//! What the programs of Steadfast have in common: a name, a grammar, how a panic ends, and where
//! the other program is.
//!
//! A program [`begin`]s with its name and its grammar; advice that names a command comes from them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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
