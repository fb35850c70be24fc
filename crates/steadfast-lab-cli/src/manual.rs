//! Manual pages from the grammars of both programs, one a command, nested ones included. Packages
//! are built with them; the file system's own program does without what makes them.
//!
//! `mkfs.steadfast` has the grammar of `steadfast mkfs`; the other helpers have pages of their own
//! in packaging/man.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use steadfast_cli::failure::{Failure, Outcome};
use steadfast_cli::{cli, mkfs_name};

/// Commands of `steadfast` that this program has, and with them their pages.
const ELSEWHERE: &[&str] = &["steadfast-lab", "steadfast-torture", "steadfast-flash-torture"];

/// Writes the pages of both programs.
///
/// # Errors
/// Those of the host's file system.
pub fn write_all(own: clap::Command, directory: &Path) -> Outcome {
    write(cli::grammar(), directory, ELSEWHERE)?;
    write(own, directory, &[])?;
    page(mkfs_name::MkfsCall::command(), "mkfs.steadfast", 8, directory)
}

/// Writes the pages of section 1 into a directory, which is made where it does not exist.
///
/// A command without a page is hidden, or in `elsewhere`: pages of another program.
///
/// # Errors
/// Those of the host's file system.
fn write(grammar: clap::Command, directory: &Path, elsewhere: &[&str]) -> Outcome {
    let cannot = |error: &std::io::Error| Failure::host(error, "write", directory);
    fs::create_dir_all(directory).map_err(|error| cannot(&error))?;
    let mut grammar = grammar.disable_help_subcommand(true);
    // Gives every command its full name.
    grammar.build();
    let mut left = vec![(grammar.get_name().to_owned(), grammar)];
    while let Some((name, command)) = left.pop() {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let name = format!("{name}-{}", below.get_name());
            if !elsewhere.contains(&name.as_str()) {
                left.push((name, below.clone()));
            }
        }
        page(command, &name, 1, directory)?;
    }
    Ok(())
}

/// Writes one page, `NAME.SECTION`.
///
/// # Errors
/// Those of the host's file system.
fn page(command: clap::Command, name: &str, section: u8, directory: &Path) -> Outcome {
    let mut page = Vec::new();
    let path = directory.join(format!("{name}.{section}"));
    let made = Man::new(command)
        .title(name)
        .source(concat!("Steadfast ", env!("CARGO_PKG_VERSION")))
        .section(section.to_string())
        .render(&mut page);
    made.and_then(|()| fs::write(&path, page))
        .map_err(|error| Failure::host(&error, "write", &path))
}
