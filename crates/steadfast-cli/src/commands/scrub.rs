//! `steadfast scrub`: reads everything that a volume holds, mounted or not, and repairs bad copies
//! of metadata.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use steadfast::scrub::{Scrub, ScrubReport};
use steadfast_fuse::scrub::{ScrubState, ScrubStatus};

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::live::Live;
use crate::output::{self, Output};
use crate::size;
use crate::target::Target;

/// Pause between two checks of a running pass.
const LOOK: Duration = Duration::from_millis(100);

/// Read everything a volume holds, to find rot while the other copy is good
///
/// Checks every copy of all metadata and all data, snapshots included, against their checksums. Bad
/// copies of metadata are written again from good ones. On a mounted volume it runs in the
/// background (progress: --status); an image is scrubbed at once. Exit code 0: nothing bad is left;
/// 4: damaged.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point, image or block device
    #[arg(value_name = "IMAGE|DIR")]
    target: PathBuf,
    /// Bytes to read per second, such as 20MiB or 20MiB/s; 0 sets no limit
    #[arg(long, value_parser = parse_rate, default_value = "20MiB/s", value_name = "RATE")]
    rate: u64,
    /// Wait until the pass is over, and show its progress
    #[arg(long, conflicts_with_all = ["status", "stop"])]
    wait: bool,
    /// Show the progress of the pass, or the result of the last one
    #[arg(long, conflicts_with = "stop")]
    status: bool,
    /// Stop the pass
    #[arg(long)]
    stop: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `steadfast scrub --json`. Fields are added over time and never change their meaning.
#[derive(Debug, Serialize)]
struct ScrubJson {
    /// never, running, finished, stopped or failed.
    state: &'static str,
    bytes: u64,
    bytes_total: u64,
    nodes: u64,
    data_blocks: u64,
    healed: u64,
    bad: u64,
    elapsed_ms: u64,
    findings: Vec<String>,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    size::parse(text.strip_suffix("/s").unwrap_or(text))
}

/// Runs the command.
///
/// # Errors
/// A pass is already running; the pass has found damage; those of reaching the volume.
pub fn run(args: &Args) -> Outcome {
    match Target::find(&args.target)? {
        Target::Mounted(live) => on_mount(&live, args),
        Target::Image(path) if args.status || args.stop => Err(Failure::new(
            Exit::CannotMount,
            "not mounted, so nothing runs in the background",
            path.display(),
            "leave --status and --stop out: an image is scrubbed at once",
        )),
        Target::Image(path) => on_image(&path, args),
    }
}

fn on_mount(live: &Live, args: &Args) -> Outcome {
    if args.stop {
        return live.scrub_stop();
    }
    if !args.status {
        live.scrub_start(args.rate)?;
        if !args.wait {
            return if args.json { Ok(()) } else { output::line(said_of_start(args)) };
        }
    }
    let mut status = live.scrub_status()?;
    if args.wait {
        let bar = progress_bar();
        while status.state == ScrubState::Running {
            bar.set_length(status.bytes_total.max(status.bytes));
            bar.set_position(status.bytes);
            thread::sleep(LOOK);
            status = live.scrub_status()?;
        }
        bar.finish_and_clear();
    }
    show(&ScrubJson::from(status), &args.target, args.json)
}

/// What a pass in the background does, and where its result is.
fn said_of_start(args: &Args) -> String {
    let rate = match args.rate {
        0 => "without a limit".to_owned(),
        rate => format!("{}/s", size::human(rate)),
    };
    let target = args.target.display();
    let text = format!("{target}: scrub started, {rate}; see 'steadfast scrub --status {target}'");
    text.replace(|c: char| c.is_control(), "?")
}

fn on_image(path: &Path, args: &Args) -> Outcome {
    let image = Image::open(path, Access::Write)?;
    let bar = progress_bar();
    let start = Instant::now();
    let mut scrub = Scrub::new();
    while !scrub.report().finished {
        image
            .volume
            .scrub_step(&mut scrub)
            .map_err(|error| Failure::core(error, path.display()))?;
        let report = scrub.report();
        bar.set_length(report.bytes_total.max(report.bytes));
        bar.set_position(report.bytes);
        if args.rate > 0 {
            let due = Duration::from_secs_f64(report.bytes as f64 / args.rate as f64);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    bar.finish_and_clear();
    image.close()?;
    show(&ScrubJson::new(scrub.report(), start.elapsed()), path, args.json)
}

impl ScrubJson {
    fn new(report: &ScrubReport, elapsed: Duration) -> ScrubJson {
        ScrubJson {
            state: "finished",
            bytes: report.bytes,
            bytes_total: report.bytes_total,
            nodes: report.nodes,
            data_blocks: report.data_blocks,
            healed: report.healed,
            bad: report.bad,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            findings: report.findings.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<ScrubStatus> for ScrubJson {
    fn from(status: ScrubStatus) -> ScrubJson {
        ScrubJson {
            state: match status.state {
                ScrubState::Never => "never",
                ScrubState::Running => "running",
                ScrubState::Finished => "finished",
                ScrubState::Stopped => "stopped",
                ScrubState::Failed => "failed",
            },
            bytes: status.bytes,
            bytes_total: status.bytes_total,
            nodes: status.nodes,
            data_blocks: status.data_blocks,
            healed: status.healed,
            bad: status.bad,
            elapsed_ms: u64::try_from(status.elapsed.as_millis()).unwrap_or(u64::MAX),
            findings: status.findings,
        }
    }
}

fn show(report: &ScrubJson, target: &Path, json: bool) -> Outcome {
    if json {
        output::json(report)?;
    } else {
        let mut output = Output::new();
        for finding in &report.findings {
            output.line(finding)?;
        }
        let more = (report.bad + report.healed).saturating_sub(report.findings.len() as u64);
        if more > 0 {
            output.line(format_args!("... and {more} more"))?;
        }
        output.line(format_args!(
            "{}: scrub {}: {} of about {} read in {} s, {} nodes, {} data blocks, {} copies healed, {} bad",
            target.display(),
            report.state,
            size::human(report.bytes),
            size::human(report.bytes_total.max(report.bytes)),
            report.elapsed_ms / 1000,
            report.nodes,
            report.data_blocks,
            report.healed,
            report.bad
        ))?;
        output.finish()?;
    }
    if report.bad > 0 {
        return Err(Failure::new(
            Exit::Damaged,
            format!("the scrub has found damage in {} places", report.bad),
            target.display(),
            "restore the files that are named, and look at the storage below",
        ));
    }
    if report.state == "failed" {
        return Err(Failure::new(
            Exit::Failed,
            "the scrub could not go on",
            target.display(),
            "see the log of the mount",
        ));
    }
    Ok(())
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("scrubbing {bar:30} {percent:>3} %, {eta} left");
    let bar = ProgressBar::new(0);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
