//! `steadfast trim`: returns free space of an image or device to the storage below, as fstrim does
//! for other file systems.

use std::path::PathBuf;

use crate::failure::{Exit, Failure, Outcome};
use crate::image::{Access, Image};
use crate::target::Target;
use crate::{output, size};

/// Give the free space of a volume that is not mounted back to the storage below
///
/// An image file becomes sparse there; a device is told to discard it. A mounted volume does that
/// by itself for what becomes free while it is mounted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Leave out free runs that are shorter
    #[arg(short, long, value_parser = size::parse, default_value = "0", value_name = "SIZE")]
    minimum: u64,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image; a volume that is mounted.
pub fn run(args: &Args) -> Outcome {
    let path = args.image.as_path();
    if let Target::Mounted(live) = Target::find(path)? {
        let directory = live.directory().display().to_string();
        let advice = format!(
            "unmount it with 'steadfast umount {directory}': free space of an image is given back then"
        );
        return Err(Failure::new(Exit::Busy, "the volume is mounted", directory, advice));
    }
    let image = Image::open(path, Access::Write)?;
    let block_size = u64::from(image.volume.info().block_size);
    let told = image
        .volume
        .trim(args.minimum.div_ceil(block_size))
        .map_err(|error| Failure::core(error, path.display()))?;
    image.close()?;
    output::line(format_args!("{}: {} ({told} bytes) trimmed", path.display(), size::human(told)))
}
