//! Making the images that volumes are formatted on: what is there already, and what may be
//! overwritten.
//!
//! Invariant: nothing on an image changes before this process holds its lock.

use std::fs::{self, OpenOptions as OpenOptionsHost};
use std::io;
use std::path::Path;
use std::sync::Arc;

use steadfast::{FormatOptions, Volume};
use steadfast_host::{FileMedium, HostPlatform, OpenError};
use steadfast_media::{FailureModel, Geometry, Medium, MediumError};

use crate::failure::{Exit, Failure, Outcome};
use crate::host::{SECTOR, Way, is_device, open_medium, open_with, small_sectors};
use crate::medium::{Contents, Created, HostMedium};
use crate::{cluster, mtd, open_failure, rados, remote, size, window};

/// Bytes inspected at each end of an image to find data that formatting would destroy.
const PROBE: u64 = 1 << 20;

/// Bytes wiped at each end before formatting. The fixed structures of a volume take less at each
/// end.
const WIPE: u64 = 256 << 10;

/// Formats nothing. Checks whether [`create_medium`] and [`Volume::format`] would accept these
/// parameters, before anything is made or overwritten.
///
/// # Errors
/// Those of the parameters, and of opening an image that exists.
pub fn try_format(path: &Path, options: &FormatOptions) -> Outcome {
    if remote::is_remote(path) {
        // The size of an array depends on its servers. Making the array reports what does not fit.
        return remote::address(path).map(drop);
    }
    let unit = small_sectors(true, options.block_size).atomic_unit.unwrap_or(SECTOR);
    let geometry = if rados::is_rados(path) {
        rados::geometry_when_created(path, options.size)?
    } else if path.exists() || mtd::is_mtd(path) || window::is_part(path) {
        let found = match mtd::is_mtd(path) {
            true => mtd::geometry_when_formatted(path)?,
            false => open_medium(path, true, Way::Cached)?.geometry(),
        };
        let device = is_device(path);
        match options.size {
            Some(size) if device && size > found.size => {
                return Err(Failure::new(
                    Exit::NoSpace,
                    format!(
                        "{} {}, less than the size asked for",
                        if window::is_part(path) { "there are" } else { "the device has" },
                        size::human(found.size)
                    ),
                    path.display(),
                    "ask for less, or leave --size out to use all of it",
                ));
            }
            _ if device => found,
            size => Geometry { size: size.unwrap_or(found.size), atomic_unit: unit, ..found },
        }
    } else {
        let size = options.size.unwrap_or(0);
        Geometry { size, atomic_unit: unit, failure_model: FailureModel::PowerSafe }
    };
    let dry: HostMedium = Arc::new(DryMedium(geometry));
    let result = Volume::format(&dry, options, &HostPlatform::new());
    result.map_err(|error| Failure::core(error, path.display()))
}

/// Accepts every write and stores none.
struct DryMedium(Geometry);

impl Medium for DryMedium {
    fn geometry(&self) -> Geometry {
        self.0
    }

    fn read(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        buffer.fill(0);
        Ok(())
    }

    fn write(&self, _offset: u64, _data: &[u8]) -> Result<(), MediumError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), MediumError> {
        Ok(())
    }
}

/// Opens an image or block device for formatting. A missing file is made, sparse. An existing file
/// gets `size`. The ends are wiped so that an earlier volume cannot be taken for the new one.
///
/// The contents are inspected under the image's lock: another process may have made a volume since
/// the caller looked.
///
/// # Errors
/// As [`open_medium`]; the host has no room for the size; the image holds data to keep.
pub fn create_medium(
    path: &Path,
    size: Option<u64>,
    block_size: u32,
    contents: Contents,
) -> Outcome<Created> {
    let old = |medium| Created { medium, new: false };
    if remote::is_remote(path) {
        return remote::create(path).map(old);
    }
    if rados::is_rados(path) {
        return rados::create(path, size, contents);
    }
    if cluster::is_cluster(path) {
        return Err(cluster::only_mount(path));
    }
    if mtd::is_mtd(path) {
        return mtd::format(path).map(old);
    }
    let options = small_sectors(false, block_size);
    if let Some(size) = size.filter(|_| !window::is_part(path)) {
        match FileMedium::create(path, size, &options) {
            Ok(medium) => return Ok(Created { medium: Arc::new(medium), new: true }),
            Err(OpenError::AlreadyExists(_)) => {}
            Err(error) => return Err(open_failure::of_new_file(&error, path)),
        }
    }
    // The medium is locked before anything on it changes.
    let mut medium = open_medium(path, false, Way::Cached)?;
    let cannot = |error: MediumError| Failure::core(error.into(), path.display());
    if contents == Contents::Keep && ends_hold_data(&medium).map_err(cannot)? {
        return Err(Failure::new(
            Exit::Busy,
            "another process has just written to the image",
            path.display(),
            "use another image, or overwrite this one with --force",
        ));
    }
    if !is_device(path) {
        if let Some(size) = size.filter(|size| *size != medium.geometry().size) {
            let resize = |error: io::Error| Failure::host(&error, "resize", path);
            let file = OpenOptionsHost::new().write(true).open(path).map_err(resize)?;
            file.set_len(size).and_then(|()| file.sync_all()).map_err(resize)?;
        }
        drop(medium);
        medium = open_with(path, &options)?;
    }
    wipe_ends(&medium).map_err(cannot)?;
    Ok(old(medium))
}

/// Removes an image that [`create_medium`] made. It is left over after a failure, so an error says
/// nothing new.
pub fn remove(path: &Path) {
    let _ = match rados::is_rados(path) {
        true => rados::remove(path).is_ok(),
        false => fs::remove_file(path).is_ok(),
    };
}

fn wipe_ends(medium: &HostMedium) -> Result<(), MediumError> {
    let geometry = medium.geometry();
    let unit = u64::from(geometry.atomic_unit);
    let size = geometry.size - geometry.size % unit;
    let length = WIPE.min(size);
    let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
    medium.write(0, &zeros)?;
    medium.write(size - length, &zeros)
}

/// Whether the image holds anything but zeros near its beginning or its end.
///
/// # Errors
/// The image cannot be read.
pub fn holds_data(path: &Path) -> Outcome<bool> {
    if remote::is_remote(path) {
        return remote::holds_data(path);
    }
    if rados::is_rados(path) {
        return rados::exists(path);
    }
    if mtd::is_mtd(path) {
        return mtd::holds_data(path);
    }
    let medium = open_medium(path, true, Way::Cached)?;
    ends_hold_data(&medium).map_err(|error| Failure::core(error.into(), path.display()))
}

fn ends_hold_data(medium: &HostMedium) -> Result<bool, MediumError> {
    let geometry = medium.geometry();
    let size = geometry.size - geometry.size % u64::from(geometry.atomic_unit);
    let mut buffer = vec![0; 64 << 10];
    let tail = size.saturating_sub(PROBE).max(PROBE.min(size));
    for range in [0..size.min(PROBE), tail..size] {
        let mut offset = range.start;
        while offset < range.end {
            let part = (range.end - offset).min(buffer.len() as u64) as usize;
            medium.read(offset, &mut buffer[..part])?;
            if buffer[..part].iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
            offset += part as u64;
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_got_data_meanwhile_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let create = |contents| create_medium(&path, Some(2 << 20), 4096, contents);
        assert!(create(Contents::Keep).is_ok_and(|created| !created.new), "an empty file is used");
        let mut data = vec![0; 2 << 20];
        data[4096] = 1;
        fs::write(&path, &data).unwrap();
        assert!(create(Contents::Keep).is_err_and(|failure| failure.exit == Exit::Busy));
        assert_eq!(fs::read(&path).unwrap(), data, "a refusal changes nothing");
        assert!(create(Contents::Overwrite).is_ok_and(|created| !created.new));
        assert_eq!(fs::read(&path).unwrap(), vec![0; 2 << 20], "the ends are wiped");
    }
}
