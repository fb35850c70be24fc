//! `steadfast df`: the usage of volumes.

use std::path::{Path, PathBuf};

use rustix::fs::fstatvfs;
use steadfast::fs::Statistics;

use crate::answers;
use crate::failure::{Failure, Outcome};
use crate::image::{Access, Image};
use crate::live::Live;
use crate::mounts;
use crate::output::{self, Output};
use crate::report::DfReport;
use crate::target::Target;

/// Show how full volumes are
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Images, block devices or mount points; without one, every mounted volume
    #[arg(value_name = "IMAGE|DIR")]
    targets: Vec<PathBuf>,
    /// Print JSON: one document, a list
    #[arg(long)]
    json: bool,
    /// Ask each file system for its statistics, and print nothing
    #[arg(long, hide = true)]
    answers: bool,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the targets that cannot be read; the others are shown.
pub fn run(args: &Args) -> Outcome {
    let targets = if args.targets.is_empty() {
        let mounts = mounts::all()
            .map_err(|error| Failure::host(&error, "read", "/proc/self/mountinfo".as_ref()))?;
        mounts.into_iter().map(|mount| mount.directory).collect()
    } else {
        args.targets.clone()
    };
    if args.answers {
        // Only that this call returns matters.
        targets.iter().for_each(|target| drop(rustix::fs::statvfs(target)));
        return Ok(());
    }
    let mut reports = Vec::new();
    let mut failed = None;
    for (target, silent) in targets.iter().zip(answers::silent(&targets)) {
        let report = if silent { Err(answers::failure(target)) } else { report(target) };
        match report {
            Ok(report) => reports.push(report),
            // As in df(1), a failure does not hide the other targets.
            Err(failure) => {
                if let Some(earlier) = failed.replace(failure) {
                    eprintln!("{earlier}");
                }
            }
        }
    }
    if args.json {
        output::json(&reports)?;
    } else if failed.is_none() || !reports.is_empty() {
        print(&reports)?;
    }
    failed.map_or(Ok(()), Err)
}

fn print(reports: &[DfReport]) -> Outcome {
    let mut output = Output::new();
    output.line(DfReport::HEADING)?;
    for report in reports {
        report.print(&mut output)?;
    }
    output.finish()
}

fn report(target: &Path) -> Outcome<DfReport> {
    match Target::find(target)? {
        Target::Mounted(live) => {
            let directory = live.directory().display().to_string();
            let statistics = statistics_live(&live)?;
            Ok(DfReport::new(
                &statistics,
                live.mount.source.display().to_string(),
                Some(directory),
                false,
            ))
        }
        Target::Image(path) => {
            let image = Image::open(&path, Access::Read)?;
            let statistics =
                image.volume.statistics().map_err(|error| Failure::core(error, path.display()))?;
            image.close()?;
            Ok(DfReport::new(&statistics, path.display().to_string(), None, true))
        }
    }
}

/// The statfs data of a mounted volume. It does not count freed blocks that wait for the next
/// checkpoint.
pub fn statistics_live(live: &Live) -> Outcome<Statistics> {
    let values = fstatvfs(live.file()).map_err(|errno| {
        Failure::host(&errno.into(), "read the statistics of", live.directory())
    })?;
    Ok(Statistics {
        block_size: u32::try_from(values.f_frsize).unwrap_or(u32::MAX),
        blocks: values.f_blocks,
        blocks_free: values.f_bfree,
        blocks_available: values.f_bavail,
        blocks_unpublished: 0,
        blocks_snapshots: 0,
        blocks_almost_free: 0,
        inodes: values.f_files.saturating_sub(values.f_ffree),
        name_max: u32::try_from(values.f_namemax).unwrap_or(u32::MAX),
    })
}
