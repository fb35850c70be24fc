//! Attaches to and detaches from the directory tree, with mount(2) for root and `fusermount3` for
//! other users.

mod cache;
mod direct;
mod helper;
pub(crate) mod table;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::MountOptions;

pub(crate) use cache::CacheLimits;

/// An existing mount.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    /// Canonical path of the mount point.
    pub(crate) directory: std::path::PathBuf,
    /// `MAJOR:MINOR` of the file system's device number.
    pub(crate) device: Option<(u32, u32)>,
    /// Whether mount(2) made the mount, so that umount(2) must remove it.
    direct: bool,
}

/// Mounts. The returned descriptor is the connection to the kernel, on which INIT waits.
///
/// # Errors
/// Those of the system calls (ENOTDIR, ENOTCONN on a dead mount, EPERM, EBUSY, EINVAL for an option
/// that the kernel does not know). Also ENOENT if `fusermount3` is missing.
pub(crate) fn attach(directory: &Path, options: &MountOptions) -> io::Result<(Mount, OwnedFd)> {
    let directory = mount_point(directory)?;
    let direct = effective_uid() == 0;
    let descriptor = if direct {
        direct::mount(&directory, options)?
    } else {
        helper::mount(&directory, options)?
    };
    let device = table::find(&directory).map(|entry| entry.device);
    Ok((Mount { directory, device, direct }, descriptor))
}

impl Mount {
    /// Unmounts. With `lazy` the mount point is free immediately, and open files keep working until
    /// they are closed.
    pub(crate) fn detach(&self, lazy: bool) -> io::Result<()> {
        // The path may belong to another mount by now, after this mount has ended.
        if let Some(device) = self.device
            && table::find(&self.directory).is_none_or(|entry| entry.device != device)
        {
            return Ok(());
        }
        if self.direct {
            direct::unmount(&self.directory, lazy)
        } else {
            helper::unmount(&self.directory, lazy)
        }
    }

    /// The limits of the mount's page cache.
    pub(crate) fn cache_limits(&self) -> Option<CacheLimits> {
        self.device.map(CacheLimits::new)
    }
}

fn mount_point(directory: &Path) -> io::Result<std::path::PathBuf> {
    let found = directory.canonicalize()?;
    // A dead mount returns ENOTCONN here.
    if found.metadata()?.is_dir() {
        Ok(found)
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTDIR))
    }
}

#[allow(unsafe_code)]
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[allow(unsafe_code)]
pub(crate) fn effective_gid() -> u32 {
    // SAFETY: getegid has no preconditions and cannot fail.
    unsafe { libc::getegid() }
}
