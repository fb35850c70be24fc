//! Images and block devices of this machine: opening them, and inspecting their locks.

use std::fs::{self, File, OpenOptions as OpenOptionsHost, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use steadfast::tools::{self, Identity};
use steadfast::{Error, OpenOptions, Volume};
use steadfast_host::{FileMedium, FileOptions, HostPlatform, LockMode, OpenError, Window};

use crate::failure::{Exit, Failure, Outcome};
use crate::medium::{HostMedium, HostVolume};
use crate::open_failure;
use crate::{cluster, ending, mtd, network, rados, remote, window};

/// Sector of a disk, bytes.
pub(crate) const SECTOR: u32 = 512;

/// How an image or block device uses the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the page cache of the host.
    Cached,
    /// For a mount, because the kernel caches the data above. It is as `Cached`, but large reads,
    /// and writes of data to a device, bypass the page cache. See [`FileOptions::cached_above`].
    CachedAbove,
    /// Past the page cache.
    Direct,
}

/// Opens an image or block device and locks it: exclusively for writing, shared with other readers
/// for reading. Waits for a daemon that is [about to end](ending).
///
/// # Errors
/// What the operating system reports, and "in use" with advice.
pub fn open_medium(path: &Path, read_only: bool, way: Way) -> Outcome<HostMedium> {
    ending::wait_for(path, || open_medium_at_once(path, read_only, way))
}

fn open_medium_at_once(path: &Path, read_only: bool, way: Way) -> Outcome<HostMedium> {
    if remote::is_remote(path) {
        return remote::open(path, read_only);
    }
    if rados::is_rados(path) {
        return rados::open(path, read_only);
    }
    if cluster::is_cluster(path) {
        return Err(cluster::only_mount(path));
    }
    if mtd::is_mtd(path) {
        return mtd::open(path, read_only);
    }
    let (direct, cached_above) = (way == Way::Direct, way == Way::CachedAbove);
    open_with(path, &FileOptions { read_only, direct, cached_above, ..FileOptions::default() })
}

/// Opens the volume in an image or on a block device.
///
/// # Errors
/// As [`open_medium`] and [`Volume::open`].
pub fn open_volume(path: &Path, way: Way, options: OpenOptions) -> Outcome<HostVolume> {
    open_volume_with(path, way, options, |medium, options| {
        Volume::open(medium, options, HostPlatform::new())
    })
}

/// As [`open_volume`], where `open` opens the volume on its medium.
///
/// # Errors
/// As [`open_medium`], and those of `open`.
pub fn open_volume_with(
    path: &Path,
    way: Way,
    options: OpenOptions,
    open: impl Fn(HostMedium, OpenOptions) -> Result<HostVolume, Error>,
) -> Outcome<HostVolume> {
    let medium = open_medium(path, options.read_only, way)?;
    if way == Way::Direct {
        // Direct I/O works in sectors of the storage below, whatever the volume's block size is.
        return open(medium, options).map_err(|error| {
            let mut failure = Failure::core(error, path.display());
            if matches!(error, Error::BadBlockSize(_)) {
                failure.advice = "leave -o direct out".into();
            }
            failure
        });
    }
    retry_small_sectors(path, medium, options.read_only, |medium| open(medium, options.clone()))
}

/// Opens a snapshot of the volume in an image or on a block device, read-only.
///
/// # Errors
/// As [`open_medium`] and [`Volume::open_snapshot`].
pub fn open_snapshot(
    path: &Path,
    way: Way,
    options: OpenOptions,
    name: &str,
) -> Outcome<HostVolume> {
    let medium = open_medium(path, true, way)?;
    let opened = retry_small_sectors(path, medium, true, |medium| {
        Volume::open_snapshot(medium, HostPlatform::new(), options.clone(), name)
    });
    opened.map_err(|failure| no_snapshot(failure, path, name))
}

/// Turns `NotFound` into the failure that names the snapshot.
fn no_snapshot(failure: Failure, path: &Path, name: &str) -> Failure {
    match failure.what == Error::NotFound.to_string() {
        true => Failure::new(
            Exit::Failed,
            format!("there is no snapshot '{name}'"),
            path.display(),
            "see 'steadfast snapshot list'",
        ),
        false => failure,
    }
}

/// As [`with_medium`], if `work` returns `NotFound` for a missing snapshot.
///
/// # Errors
/// As [`with_medium`].
pub fn with_snapshot_named<T>(
    path: &Path,
    name: Option<&str>,
    work: impl FnMut(&HostMedium) -> Result<T, Error>,
) -> Outcome<T> {
    with_medium(path, work).map_err(|failure| match name {
        Some(name) => no_snapshot(failure, path, name),
        None => failure,
    })
}

/// Opens an image or block device read-only and runs `work` on it.
///
/// # Errors
/// As [`open_medium`], and what `work` returns.
pub fn with_medium<T>(
    path: &Path,
    work: impl FnMut(&HostMedium) -> Result<T, Error>,
) -> Outcome<T> {
    let mut work = work;
    let medium = open_medium(path, true, Way::Cached)?;
    retry_small_sectors(path, medium, true, |medium| work(&medium))
}

/// As [`with_medium`], for work that may write: the volume is locked exclusively.
///
/// # Errors
/// As [`with_medium`].
pub fn with_medium_to_write<T>(
    path: &Path,
    mut work: impl FnMut(&HostMedium) -> Result<T, Error>,
) -> Outcome<T> {
    let medium = open_medium(path, false, Way::Cached)?;
    retry_small_sectors(path, medium, false, |medium| work(&medium))
}

/// Reads the identity of the volume on an image or block device from its superblock alone. Takes no
/// lock, so it works while the volume is mounted or being made.
///
/// # Errors
/// As [`open_medium`], and `NotAVolume` if there is no volume.
pub fn identify(path: &Path) -> Outcome<Identity> {
    if rados::is_rados(path) {
        let found = tools::identify(&rados::open(path, true)?, &HostPlatform::new());
        return found.map_err(|error| Failure::core(error, path.display()));
    }
    let attempt = |block_size: u32| -> Outcome<_> {
        let options = FileOptions { lock: LockMode::None, ..small_sectors(true, block_size) };
        let medium = match mtd::is_mtd(path) {
            true => mtd::open(path, true)?,
            false => open_with(path, &options)?,
        };
        Ok((!is_device(path), tools::identify(&medium, &HostPlatform::new())))
    };
    let result = match attempt(SECTOR)? {
        (true, Err(Error::BadBlockSize(block_size))) => attempt(block_size)?.1,
        (_, result) => result,
    };
    result.map_err(|error| Failure::core(error, path.display()))
}

/// Runs `open` on the medium. The image of another medium may have smaller blocks than a disk's
/// sectors. Then `open` runs again with sectors of the block's size.
fn retry_small_sectors<T>(
    path: &Path,
    medium: HostMedium,
    read_only: bool,
    mut open: impl FnMut(HostMedium) -> Result<T, Error>,
) -> Outcome<T> {
    let file = !is_device(path);
    let result = match open(medium) {
        Err(Error::BadBlockSize(block_size)) if file => {
            open(open_with(path, &small_sectors(read_only, block_size))?)
        }
        result => result,
    };
    result.map_err(|error| Failure::core(error, path.display()))
}

/// Opens an image that was made with blocks of `block_size` bytes, for writing.
///
/// # Errors
/// As [`open_medium`].
pub fn create_open(path: &Path, block_size: u32) -> Outcome<HostMedium> {
    open_with(path, &small_sectors(false, block_size))
}

pub(crate) fn open_with(path: &Path, options: &FileOptions) -> Outcome<HostMedium> {
    if let Some(place) = window::find(path)? {
        let opened = Window::open(&place.path, place.start, place.length, options);
        return Ok(Arc::new(opened.map_err(|error| open_failure::of_file(&error, path))?));
    }
    let opened =
        FileMedium::open(path, options).map_err(|error| open_failure::of_file(&error, path))?;
    Ok(Arc::new(opened))
}

/// Blocks smaller than a disk's sector are for other media; in an image file they only have to fit.
pub(crate) fn small_sectors(read_only: bool, block_size: u32) -> FileOptions {
    let small = block_size < SECTOR && block_size.is_power_of_two();
    FileOptions { read_only, atomic_unit: small.then_some(block_size), ..FileOptions::default() }
}

/// Whether a process of this machine has the image or device locked or claimed. An image that no
/// longer exists, or that this process may not open, counts as free: there is nothing to wait for.
///
/// # Errors
/// The lock cannot be inspected.
pub fn is_locked(path: &Path) -> Outcome<bool> {
    if remote::is_remote(path) {
        return Ok(remote::is_locked(path));
    }
    if rados::is_rados(path) {
        return Ok(rados::is_locked(path));
    }
    if cluster::is_cluster(path) {
        return Ok(ending::daemon_of(path).is_some());
    }
    let cannot = |error: io::Error| Failure::host(&error, "look at the lock of", path);
    if mtd::is_mtd(path) {
        return Ok(mtd::is_locked(path));
    }
    if window::is_part(path) {
        let opened = open_with(path, &FileOptions::default());
        return Ok(opened.is_err_and(|failure| failure.exit == Exit::Busy));
    }
    let Ok(metadata) = fs::metadata(path) else { return Ok(false) };
    if metadata.file_type().is_block_device() {
        let claim =
            OpenOptionsHost::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
        return Ok(claim.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY)));
    }
    let Ok(file) = File::open(path) else { return Ok(false) };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

/// The process that has the image open for writing, if the kernel reveals it.
pub fn lock_owner(path: &Path) -> Option<u32> {
    if window::is_part(path) || cluster::is_cluster(path) {
        // The table of locks does not tell which process has which part of a file.
        return ending::daemon_of(path);
    }
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    match FileMedium::open(path, &options) {
        Err(OpenError::InUse { owner, .. }) => owner.map(|owner| owner.pid),
        _ => None,
    }
}

/// Whether the path is that of a device or an array and not of an image file: its size and its
/// units are given. An image of a NAND part counts as its part, and a part of a file as a
/// partition.
pub fn is_device(path: &Path) -> bool {
    network::is_address(path)
        || window::is_part(path)
        || fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_file())
        || mtd::is_mtd(path)
}
