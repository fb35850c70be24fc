//! `steadfast flash rebuild`: the last resort for a part whose translation layer does not open or
//! cannot read its map.

use serde::Serialize;
use steadfast_flash::ftl::{FlashError, Ftl, RebuildReport};
use steadfast_host::nand::FlashDevice;

use super::PlaceArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::flash_place::NandAccess;
use crate::open_failure;
use crate::output;

/// Rebuild map, block table and journal of the translation layer, from what every page of the part
/// records about itself
///
/// The last resort, for a flash volume that does not open or cannot read a page of its map. Small
/// writes and trims of the last moments may be lost: run 'steadfast check' afterwards. The command
/// can be interrupted and run again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Rebuild even if the flash volume opens
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The JSON document. Fields are added over time and never change their meaning.
#[derive(Debug, Serialize)]
struct RebuildJson {
    pages_read: u64,
    /// Programmed pages that cannot be corrected, counted at each read. Power cuts leave most of
    /// them.
    unreadable_pages: u64,
    /// Logical pages found in data pages.
    data_pages: u32,
    /// Logical pages found in the journal and its spill pages.
    short_pages: u32,
    /// Spill pages that the journal names and that cannot be read. Small writes of the last moments
    /// may be lost.
    spills_lost: u32,
}

/// Runs the command.
///
/// # Errors
/// There is no NAND, or no journal of a translation layer on it. It is in use. It opens and
/// `--force` is not given. Those of the part.
pub fn run(args: &Args) -> Outcome {
    let place = args.place.find()?;
    let failed = |error: FlashError| open_failure::of_layer(&error, &place.path);
    let mut nand = place.open(NandAccess::Write)?;
    if !args.force && Ftl::mount(&mut nand, true).is_ok() {
        let advice =
            "nothing needs to be made anew; if it cannot be read all the same, use --force";
        return Err(Failure::new(
            Exit::Busy,
            "the flash volume opens",
            place.path.display(),
            advice,
        ));
    }
    let (device, found) = FlashDevice::rebuild(nand).map_err(failed)?;
    device.with(|ftl| ftl.close()).map_err(failed)?;
    let RebuildReport { pages_read, unreadable_pages, data_pages, short_pages, spills_lost } =
        found;
    let report = RebuildJson { pages_read, unreadable_pages, data_pages, short_pages, spills_lost };
    if args.json {
        return output::json(&report);
    }
    output::line(format_args!(
        "{}: made anew from {pages_read} pages read, {unreadable_pages} unreadable; {data_pages} logical pages found, {short_pages} \
         in the journal, {spills_lost} spill pages lost",
        args.place.target.display(),
    ))
}
