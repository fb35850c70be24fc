//! `steadfast image build --nand`: the image of a NAND part that holds the volume, for a device
//! programmer.
//!
//! The file has every page with its out-of-band bytes, including parities if the part has no code
//! of its own. It is meant for programmers that write each block to the next good one: the first
//! mount finds out where the blocks are. If the bad blocks of a part are named (`--nand-bad`),
//! blocks keep their places, and the bad ones stay empty.

use std::path::Path;
use std::sync::Arc;

use steadfast::{FormatOptions, OpenOptions, Timestamp, Volume, VolumeInfo};
use steadfast_flash::nand::BlockNumber;
use steadfast_flash::part::Part;
use steadfast_host::HostPlatform;
use steadfast_host::nand::{FlashDevice, HostNand, NandImage, medium_geometry};

use super::fill::fill;
use crate::failure::{Exit, Failure, Outcome};
use crate::medium::HostMedium;
use crate::open_failure;
use crate::source::SourceTree;

/// Bytes of the volume on this part.
///
/// # Errors
/// The part is too small for a translation layer.
pub fn size(part: &Part, image: &Path) -> Outcome<u64> {
    let geometry =
        medium_geometry(&part.geometry).map_err(|error| open_failure::of_layer(&error, image))?;
    Ok(geometry.size)
}

/// Makes the image in a new file, fills the volume, and reads it back.
///
/// # Errors
/// What is wrong with the source or the host; a source that does not fit.
pub fn build(
    part: &Part,
    bad: &[u32],
    options: &FormatOptions,
    source: &SourceTree,
    now: Timestamp,
    at: (&Path, &Path),
    bar: &indicatif::ProgressBar,
) -> Outcome<VolumeInfo> {
    let (partial, image) = at;
    let at_image = |error| Failure::core(error, image.display());
    let mut nand = open_part(partial, image, part, true)?;
    for block in bad {
        nand.mark_bad(BlockNumber(*block)).map_err(|error| {
            let advice = format!("the part has blocks 0 to {}", part.geometry.blocks - 1);
            Failure::new(Exit::Usage, error.to_string(), image.display(), advice)
        })?;
    }
    // The number comes from the UUID, so the same source gives the same bytes.
    let [a, b, c, d, e, f, g, h, ..] = options.uuid;
    let number = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let formatted = match bad {
        [] => FlashDevice::format_image(nand, number),
        _ => FlashDevice::format(nand, number),
    };
    let device = formatted.map_err(|error| open_failure::of_layer(&error, image))?;
    let medium: HostMedium = Arc::new(device);
    let clock = HostPlatform::stopped_at(now);
    Volume::format(&medium, options, &clock).map_err(at_image)?;
    let opening = OpenOptions { access_times: false, ..OpenOptions::default() };
    let volume = Volume::open(medium, opening, HostPlatform::stopped_at(now)).map_err(at_image)?;
    fill(&volume, source, options.mask, image, bar)?;
    volume.close().map_err(at_image)?;
    drop(volume);
    check(part, partial, image)
}

/// Opens the image in the same way as the product.
fn check(part: &Part, partial: &Path, image: &Path) -> Outcome<VolumeInfo> {
    let at_image = |error| Failure::core(error, image.display());
    let nand = open_part(partial, image, part, false)?;
    let device =
        FlashDevice::open(nand, true).map_err(|error| open_failure::of_layer(&error, image))?;
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let medium: HostMedium = Arc::new(device);
    let volume = Volume::open(medium, options, HostPlatform::new()).map_err(at_image)?;
    let info = volume.info();
    volume.close().map_err(at_image)?;
    Ok(info)
}

fn open_part(partial: &Path, image: &Path, part: &Part, new: bool) -> Outcome<HostNand> {
    let opened = match new {
        true => NandImage::create(partial, part),
        false => NandImage::open(partial, part, false),
    };
    let nand = opened.map_err(|error| open_failure::of_flash(error, image))?;
    nand.with_code(part).map_err(|error| {
        Failure::new(Exit::Failed, error.to_string(), image.display(), "use another part")
    })
}
