//! `steadfast lab show` and `steadfast lab compare`: results of runs as tables, and the changes
//! between two runs.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use steadfast_lab::report::terminal::{self, ReportPart, Style};
use steadfast_lab::result::{self, RunResult};
use steadfast_lab::statistics::Verdict;
use steadfast_lab::{compare, report};

use steadfast_cli::failure::{Exit, Failure, Outcome};
use steadfast_cli::output::{json, line};

/// Print the tables of a result
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// result.json of 'lab run', or the directory that it is in
    file: PathBuf,
    /// Print a row for every test
    #[arg(long, conflicts_with = "iozone")]
    full: bool,
    /// Print the tables in IOzone's format
    #[arg(long)]
    iozone: bool,
    /// Print JSON: the unchanged result
    #[arg(long, conflicts_with_all = ["full", "iozone", "peer", "report"])]
    json: bool,
    /// Print Markdown: where it was measured, a table for each suite, and what it cost
    #[arg(long, conflicts_with_all = ["full", "iozone", "json"])]
    markdown: bool,
    /// The target to which ratios are given
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Also write the page and its pictures into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Show what changed between two results, and whether that is more than noise
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// The earlier result
    before: PathBuf,
    /// The later one
    after: PathBuf,
    /// Also show what did not change
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 if something is worse by more than noise
    #[arg(long)]
    fail_if_worse: bool,
}

/// Prints a result.
///
/// # Errors
/// It cannot be read, is not a result, or does not have the peer.
pub fn show(args: &ShowArgs) -> Outcome {
    let run = read(&args.file)?;
    if args.json {
        return json(&run);
    }
    if args.markdown {
        let text = report::markdown::print(&run, args.peer.as_deref());
        let text = text.map_err(|what| no_peer(what, &args.file))?;
        return line(text.trim_end());
    }
    let part = match (args.full, args.iozone) {
        (true, _) => ReportPart::Full,
        (_, true) => ReportPart::Iozone,
        _ => ReportPart::Summary,
    };
    print(&run, args.peer.as_deref(), part, &args.file)?;
    match &args.report {
        Some(directory) => write_report(&run, args.peer.as_deref(), directory),
        None => Ok(()),
    }
}

/// Prints the changes.
///
/// # Errors
/// A result cannot be read, the results have no test in common, or with `--fail-if-worse` something
/// is worse.
pub fn compare(args: &CompareArgs) -> Outcome {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let comparison = compare::compare(&before, &after).map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.to_string(),
            args.after.display(),
            "give results of the same suite",
        )
    })?;
    if args.json {
        json(&comparison)?;
    } else {
        line(compare::print(&comparison, args.all, style()).trim_end())?;
    }
    match comparison.count(Verdict::Worse) {
        worse if worse > 0 && args.fail_if_worse => {
            let what = format!("{worse} of {} measurements are worse", comparison.changes.len());
            Err(Failure::new(Exit::Failed, what, args.after.display(), "see the table"))
        }
        _ => Ok(()),
    }
}

/// Prints a part of a result on standard output.
///
/// # Errors
/// The result does not contain the peer.
pub fn print(run: &RunResult, peer: Option<&str>, part: ReportPart, place: &Path) -> Outcome {
    let text = terminal::print(run, peer, part, style());
    let text = text.map_err(|what| no_peer(what, place))?;
    line(text.trim_end())
}

fn no_peer(what: String, place: &Path) -> Failure {
    Failure::new(Exit::Usage, what, place.display(), "see 'steadfast lab show'")
}

/// Writes the page and its pictures, and prints their location.
///
/// # Errors
/// They cannot be written.
pub fn write_report(run: &RunResult, peer: Option<&str>, directory: &Path) -> Outcome {
    let page = report::write(run, peer, directory).map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.to_string(),
            directory.display(),
            "the result itself is kept",
        )
    })?;
    line(format_args!("report: {}", page.display()))
}

/// Reads a result file, or the result file of a directory.
fn read(path: &Path) -> Outcome<RunResult> {
    let path = if path.is_dir() { path.join("result.json") } else { path.to_owned() };
    result::read(&path).map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.reason(),
            error.path().display(),
            "give the result.json of 'steadfast lab run'",
        )
    })
}

fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
    let width = size.map(|size| size.ws_col).filter(|columns| *columns >= 40).unwrap_or(120);
    Style { width, colour: terminal && std::env::var_os("NO_COLOR").is_none() }
}
