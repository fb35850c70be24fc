//! NAND (`/dev/mtdN`, images of parts) in place of an image or block device. The volume is on the
//! translation layer.

use std::path::Path;
use std::sync::Arc;

use steadfast_flash::nand::Nand;
use steadfast_flash::part::Part;
use steadfast_host::nand::{FlashDevice, HostNand, is_blank, medium_geometry};
use steadfast_media::Geometry;

use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::flash_place::{FlashPlace, NandAccess, not_flash};
use crate::medium::HostMedium;
use crate::open_failure;

/// Whether the path is NAND: an MTD character device, or an image of a part with a translation
/// layer.
pub fn is_mtd(path: &Path) -> bool {
    FlashPlace::find(path).is_some()
}

/// The part with this name.
///
/// # Errors
/// A message for the user that lists the known parts.
pub fn parse_part(text: &str) -> Result<Part, String> {
    Part::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = Part::ALL.iter().map(|part| part.name).collect();
        format!("unknown part '{text}': write one of {}", known.join(", "))
    })
}

/// Opens the translation layer on the device.
///
/// # Errors
/// The device cannot be used, or holds no translation layer of this geometry. Nothing was written.
pub fn open(path: &Path, read_only: bool) -> Outcome<HostMedium> {
    let nand = part(path, if read_only { NandAccess::Read } else { NandAccess::Write })?;
    let device =
        FlashDevice::open(nand, read_only).map_err(|error| open_failure::of_layer(&error, path))?;
    Ok(Arc::new(device))
}

/// Makes an empty translation layer on the device.
///
/// # Errors
/// The device cannot be used, is too small, or has too many bad blocks.
pub fn format(path: &Path) -> Outcome<HostMedium> {
    let nand = part(path, NandAccess::Write)?;
    let device = FlashDevice::format(nand, volume_number()?)
        .map_err(|error| open_failure::of_layer(&error, path))?;
    Ok(Arc::new(device))
}

/// A random number for a new volume.
///
/// # Errors
/// The machine has no random bytes.
pub fn volume_number() -> Outcome<u64> {
    let random = steadfast_host::random_uuid().map_err(|error| {
        let what = format!("no random bytes: {}", text_os(&error));
        Failure::new(Exit::Failed, what, "this machine", "make /dev/urandom available")
    })?;
    let [a, b, c, d, e, f, g, h, ..] = random;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

/// The geometry of the device after formatting. Nothing is written.
///
/// # Errors
/// The device cannot be used or is too small.
pub fn geometry_when_formatted(path: &Path) -> Outcome<Geometry> {
    medium_geometry(&part(path, NandAccess::Read)?.geometry())
        .map_err(|error| open_failure::of_layer(&error, path))
}

/// Whether the device holds data.
///
/// # Errors
/// The device cannot be used.
pub fn holds_data(path: &Path) -> Outcome<bool> {
    is_blank(&mut *part(path, NandAccess::Read)?)
        .map(|blank| !blank)
        .map_err(|error| open_failure::of_layer(&error, path))
}

/// Whether a process has the device locked.
pub fn is_locked(path: &Path) -> bool {
    part(path, NandAccess::Read).is_err_and(|failure| failure.exit == Exit::Busy)
}

fn part(path: &Path, access: NandAccess) -> Outcome<HostNand> {
    FlashPlace::find(path).ok_or_else(|| not_flash(path))?.open(access)
}
