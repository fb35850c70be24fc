//! `posix-suite DIR`: runs the compliance suite on a directory.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use steadfast_posix::{Options, run, suites};

/// Checks that a file system fulfils the guarantees of POSIX and Linux.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Directory on the file system to check; a subdirectory is created in it and removed at the
    /// end.
    #[arg(required_unless_present = "list")]
    directory: Option<PathBuf>,
    /// Print the names of the checks and exit.
    #[arg(long)]
    list: bool,
    /// Run only checks whose name contains this text (may be given several times).
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Leave out checks whose name contains this text (may be given several times).
    #[arg(long, value_name = "TEXT")]
    exclude: Vec<String>,
    /// Name of a check that is known to fail; if it passes, that counts as a failure (may be given
    /// several times).
    #[arg(long, value_name = "NAME")]
    deviation: Vec<String>,
    /// Count an optional operation that the file system does not support as a failure.
    #[arg(long)]
    require_all: bool,
    /// Time limit of one check, seconds.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    limit: u64,
    /// Print every check, not only failures.
    #[arg(short, long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut checks = suites::all();
    if let Some(unknown) =
        arguments.deviation.iter().find(|name| checks.iter().all(|check| check.name != **name))
    {
        eprintln!("posix-suite: no check is named '{unknown}'; see 'posix-suite --list'");
        return ExitCode::from(2);
    }
    checks.retain(|check| {
        let name = check.name.as_str();
        let wanted =
            arguments.filter.is_empty() || arguments.filter.iter().any(|text| name.contains(text));
        wanted && !arguments.exclude.iter().any(|text| name.contains(text))
    });
    let mut out = std::io::stdout().lock();
    let result = match &arguments.directory {
        Some(directory) if !arguments.list => {
            let options = Options {
                require_all: arguments.require_all,
                deviations: arguments.deviation.clone(),
                limit: Duration::from_secs(arguments.limit),
                verbose: arguments.verbose,
            };
            run(directory, &checks, &options, &mut out).and_then(|summary| {
                let (failed, skipped) = (summary.failed.len(), summary.skipped.len());
                write!(out, "{} passed, {failed} failed, {skipped} skipped", summary.passed)?;
                match summary.deviating.len() {
                    0 => writeln!(out)?,
                    known => writeln!(out, ", {known} known deviations")?,
                }
                Ok(failed == 0)
            })
        }
        _ => checks.iter().try_for_each(|check| writeln!(out, "{}", check.name)).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let place = arguments.directory.unwrap_or_default();
            eprintln!(
                "posix-suite: {}: {error}; give a directory that you may write to",
                place.display()
            );
            ExitCode::from(2)
        }
    }
}
