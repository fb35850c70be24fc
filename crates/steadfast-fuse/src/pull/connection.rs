//! The kernel's control file of the connection (`fusectl`), which can abort the connection.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::device::own;

/// The usual mount point of `fusectl`.
const USUAL_PLACE: &str = "/sys/fs/fuse/connections";

/// The connection of one mount.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    abort: Option<OwnedFd>,
}

impl Connection {
    /// Finds the control file by the minor device number of the mount.
    pub(crate) fn find(device: Option<(u32, u32)>) -> Connection {
        let Some((_, minor)) = device else { return Connection::default() };
        let usual = File::options().write(true).open(format!("{USUAL_PLACE}/{minor}/abort")).ok();
        Connection { abort: usual.map(OwnedFd::from).or_else(|| through_a_mount_of_our_own(minor)) }
    }

    /// Aborts the connection: all waiting and later requests end with ECONNABORTED.
    pub(crate) fn abort(&self) -> bool {
        let Some(file) = self.abort.as_ref().and_then(|file| file.try_clone().ok()) else {
            return false;
        };
        File::from(file).write_all(b"1").is_ok()
    }

    pub(crate) fn abort_file(&self) -> Option<&OwnedFd> {
        self.abort.as_ref()
    }
}

/// If `fusectl` is not mounted: uses a private mount that is not attached to the tree. Needs root.
fn through_a_mount_of_our_own(minor: u32) -> Option<OwnedFd> {
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    const CLOEXEC: libc::c_uint = 1;
    let path = std::ffi::CString::new(format!("{minor}/abort")).ok()?;
    // SAFETY: system calls with NUL-terminated strings and with descriptors that were just checked.
    unsafe {
        let context = descriptor(libc::syscall(libc::SYS_fsopen, c"fusectl".as_ptr(), CLOEXEC))?;
        let none = std::ptr::null::<libc::c_void>();
        if libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0,
        ) != 0
        {
            return None;
        }
        let mount = descriptor(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0))?;
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        descriptor(libc::c_long::from(libc::openat(mount.as_raw_fd(), path.as_ptr(), flags)))
    }
}

fn descriptor(result: libc::c_long) -> Option<OwnedFd> {
    let number = i32::try_from(result).ok()?;
    (number >= 0).then(|| own(number))
}
