//! `steadfast snapshot`: read-only states of the whole volume.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use steadfast::{Snapshot, Timestamp};

use super::snapshot_diff;
use crate::failure::{Failure, Outcome};
use crate::image::{Access, Image};
use crate::output::{self, Output};
use crate::snapshot_failure::explain;
use crate::stat_text;
use crate::target::Target;

/// Take, list, delete and return to snapshots of a volume
///
/// A mounted volume shows its snapshots, read-only, in the directory `.snapshots` of its root.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: SnapshotCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SnapshotCommand {
    /// Take a snapshot of everything written up to now
    Create {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Its name, up to 63 bytes; without one, the time in UTC
        name: Option<String>,
    },
    /// List the snapshots, oldest first
    List {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Print JSON: one document, a list
        #[arg(long)]
        json: bool,
    },
    /// Show which paths differ between two snapshots, or a snapshot and the live volume
    ///
    /// One line per path: `+` only in the later state, `-` only in the earlier one, `>` renamed,
    /// `*` in both, with what differs. The time to find the differences depends only on their
    /// number. Names are then read from both states.
    Diff {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// The earlier snapshot
        before: String,
        /// The later one; without it, the live volume
        after: Option<String>,
        /// Print JSON: one document, a list
        #[arg(long)]
        json: bool,
    },
    /// Delete snapshots; their space comes back in the background
    Delete {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Return the volume to a snapshot, dropping everything after it; the snapshot stays
    Rollback {
        /// Image, block device or mount point
        #[arg(value_name = "IMAGE|DIR")]
        target: PathBuf,
        /// Name of the snapshot
        name: String,
        /// Destroy newer snapshots, and continue while files are open for writing; their
        /// descriptors go stale
        #[arg(long)]
        force: bool,
    },
}

/// `steadfast snapshot list --json`.
#[derive(Debug, Serialize)]
struct SnapshotReport {
    name: String,
    generation: u64,
    created: String,
    inodes: u64,
    used_blocks: u64,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the target or the names, and those of the volume; nothing has changed then.
pub fn run(args: &Args) -> Outcome {
    match &args.action {
        SnapshotCommand::Create { target, name } => create(target, name.as_deref()),
        SnapshotCommand::List { target, json } => list(target, *json),
        SnapshotCommand::Diff { target, before, after, json } => {
            snapshot_diff::run(target, before, after.as_deref(), *json)
        }
        SnapshotCommand::Delete { target, names } => delete(target, names),
        SnapshotCommand::Rollback { target, name, force } => roll_back(target, name, *force),
    }
}

fn create(target: &Path, name: Option<&str>) -> Outcome {
    let name = name.map_or_else(name_now, str::to_owned);
    let place = place(target, &name);
    let snapshot = match Target::find(target)? {
        Target::Mounted(live) => live.snapshot_create(&name, &place)?,
        Target::Image(path) => change(&path, &place, |image| image.volume.snapshot_create(&name))?,
    };
    output::line(format_args!("{}: snapshot of {} inodes", snapshot.name, snapshot.inodes))
}

fn list(target: &Path, json: bool) -> Outcome {
    let snapshots = match Target::find(target)? {
        Target::Mounted(live) => live.snapshots()?,
        Target::Image(path) => {
            let image = Image::open(&path, Access::Read)?;
            let found = image.volume.snapshots();
            let snapshots = found.map_err(|error| Failure::core(error, path.display()))?;
            image.close()?;
            snapshots
        }
    };
    if json {
        let report = |snapshot: &Snapshot| SnapshotReport {
            name: snapshot.name.clone(),
            generation: snapshot.generation.0,
            created: stat_text::time(snapshot.created, true),
            inodes: snapshot.inodes,
            used_blocks: snapshot.used_blocks,
        };
        return output::json(&snapshots.iter().map(report).collect::<Vec<_>>());
    }
    let mut output = Output::new();
    output.line(format_args!("{:<25} {:>12} {:>12}  NAME", "CREATED", "INODES", "BLOCKS"))?;
    for snapshot in &snapshots {
        output.line(format_args!(
            "{:<25} {:>12} {:>12}  {}",
            stat_text::time(snapshot.created, false),
            snapshot.inodes,
            snapshot.used_blocks,
            output::printable(snapshot.name.as_bytes()),
        ))?;
    }
    output.finish()
}

fn delete(target: &Path, names: &[String]) -> Outcome {
    match Target::find(target)? {
        Target::Mounted(live) => {
            names.iter().try_for_each(|name| live.snapshot_delete(name, &place(target, name)))
        }
        Target::Image(path) => names.iter().try_for_each(|name| {
            change(&path, &place(target, name), |image| {
                image.volume.snapshot_delete(name)?;
                // An image has no background thread that would do it later.
                while image.volume.background()? {}
                Ok(())
            })
        }),
    }
}

fn roll_back(target: &Path, name: &str, force: bool) -> Outcome {
    let place = place(target, name);
    let before = match Target::find(target)? {
        Target::Mounted(live) => {
            let before = live.snapshots()?;
            live.snapshot_rollback(name, force, &place)?;
            before
        }
        Target::Image(path) => change(&path, &place, |image| {
            let before = image.volume.snapshots()?;
            image.volume.snapshot_rollback(name, force)?;
            Ok(before)
        })?,
    };
    output::line(said_of_rollback(&before, name))
}

/// Describes the effect of a rollback, from the snapshots that existed before it.
fn said_of_rollback(before: &[Snapshot], name: &str) -> String {
    let shown = |name: &str| output::printable(name.as_bytes());
    let Some(back) = before.iter().find(|snapshot| snapshot.name == name) else {
        return format!("{}: the volume is as it was then", shown(name));
    };
    let newer: Vec<String> = before
        .iter()
        .filter(|snapshot| snapshot.generation > back.generation)
        .map(|snapshot| shown(&snapshot.name))
        .collect();
    let destroyed = match newer.len() {
        0 => String::new(),
        1 => format!("; the newer snapshot {} is destroyed", newer.concat()),
        count => format!("; {count} newer snapshots are destroyed: {}", newer.join(", ")),
    };
    let time = stat_text::time(back.created, false);
    format!("{}: the volume is as it was {time}, {} inodes{destroyed}", shown(name), back.inodes)
}

/// Opens the image, changes it and closes it.
fn change<T>(
    path: &Path,
    place: &str,
    change: impl FnOnce(&Image) -> steadfast::Result<T>,
) -> Outcome<T> {
    let image = Image::open(path, Access::Write)?;
    let result = change(&image).map_err(|error| explain(Failure::core(error, place), error));
    image.close().and(result)
}

fn place(target: &Path, name: &str) -> String {
    format!("{}: {}", target.display(), output::printable(name.as_bytes()))
}

fn name_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs() as i64, nanoseconds: 0 };
    stat_text::time(now, true)
}
