//! Images and block devices of this machine: opening, making, looking at locks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use steadfast_host::{FileMedium, FileOptions, OpenError};
use steadfast_media::Medium;

use crate::failure::{Exit, Failure, Outcome};
use crate::image::mounted_on;
use crate::size;

/// Bytes looked at from each end of an image for something that somebody may miss.
const PROBE: u64 = 1 << 20;

/// Opens an image or block device and locks it: for us alone when writing, among readers when reading.
///
/// # Errors
/// What the operating system says, and "in use" with the advice that helps.
pub fn open_medium(path: &Path, read_only: bool, direct: bool) -> Outcome<FileMedium> {
    let options = FileOptions { read_only, direct, ..FileOptions::default() };
    FileMedium::open(path, &options).map_err(|error| failure(&error, path))
}

/// Opens an image or block device for formatting. A file that does not exist is made, sparse; one that is shorter than
/// `size` grows.
///
/// # Errors
/// As [`open_medium`], and when the host has no room for the size.
pub fn create_medium(path: &Path, size: Option<u64>) -> Outcome<FileMedium> {
    let Some(size) = size else { return open_medium(path, false, false) };
    match FileMedium::create(path, size, &FileOptions::default()) {
        Ok(medium) => return Ok(medium),
        Err(OpenError::AlreadyExists(_)) => {}
        Err(error) => return Err(failure(&error, path)),
    }
    // Locked before it is touched.
    let medium = open_medium(path, false, false)?;
    if medium.geometry().size >= size {
        return Ok(medium);
    }
    if medium.is_block_device() {
        return Err(Failure::new(
            Exit::NoSpace,
            format!("the device has {}, less than the size asked for", size::human(medium.geometry().size)),
            path.display(),
            "ask for less, or leave --size out to use all of it",
        ));
    }
    drop(medium);
    let grow = |error: io::Error| Failure::host(&error, "grow", path);
    let file = OpenOptions::new().write(true).open(path).map_err(grow)?;
    file.set_len(size).and_then(|()| file.sync_all()).map_err(grow)?;
    open_medium(path, false, false)
}

/// Whether the image has anything but zeros near its beginning or its end.
///
/// # Errors
/// When it cannot be read.
pub fn holds_data(path: &Path) -> Outcome<bool> {
    let medium = open_medium(path, true, false)?;
    let size = medium.geometry().size;
    drop(medium);
    let cannot = |error: io::Error| Failure::host(&error, "read", path);
    let file = File::open(path).map_err(cannot)?;
    let mut buffer = vec![0; 64 << 10];
    let tail = size.saturating_sub(PROBE).max(PROBE);
    for range in [0..size.min(PROBE), tail..size] {
        let mut offset = range.start;
        while offset < range.end {
            let want = (range.end - offset).min(buffer.len() as u64) as usize;
            let got = file.read_at(&mut buffer[..want], offset).map_err(cannot)?;
            if got == 0 {
                break;
            }
            if buffer[..got].iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
            offset += got as u64;
        }
    }
    Ok(false)
}

/// Whether some process has the image or device locked or claimed. One that does not exist any more, or that we may
/// not open, counts as free: there is nothing to wait for.
///
/// # Errors
/// When the lock cannot be looked at.
pub fn is_locked(path: &Path) -> Outcome<bool> {
    let cannot = |error: io::Error| Failure::host(&error, "look at the lock of", path);
    let Ok(metadata) = fs::metadata(path) else { return Ok(false) };
    if metadata.file_type().is_block_device() {
        let claim = OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
        return Ok(claim.is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY)));
    }
    let Ok(file) = File::open(path) else { return Ok(false) };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

/// The process that has the image open for writing, as far as the kernel tells.
pub fn lock_owner(path: &Path) -> Option<u32> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    match FileMedium::open(path, &options) {
        Err(OpenError::InUse { owner, .. }) => owner.map(|owner| owner.pid),
        _ => None,
    }
}

fn failure(error: &OpenError, path: &Path) -> Failure {
    let place = path.display();
    match error {
        OpenError::InUse { owner, .. } => {
            let what = match owner {
                Some(owner) => match &owner.name {
                    Some(name) => format!("the image is in use by process {} ({name})", owner.pid),
                    None => format!("the image is in use by process {}", owner.pid),
                },
                None => "the image is in use by another process".to_owned(),
            };
            Failure::new(Exit::Busy, what, place, in_use_advice(path))
        }
        OpenError::DeviceInUse(_) => {
            Failure::new(Exit::Busy, "the device is in use", place, in_use_advice(path))
        }
        OpenError::NotFound(_) => Failure::new(
            Exit::Failed,
            "no such image or device",
            place,
            "check the path, or make it with 'steadfast mkfs'",
        ),
        OpenError::AlreadyExists(_) => {
            Failure::new(Exit::Failed, "exists already", place, "choose another name or remove it")
        }
        OpenError::PermissionDenied { writing, .. } => Failure::new(
            Exit::NoPermission,
            if *writing { "no permission to read and write" } else { "no permission to read" },
            place,
            "check who owns it, or run the command as that user or as root",
        ),
        OpenError::WriteProtected(_) => {
            Failure::new(Exit::Failed, "write-protected", place, "open it read-only (mount -o ro)")
        }
        OpenError::NotAMedium { what, .. } => Failure::new(
            Exit::NotAVolume,
            format!("is a {what}"),
            place,
            "give an image file or a block device",
        ),
        OpenError::DirectUnsupported(_) => Failure::new(
            Exit::Failed,
            "the host's file system has no direct I/O",
            place,
            "leave -o direct out",
        ),
        OpenError::Size { source, size: bytes, .. } => {
            let mut failure = Failure::host(source, &format!("make a file of {}", size::human(*bytes)), path);
            if Errno::from_io_error(source) == Some(Errno::INVAL) {
                failure.exit = Exit::NoSpace;
                failure.advice = "ask for less: files have at most 2^63 - 1 bytes".into();
            }
            failure
        }
        OpenError::Io { source, action, .. } => Failure::host(source, action, path),
        // Errors name the path first; the line has it in the middle.
        other => {
            let text = other.to_string();
            let prefix = format!("{place}: ");
            Failure::new(Exit::Failed, text.strip_prefix(&prefix).unwrap_or(&text), place, "see the message")
        }
    }
}

fn in_use_advice(path: &Path) -> String {
    match mounted_on(path) {
        Some(directory) => format!(
            "it is mounted on {0}: work there, or unmount it with 'steadfast umount {0}'",
            directory.display()
        ),
        None => "wait for the other process or end it".into(),
    }
}
