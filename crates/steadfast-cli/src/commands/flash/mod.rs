//! `steadfast flash`: raw NAND, and the translation layer on it.
//!
//! [`survey`] examines a part; `info`, `map` and `top` show the result.

mod format;
mod info;
mod map;
mod rebuild;
mod scrub;
mod survey;
mod top;

use std::path::PathBuf;

use steadfast_flash::part::Part;

use crate::failure::{Failure, Outcome};
use crate::flash_place::{FlashPlace, not_flash};
use crate::{lab_program, mounts, mtd};

/// Raw NAND flash: make and inspect the translation layer on a part, and try it on a model
///
/// DEVICE is an MTD device such as /dev/mtd0, IMAGE the image of a part with its out-of-band bytes.
/// DEVICE@64..512 means its erase blocks 64 to 511. That form works wherever a volume can be named.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: FlashCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FlashCommand {
    Format(format::Args),
    Info(info::Args),
    Map(map::Args),
    Rebuild(rebuild::Args),
    Scrub(scrub::Args),
    Top(top::Args),
    /// Cut the power in the middle of programs and erasures of a modelled NAND part (the package
    /// steadfast-lab has it)
    Torture(lab_program::Args),
}

/// Runs the command.
///
/// # Errors
/// Those of the subcommand.
pub fn run(args: &Args) -> Outcome {
    match &args.command {
        FlashCommand::Format(args) => format::run(args),
        FlashCommand::Info(args) => info::run(args),
        FlashCommand::Map(args) => map::run(args),
        FlashCommand::Rebuild(args) => rebuild::run(args),
        FlashCommand::Scrub(args) => scrub::run(args),
        FlashCommand::Top(args) => top::run(args),
        FlashCommand::Torture(args) => lab_program::run(&["flash-torture"], args),
    }
}

/// The target of the commands.
#[derive(Debug, clap::Args)]
struct PlaceArgs {
    /// MTD device, image of a NAND part, or where its volume is mounted; @FIRST..END: only these
    /// erase blocks
    #[arg(value_name = "DEVICE|IMAGE|DIR")]
    target: PathBuf,
    /// The part that an image is of, if nothing in it says so: slc-1gbit, spi-1gbit, slc-4k or
    /// mlc-16gbit
    #[arg(long, value_name = "PART", value_parser = mtd::parse_part)]
    part: Option<Part>,
}

impl PlaceArgs {
    /// Finds the target's NAND.
    ///
    /// # Errors
    /// There is none.
    fn find(&self) -> Outcome<FlashPlace> {
        let mount = match self.target.is_dir() {
            true => mounts::at(&self.target)
                .map_err(|error| Failure::host(&error, "read", "/proc/self/mountinfo".as_ref()))?,
            false => None,
        };
        let path = mount.map_or_else(|| self.target.clone(), |mount| mount.source);
        match &self.part {
            Some(part) => FlashPlace::named(&path, part),
            None => FlashPlace::find(&path).ok_or_else(|| not_flash(&path)),
        }
    }
}
