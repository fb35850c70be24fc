//! Volumes in image files and on block devices of the host.

use std::ffi::OsStr;
use std::fs::OpenOptions as HostOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use core::ffi::{c_char, c_int};

use engine::{Error, OpenOptions};
use steadfast_host::{FileMedium, FileOptions, OpenError};
use steadfast_media::Medium;

use crate::codes;
use crate::error::Failure;
use crate::guard::{Outcome, call_int, check_place, text};
use crate::medium::AnyMedium;
use crate::options::{self, SF_FORMAT_OVERWRITE, sf_format_options, sf_open_options};
use crate::volume::{self, sf_volume};
use crate::{Core, Surroundings};

/// A sector of a disk, in bytes. Smaller blocks are meant for other media; here they only have to
/// fit the file.
const SECTOR: u32 = 512;
/// Bytes to wipe at each end before formatting again: more than the fixed structures of a volume
/// take there.
const WIPE: u64 = 256 << 10;

fn failure(error: &OpenError) -> Failure {
    let code = match error {
        OpenError::NotFound(_) => codes::SF_ENOENT,
        OpenError::AlreadyExists(_) => codes::SF_EEXIST,
        OpenError::PermissionDenied { .. } => codes::SF_EACCES,
        OpenError::WriteProtected(_) => codes::SF_EROFS,
        OpenError::InUse { .. } | OpenError::InUseBelow { .. } | OpenError::DeviceInUse(_) => {
            codes::SF_EBUSY
        }
        OpenError::NotAMedium { .. } | OpenError::AtomicUnit { .. } => codes::SF_EINVAL,
        OpenError::DirectUnsupported(_) => codes::SF_EOPNOTSUPP,
        OpenError::Size { source, .. } | OpenError::Io { source, .. } => {
            source.raw_os_error().unwrap_or(codes::SF_EIO)
        }
        _ => codes::SF_EIO,
    };
    Failure::new(code, error)
}

fn file_options(read_only: bool, block_size: u32) -> FileOptions {
    let small = block_size < SECTOR && block_size.is_power_of_two();
    FileOptions { read_only, atomic_unit: small.then_some(block_size), ..FileOptions::default() }
}

fn open_file(path: &Path, options: &FileOptions) -> Outcome<FileMedium> {
    FileMedium::open(path, options).map_err(|error| failure(&error))
}

/// The path in a C string.
///
/// # Safety
/// As [`text`].
unsafe fn host_path<'a>(path: *const c_char) -> Outcome<&'a Path> {
    // SAFETY: the caller keeps the contract of `text`.
    let path = unsafe { text(path, "path") }?;
    Ok(Path::new(OsStr::from_bytes(path)))
}

/// Creates a file to format, or opens an existing one if `overwrite` allows it.
fn make(path: &Path, size: u64, block_size: u32, overwrite: bool) -> Outcome<FileMedium> {
    let options = file_options(false, block_size);
    if size != 0 {
        match FileMedium::create(path, size, &options) {
            Ok(medium) => return Ok(medium),
            Err(OpenError::AlreadyExists(_)) if overwrite => {}
            Err(error) => return Err(failure(&error)),
        }
    } else if !path.exists() {
        return Err(Failure::invalid(format_args!("{}: a new image needs a size", path.display())));
    } else if !overwrite {
        return Err(failure(&OpenError::AlreadyExists(path.to_owned())));
    }
    // Opening locks the file, so the lock comes before any change.
    let mut medium = open_file(path, &options)?;
    if size != 0 && !medium.is_block_device() && size != medium.geometry().size {
        let resized = HostOptions::new().write(true).open(path).and_then(|file| {
            file.set_len(size)?;
            file.sync_all()
        });
        resized.map_err(|error| {
            let code = error.raw_os_error().unwrap_or(codes::SF_EIO);
            Failure::new(code, format_args!("{}: cannot resize: {error}", path.display()))
        })?;
        drop(medium);
        medium = open_file(path, &options)?;
    }
    // Wiping prevents that an older volume is taken for the new one.
    let length = WIPE.min(medium.geometry().size);
    let zeros = std::vec![0; usize::try_from(length).unwrap_or(0)];
    medium.write(0, &zeros).map_err(Error::from)?;
    medium.write(medium.geometry().size - length, &zeros).map_err(Error::from)?;
    Ok(medium)
}

/// Creates a volume in an image file, or on a block device of the system. A file that does not
/// exist is created with `options->size` bytes. An existing file fails with -SF_EEXIST unless
/// `options->flags` has SF_FORMAT_OVERWRITE; then a size of 0 keeps the file's size. The file is
/// synchronised when the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_format_image(
    path: *const c_char,
    options: *const sf_format_options,
) -> c_int {
    call_int("sf_format_image", || {
        // SAFETY: the header requires a C string and a valid structure.
        let (path, (options, flags)) = unsafe { (host_path(path)?, options::format(options)?) };
        let overwrite = flags & SF_FORMAT_OVERWRITE != 0;
        let medium = make(path, options.size.unwrap_or(0), options.block_size, overwrite)?;
        Ok(Core::format(&AnyMedium::Image(medium), &options, &Surroundings::default())?)
    })
}

/// Opens the volume in an image file or on a block device, and locks it. The lock is exclusive, or
/// shared if the volume is opened read-only. `options` may be NULL. On failure `*volume` is
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_open_image(
    path: *const c_char,
    options: *const sf_open_options,
    volume: *mut *mut sf_volume,
) -> c_int {
    call_int("sf_open_image", || {
        check_place(volume, "volume")?;
        // SAFETY: the header requires a C string and a valid structure.
        let (path, (options, background)) = unsafe { (host_path(path)?, options::open(options)?) };
        let core = open_core(path, &options, None)?;
        // SAFETY: the header requires room for a pointer.
        unsafe { volume::open(core, background, volume) }
    })
}

/// Opens a snapshot of the volume in an image file or on a block device as a separate read-only
/// volume. The image is locked as `sf_open_image` does with SF_OPEN_READ_ONLY: it must not be open
/// for writing. Close the snapshot with `sf_close`. `options` may be NULL. On failure `*volume` is
/// unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_snapshot_open_image(
    path: *const c_char,
    name: *const c_char,
    options: *const sf_open_options,
    volume: *mut *mut sf_volume,
) -> c_int {
    call_int("sf_snapshot_open_image", || {
        check_place(volume, "volume")?;
        // SAFETY: the header requires C strings, a valid structure and room for a pointer.
        unsafe {
            let (path, name) = (host_path(path)?, crate::snapshot::name(name, "name")?);
            let (mut options, background) = options::open(options)?;
            options.read_only = true;
            let core = open_core(path, &options, Some(name))?;
            volume::open(core, background, volume)
        }
    })
}

fn open_core(path: &Path, options: &OpenOptions, snapshot: Option<&str>) -> Outcome<Core> {
    let attempt = |block_size| -> Outcome<_> {
        let medium = open_file(path, &file_options(options.read_only, block_size))?;
        let is_file = !medium.is_block_device();
        let (medium, options) = (AnyMedium::Image(medium), options.clone());
        let opened = match snapshot {
            Some(name) => Core::open_snapshot(medium, Surroundings::default(), options, name),
            None => Core::open(medium, options, Surroundings::default()),
        };
        Ok((is_file, opened))
    };
    let at_path =
        |error: Error| Failure::new(codes::of(&error), format_args!("{}: {error}", path.display()));
    match attempt(SECTOR)? {
        // The image was made for a medium with smaller blocks than a disk.
        (true, Err(Error::BadBlockSize(block_size))) => attempt(block_size)?.1.map_err(at_path),
        (_, result) => result.map_err(at_path),
    }
}
