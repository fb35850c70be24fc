//! `steadfast flash scrub`: runs the patrol over a part, so that flipped bits are found while they
//! can be corrected.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use steadfast_flash::ftl::{FlashError, Ftl, ScrubProgress};
use steadfast_flash::nand::Nand;
use steadfast_host::nand::FlashDevice;

use super::PlaceArgs;
use crate::failure::Outcome;
use crate::flash_place::NandAccess;
use crate::open_failure;
use crate::output;

/// Pages per step; progress is shown after each step.
const STEP: u32 = 256;

/// Read what nothing else reads, and move what has too many flipped bits
///
/// Continues where the last patrol has stopped, also after a remount. The volume must not be
/// mounted. With --dry-run the part is only read, and the volume may be mounted.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Most pages to read; by default all that are in use
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(1..))]
    budget: Option<u32>,
    /// Only read and count; move nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of the patrol. Fields are added over time and never change their meaning.
#[derive(Debug, Default, Serialize)]
struct PatrolJson {
    pages_read: u64,
    /// Pages with corrected bits, and the most corrected bits in one codeword.
    corrected_pages: u64,
    bits_max: u16,
    /// Number of corrected bits from which a block is moved.
    bits_bound: u16,
    /// Programmed pages that cannot be corrected. Power cuts leave most of them, and nothing needs
    /// them.
    unreadable_pages: u64,
    moved_pages: u64,
    /// Blocks that are still to be moved.
    blocks_waiting: u32,
    /// The block at which the next patrol continues.
    position: u32,
    /// Everything in use was read.
    complete: bool,
}

/// Runs the command.
///
/// # Errors
/// There is no NAND, or no translation layer on it, or it is in use; those of the part.
pub fn run(args: &Args) -> Outcome {
    let place = args.place.find()?;
    let failed = |error: FlashError| open_failure::of_layer(&error, &place.path);
    let nand = place.open(if args.dry_run { NandAccess::Watch } else { NandAccess::Write })?;
    let device = FlashDevice::open(nand, args.dry_run).map_err(failed)?;
    let report = device.with(|ftl| patrol(ftl, args.budget.unwrap_or(u32::MAX))).map_err(failed)?;
    if !args.dry_run {
        device.with(|ftl| ftl.close()).map_err(failed)?;
    }
    show(&report, &args.place.target, args.json)
}

/// Makes one pass over the part, within the budget. Then moves the blocks that were found bad.
fn patrol<N: Nand>(ftl: &mut Ftl<N>, budget: u32) -> Result<PatrolJson, FlashError> {
    let seen = ftl.report()?;
    let (start, blocks) = (seen.patrol_position, seen.geometry.blocks);
    let writable = ftl.failure().is_none();
    let bar = progress_bar(blocks);
    let mut report =
        PatrolJson { bits_bound: seen.bits_bound, position: start, ..PatrolJson::default() };
    let mut around = false;
    while !report.complete && report.pages_read < u64::from(budget) {
        let left = u64::from(budget) - report.pages_read;
        let progress = ftl.scrub(STEP.min(u32::try_from(left).unwrap_or(STEP)))?;
        add(&mut report, &progress);
        // After the end the patrol continues at block 0. It is complete when it reaches its start.
        report.complete = match (progress.pass_finished, around) {
            (true, false) => start == 0,
            (true, true) => true,
            (false, _) => around && progress.position >= start,
        };
        around |= progress.pass_finished;
        let done = if around {
            blocks - start + progress.position
        } else {
            progress.position - start.min(progress.position)
        };
        bar.set_position(u64::from(done));
    }
    bar.finish_and_clear();
    // Each step moves at least a quarter of a block.
    let mut steps = 8 * blocks;
    while report.complete && writable && report.blocks_waiting > 0 && steps > 0 {
        let progress = ftl.scrub(STEP)?;
        add(&mut report, &progress);
        steps -= 1;
    }
    Ok(report)
}

fn add(report: &mut PatrolJson, progress: &ScrubProgress) {
    report.pages_read += u64::from(progress.pages_read);
    report.corrected_pages += u64::from(progress.corrected_pages);
    report.bits_max = report.bits_max.max(progress.bits_max);
    report.unreadable_pages += u64::from(progress.unreadable_pages);
    report.moved_pages += u64::from(progress.moved_pages);
    report.blocks_waiting = progress.blocks_waiting;
    report.position = progress.position;
}

fn show(report: &PatrolJson, target: &Path, json: bool) -> Outcome {
    if json {
        return output::json(report);
    }
    output::line(format_args!(
        "{}: {} pages read{}, {} with corrected bits (most {}, moved from {} on), {} unreadable, {} moved, {} blocks waiting",
        target.display(),
        report.pages_read,
        if report.complete { ", all in use" } else { "" },
        report.corrected_pages,
        report.bits_max,
        report.bits_bound,
        report.unreadable_pages,
        report.moved_pages,
        report.blocks_waiting,
    ))
}

fn progress_bar(blocks: u32) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(blocks));
    match ProgressStyle::with_template("patrolling {bar:30} {percent:>3} %, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
