//! `steadfast check`: verifies every checksum, reference and count of a volume that is not mounted.
//! Changes the volume only with `--repair`.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use steadfast::check::{
    CheckOptions, CheckProgress, CheckReport, Finding, RepairReport, Severity, check, repair,
};
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::mount_options;
use crate::output::{self, Output};
use crate::salvage;

/// Verify every checksum, reference and count of a volume that is not mounted
///
/// Reads only. Exit code 0: clean; 9: nothing is lost, but something that should be kept twice is
/// kept once; 4: damaged.
///
/// With --repair: repairs what needs no guess, then checks again. Bad copies of superblock,
/// metaroot and nodes are rewritten from good ones. Link, entry and block counts, parents of
/// directories and orphan records are corrected, unless the structure has other damage. Everything
/// else stays as it is. If nothing can be repaired, nothing is written. The exit code is that of
/// the second check.
///
/// With --salvage: copies everything readable to DIR, even if the volume does not open any more.
/// Lost parts of files are zeros and listed in DIR/salvage-report.txt. Files whose directory is
/// lost are below DIR/lost+found under their inode number. Exit code 0: all there; 4: something is
/// missing or may be out of date. A snapshot may still hold what the present state has lost. With
/// --snapshot NAME the files of that snapshot are copied instead, so use another directory for it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Metadata only, without reading the data of files
    #[arg(long)]
    no_data: bool,
    /// Repair what needs no guess, then check again
    #[arg(long, conflicts_with = "salvage")]
    repair: bool,
    /// Copy everything readable to this directory (made, or empty)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["no_data", "cache"])]
    salvage: Option<PathBuf>,
    /// With --salvage: the files of this snapshot instead of the present ones
    #[arg(long, value_name = "NAME", requires = "salvage")]
    snapshot: Option<String>,
    /// Memory for cached nodes
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = mount_options::cache_size,
        allow_hyphen_values = true
    )]
    cache: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print nothing if the volume is clean, and no progress
    #[arg(short, long)]
    quiet: bool,
}

/// `steadfast check --json`.
#[derive(Debug, Serialize)]
struct JsonReport<'a> {
    clean: bool,
    damaged: u64,
    degraded: u64,
    /// At most the first thousand findings.
    findings: Vec<JsonFinding<'a>>,
    nodes: u64,
    inodes: u64,
    directories: u64,
    data_blocks: u64,
    data_verified: bool,
    used_blocks: u64,
    replayed_records: u64,
    /// With --repair: the number of rewritten copies and corrected counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<u64>,
}

#[derive(Debug, Serialize)]
struct JsonFinding<'a> {
    severity: &'static str,
    text: &'a str,
    /// First bad block on the medium.
    block: Option<u64>,
    /// The one affected file or directory.
    inode: Option<u64>,
    /// First affected byte of it, and the one after the last; the end is null if it is unknown.
    byte_start: Option<u64>,
    byte_end: Option<u64>,
    /// Affected paths, at most eight, if their names can be read; `more_paths` counts the rest.
    paths: Vec<String>,
    more_paths: u64,
}

/// What to do where the newest state is damaged.
pub const OLDER_STATE: &str = "save what is there with 'mount -o ro' or 'steadfast check --salvage DIR'; \
     'mount -o recover' gives up the newest state and goes on in an older one";

/// Runs the command. Findings go to standard output. A bad verdict goes to standard error.
///
/// # Errors
/// The volume cannot be opened, or it is damaged.
pub fn run(args: &Args) -> Outcome {
    // The bar is hidden if standard error is not a terminal.
    let bar = if args.quiet { ProgressBar::hidden() } else { progress_bar(args) };
    if let Some(directory) = &args.salvage {
        return salvage::run(
            &args.image,
            directory,
            args.snapshot.as_deref(),
            args.json,
            args.quiet,
            &bar,
        );
    }
    let cache = args.cache.unwrap_or(mount_options::CACHE_SIZE_DEFAULT);
    let options = CheckOptions {
        data: !args.no_data,
        cache_size: usize::try_from(cache).unwrap_or(usize::MAX),
    };
    let progress = &mut |progress: CheckProgress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    };
    let platform = HostPlatform::new();
    let report = match args.repair {
        false => host::with_medium(&args.image, |medium| {
            check(medium.clone(), platform.clone(), &options, progress)
        })
        .map(|report| (report, None)),
        true => host::with_medium_to_write(&args.image, |medium| {
            repair(medium.clone(), platform.clone(), &options, progress)
        })
        .map(|report| (report.after.clone(), Some(report))),
    };
    bar.finish_and_clear();
    let (report, repaired) = report?;
    if args.json {
        let repaired = repaired.as_ref().map(|repaired| repaired.copies + repaired.counts);
        output::json(&json_report(&report, &options, repaired))?;
    } else {
        if let Some(repaired) = &repaired {
            print_repaired(repaired)?;
        }
        print(&report, args)?;
    }
    verdict(&report, args)
}

fn progress_bar(args: &Args) -> ProgressBar {
    let doing = if args.salvage.is_some() { "searching" } else { "checking" };
    let style =
        ProgressStyle::with_template(&format!("{doing} {{bar:30}} {{percent:>3}} %, {{eta}} left"));
    let bar = ProgressBar::new(0);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn json_report<'a>(
    report: &'a CheckReport,
    options: &CheckOptions,
    repaired: Option<u64>,
) -> JsonReport<'a> {
    let findings = report.findings.iter().map(json_finding);
    JsonReport {
        clean: report.is_clean(),
        damaged: report.damaged,
        degraded: report.degraded,
        findings: findings.collect(),
        nodes: report.nodes,
        inodes: report.inodes,
        directories: report.directories,
        data_blocks: report.data_blocks,
        data_verified: options.data,
        used_blocks: report.used_blocks,
        replayed_records: report.replayed_records,
        repaired,
    }
}

fn json_finding(finding: &Finding) -> JsonFinding<'_> {
    let path = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    let end = finding.bytes.as_ref().map(|bytes| bytes.end);
    JsonFinding {
        severity: name(finding.severity),
        text: &finding.text,
        block: finding.block.map(|block| block.0),
        inode: finding.inode.map(|inode| inode.0),
        byte_start: finding.bytes.as_ref().map(|bytes| bytes.start),
        byte_end: end.filter(|end| *end != u64::MAX),
        paths: finding.paths.iter().map(path).collect(),
        more_paths: finding.more_paths,
    }
}

fn name(severity: Severity) -> &'static str {
    match severity {
        Severity::Degraded => "degraded",
        Severity::Damaged => "damaged",
    }
}

/// Prints one line for each repaired finding.
pub fn print_repaired(report: &RepairReport) -> Outcome {
    let mut output = Output::new();
    for finding in report.repaired() {
        output.line(format_args!("repaired: {finding}"))?;
    }
    output.finish()
}

fn print(report: &CheckReport, args: &Args) -> Outcome {
    let mut output = Output::new();
    for finding in &report.findings {
        output.line(format_args!("{}: {finding}", name(finding.severity)))?;
    }
    let more = (report.damaged + report.degraded).saturating_sub(report.findings.len() as u64);
    if more > 0 {
        output.line(format_args!("... and {more} more"))?;
    }
    if report.is_clean() && !args.quiet {
        let data = if args.no_data { "data not read" } else { "all verified" };
        output.line(format_args!(
            "{}: clean: {} inodes ({} directories), {} tree nodes, {} data blocks ({data}), {} log records",
            args.image.display(),
            report.inodes,
            report.directories,
            report.nodes,
            report.data_blocks,
            report.replayed_records,
        ))?;
    }
    output.finish()
}

fn verdict(report: &CheckReport, args: &Args) -> Outcome {
    let image = args.image.display();
    if report.damaged > 0 {
        let advice = match report.newer_state_lost {
            true => OLDER_STATE,
            false => {
                "copy what can still be read with 'steadfast check --salvage DIR', then make a new volume"
            }
        };
        let what = format!("the volume is damaged in {} places", report.damaged);
        return Err(Failure::new(Exit::Damaged, what, image, advice));
    }
    if report.degraded > 0 {
        return Err(Failure::new(
            Exit::Degraded,
            format!("nothing is lost, but {} copies are damaged", report.degraded),
            image,
            "save what matters and look at the storage below",
        ));
    }
    Ok(())
}
