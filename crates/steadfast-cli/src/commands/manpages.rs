//! `steadfast manpages`, hidden: generates the manual from the command line's help when packages
//! are built.

use std::fs;
use std::path::PathBuf;

use clap_mangen::Man;

use crate::cli;
use crate::failure::{Failure, Outcome};

/// Write manual pages into a directory: steadfast.1 and one for each command
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Those of the host's file system.
pub fn run(args: &Args) -> Outcome {
    let cannot = |error: &std::io::Error| Failure::host(error, "write", &args.directory);
    fs::create_dir_all(&args.directory).map_err(|error| cannot(&error))?;
    let mut grammar = cli::grammar().disable_help_subcommand(true);
    // This gives every command its full name.
    grammar.build();
    let mut pages = vec![("steadfast".to_owned(), grammar.clone())];
    for command in grammar.get_subcommands().filter(|command| !command.is_hide_set()) {
        pages.push((format!("steadfast-{}", command.get_name()), command.clone()));
    }
    for (name, command) in pages {
        let mut page = Vec::new();
        Man::new(command)
            .title(&name)
            .source(concat!("Steadfast ", env!("CARGO_PKG_VERSION")))
            .section("1")
            .render(&mut page)
            .map_err(|error| cannot(&error))?;
        fs::write(args.directory.join(format!("{name}.1")), page)
            .map_err(|error| cannot(&error))?;
    }
    Ok(())
}
