//! `steadfast check --salvage`: copies what can still be read of a damaged volume to the host.
//!
//! The core says what there is ([`steadfast::salvage`]); this writes it below a new directory. Names come from the image,
//! which may be anybody's: every directory on the way was made here, nothing is followed, nothing is overwritten.

mod attributes;
mod copy;
mod report;

use std::path::Path;

use indicatif::ProgressBar;
use steadfast::salvage::Salvage;
use steadfast_host::HostPlatform;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{host, size};
use copy::Copy;

/// Name of the report in the directory.
pub const REPORT: &str = "salvage-report.txt";

/// Copies everything out of `image` into `directory`, which is made, or is empty.
///
/// # Errors
/// Where nothing says what the volume was, where the host cannot take it, and, when all that is left has been copied, that
/// something is missing.
pub fn run(image: &Path, directory: &Path, json: bool, quiet: bool, bar: &ProgressBar) -> Outcome {
    // The image first: a wrong path leaves no directory behind.
    let summary = host::with_medium(image, |medium| {
        let platform = HostPlatform::new();
        let salvage = Salvage::gather(medium, &platform, &mut |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        })?;
        bar.finish_and_clear();
        Ok(Copy::new(directory, image).and_then(|copy| copy.run(&salvage)))
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
