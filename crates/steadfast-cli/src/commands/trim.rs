//! `steadfast trim`: returns free space of an image, a device or a mounted volume to the storage
//! below, as fstrim does for other file systems.

use std::path::PathBuf;

use crate::failure::{Failure, Outcome};
use crate::image::{Access, Image};
use crate::target::Target;
use crate::{output, size};

/// Give the free space of a volume back to the storage below
///
/// An image file becomes sparse there; a device is told to discard it. fstrim(8) does the same for
/// a mounted volume. Free space of a mounted volume includes what the last transaction point does
/// not need; with a mask without 'timer' this command sets no point.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image, block device, or directory of a mounted volume
    target: PathBuf,
    /// Leave out free runs that are shorter
    #[arg(
        short,
        long,
        value_parser = size::parse,
        allow_hyphen_values = true,
        default_value = "0",
        value_name = "SIZE"
    )]
    minimum: u64,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image; no permission; a transaction that holds the mounted volume.
pub fn run(args: &Args) -> Outcome {
    let path = args.target.as_path();
    let discarded = match Target::find(path)? {
        Target::Mounted(live) => live.trim(args.minimum)?,
        _ => {
            let image = Image::open(path, Access::Write)?;
            let discarded = image
                .volume
                .trim(args.minimum)
                .map_err(|error| Failure::core(error, path.display()))?;
            image.close()?;
            discarded
        }
    };
    output::line(format_args!(
        "{}: {} ({discarded} bytes) trimmed",
        path.display(),
        size::human(discarded)
    ))
}
