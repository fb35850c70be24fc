//! `steadfast check --salvage`: copies everything readable from a damaged volume to the host.
//!
//! The core lists what is readable ([`steadfast::salvage`]); this module writes it below a new
//! directory. Names come from the image and may be hostile. So every directory on a path was made
//! here, no link is followed, and no file is overwritten.

mod attributes;
mod copy;
mod report;

use std::path::Path;

use indicatif::ProgressBar;
use steadfast::salvage::{Salvage, SalvageProgress};
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{host, size};
use copy::SalvageCopy;

/// Name of the report in the directory.
pub const REPORT: &str = "salvage-report.txt";

/// Copies everything from `image`, or from one snapshot in it, into `directory`. The directory is
/// made, or must be empty.
///
/// # Errors
/// Nothing identifies the volume, or the host cannot store the copy. After all that is left has
/// been copied: parts are missing.
pub fn run(
    image: &Path,
    directory: &Path,
    snapshot: Option<&str>,
    json: bool,
    quiet: bool,
    bar: &ProgressBar,
) -> Outcome {
    // The image is opened first, so that a wrong path leaves no directory behind.
    let summary = host::with_snapshot_named(image, snapshot, |medium| {
        let platform = HostPlatform::new();
        let mut progress = |progress: SalvageProgress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        };
        let salvage = match snapshot {
            None => Salvage::gather(medium, &platform, &mut progress)?,
            Some(name) => Salvage::gather_snapshot(medium, &platform, name, &mut progress)?,
        };
        bar.finish_and_clear();
        Ok(SalvageCopy::new(directory, image, snapshot).and_then(|copy| copy.run(&salvage)))
    })??;
    let complete = summary.is_complete();
    if json {
        output::json(&summary)?;
    } else if !quiet || !complete {
        let mut output = Output::new();
        output.line(format_args!("{}: {}", image.display(), summary.line(directory)))?;
        output.finish()?;
    }
    if complete {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Damaged,
        format!(
            "not everything could be salvaged: {} lost, {} files and directories incomplete or doubtful",
            size::human(summary.bytes_lost),
            summary.incomplete
        ),
        image.display(),
        format!("see {}", directory.join(REPORT).display()),
    ))
}
