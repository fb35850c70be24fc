//! `steadfast flash format`: makes an empty translation layer on a part.

use std::fs;
use std::path::Path;

use serde::Serialize;
use steadfast_flash::ftl::FlashError;
use steadfast_host::nand::{FlashDevice, HostNand, is_blank};

use super::survey::PartSurvey;
use super::{PlaceArgs, info};
use crate::failure::{Exit, Failure, Outcome};
use crate::flash_place::{FlashPlace, NandAccess};
use crate::open_failure;
use crate::output;
use crate::{mtd, size};

/// Make an empty translation layer on a part; 'steadfast mkfs' does that too, and makes the volume
///
/// Keeps the erase counts of an existing translation layer and the marks of bad blocks. A file that
/// does not exist becomes the image of an erased part; --part names the part.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Also format a part that is not empty: everything on it is lost
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON: what 'flash info' prints
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct FlashFormatJson {
    /// The erase counts of an earlier translation layer were kept.
    erase_counts_kept: bool,
    #[serde(flatten)]
    info: info::FlashInfoJson,
}

/// Runs the command.
///
/// # Errors
/// There is no NAND. It is in use or too small. It holds data and `--force` is not given.
pub fn run(args: &Args) -> Outcome {
    let path = args.place.target.as_path();
    let made = !FlashPlace::exists(path) && args.place.part.is_some();
    let (place, mut nand) = match args.place.part.as_ref().filter(|_| made) {
        Some(part) => FlashPlace::create(path, part)?,
        None => {
            let place = args.place.find()?;
            let nand = place.open(NandAccess::Write)?;
            (place, nand)
        }
    };
    let kept = !made && PartSurvey::take_from(&place, &mut nand).is_ok();
    if !args.force && !made {
        refuse_contents(&mut nand, kept, path)?;
    }
    let result = format(nand, path);
    if result.is_err() && made {
        let _ = fs::remove_file(&place.path);
    }
    result?;
    // The result is read back from the part.
    let survey = PartSurvey::take(&place)?;
    let report = FlashFormatJson {
        erase_counts_kept: kept,
        info: info::FlashInfoJson::new(&place, &survey),
    };
    if args.json {
        return output::json(&report);
    }
    output::line(format_args!(
        "{}: translation layer on {}, {} of {} usable, {} bad blocks, erase counts {}",
        path.display(),
        survey.part,
        size::human(survey.usable_bytes()),
        size::human(survey.report.geometry.bytes()),
        survey.bad_blocks().len(),
        if kept { "kept" } else { "begun" },
    ))
}

fn format(nand: HostNand, path: &Path) -> Outcome {
    let failed = |error: FlashError| open_failure::of_layer(&error, path);
    let device = FlashDevice::format(nand, mtd::volume_number()?).map_err(failed)?;
    device.with(|ftl| ftl.close()).map_err(failed)
}

/// Fails if the part holds data that formatting would destroy.
fn refuse_contents(nand: &mut HostNand, ours: bool, path: &Path) -> Outcome {
    if is_blank(&mut **nand).map_err(|error| open_failure::of_layer(&error, path))? {
        return Ok(());
    }
    let what = match ours {
        true => "the part already holds a flash volume",
        false => "the part is not empty, and what it holds is not of Steadfast",
    };
    let advice = "use another part, or lose what is on it with --force";
    Err(Failure::new(Exit::Busy, what, path.display(), advice))
}
