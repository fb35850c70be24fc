//! The helper process looks at the attributes of a file, so that the kernel takes them.
//!
//! The kernel drops an answer about attributes that a notification has overtaken, and goes on with
//! the size that it has. A cached read would end there, or show zero bytes past the end. So the
//! helper asks before each notification about pages, as a program does. It compares the size that
//! it is told with the one that the kernel has then. A larger size is taken after the
//! notification: pages that end at the smaller one would show zero bytes.
//!
//! The file is opened by its handle, which is the node id and the generation (`fuse_fh_to_dentry`,
//! open_by_handle_at(2)). That takes a place on the mount to begin with. This is the working
//! directory, because a descriptor would take a request. It is in a copy of the mount, because the
//! mount itself would then be busy for umount(2). The copy is removed when the mount is not at its
//! place any more. Removing it takes long on a busy machine (`synchronize_rcu_expedited`).
//!
//! As in [`super::child`], only async-signal-safe functions are called.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use crate::filesystem::recall::RecalledNode;

/// `FILEID_INO64_GEN`: 64 bits of a number and 32 of a generation.
const HANDLE_TYPE: c_int = 0x81;
/// An answer instead of an errno: the size is larger than the one that the kernel has.
pub(super) const LARGER: i32 = -1;
/// How often the kernel is asked, if writes of programs have other answers dropped.
const ATTEMPTS: usize = 8;

/// `struct file_handle` with the data of this type.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: c_int,
    words: [u32; 3],
}

/// See the module.
pub(super) struct Look {
    directory: CString,
    /// The major and minor device number of the mount.
    device: (u32, u32),
    /// The copy of the mount with the working directory; below 0: none yet.
    copy: RawFd,
    /// The table of mounts, to be polled for [`mounts_changed`](Self::mounts_changed); below 0: the
    /// mount is not held.
    pub(super) table: RawFd,
}

impl Look {
    pub(super) fn new(directory: CString, device: (u32, u32)) -> Look {
        Look { directory, device, copy: -1, table: -1 }
    }

    /// Lets go of the mount if it is not at its place any more.
    ///
    /// # Safety
    /// Only in the forked child.
    pub(super) unsafe fn mounts_changed(&mut self) {
        // SAFETY: system calls with arguments that outlive them.
        unsafe {
            let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
            let found = look(libc::AT_FDCWD, &self.directory, flags);
            if found.is_ok_and(|found| self.is_there(&found)) {
                return;
            }
            libc::chdir(c"/".as_ptr());
            libc::close(self.copy);
            libc::close(self.table);
            (self.copy, self.table) = (-1, -1);
        }
    }

    fn is_there(&self, found: &libc::statx) -> bool {
        (found.stx_dev_major, found.stx_dev_minor) == self.device
    }

    /// Has the kernel ask for the attributes of a node. Returns 0, [`LARGER`] unless it `grows`, or
    /// an errno; ENODEV: the mount is not at its place. A node that the kernel does not know, or
    /// that is stale, has no pages.
    ///
    /// # Safety
    /// Only in the forked child.
    pub(super) unsafe fn look_at(&mut self, node: RecalledNode, grows: bool) -> i32 {
        // SAFETY: system calls with arguments that outlive them; the descriptor is closed again.
        unsafe {
            if self.copy < 0 {
                let errno = self.enter();
                if errno != 0 {
                    return errno;
                }
            }
            let file = open_by_handle(libc::AT_FDCWD, node.nodeid, node.generation);
            let result = match file {
                Ok(file) if !grows && is_smaller(file, node.size) => LARGER,
                Ok(file) => self.ask(file),
                Err(errno) => errno,
            };
            if let Ok(file) = file {
                libc::close(file);
            }
            if result == libc::ESTALE { 0 } else { result }
        }
    }

    unsafe fn ask(&self, file: RawFd) -> i32 {
        for _ in 0..ATTEMPTS {
            // SAFETY: the descriptor is open.
            let (told, kept) = unsafe {
                (
                    look(file, c"", libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC),
                    look(file, c"", libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC),
                )
            };
            match (told, kept) {
                (Ok(told), Ok(kept)) if told.stx_size == kept.stx_size => return 0,
                (Ok(_), Ok(_)) => {}
                (Err(errno), _) | (_, Err(errno)) => return errno,
            }
        }
        libc::EAGAIN
    }

    /// Makes the copy. Returns 0 or an errno.
    unsafe fn enter(&mut self) -> i32 {
        const CLONE: c_int = 1;
        // SAFETY: system calls with arguments that outlive them; the descriptors are closed again.
        unsafe {
            // First: without it the mount could not end.
            let table =
                libc::open(c"/proc/self/mountinfo".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if table < 0 {
                return libc::ENODEV;
            }
            let path = self.directory.as_ptr();
            let flags = CLONE | libc::O_CLOEXEC;
            let copy = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path, flags) as RawFd;
            if copy < 0 {
                let errno = errno();
                libc::close(table);
                return errno;
            }
            let found = look(copy, c"", libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC);
            let failed = match found {
                Ok(found) if !self.is_there(&found) => libc::ENODEV,
                Ok(_) if libc::fchdir(copy) < 0 => errno(),
                Ok(_) => 0,
                Err(errno) => errno,
            };
            if failed == 0 {
                (self.copy, self.table) = (copy, table);
            } else {
                libc::close(copy);
                libc::close(table);
            }
            failed
        }
    }
}

unsafe fn errno() -> i32 {
    // SAFETY: the place is this thread's own.
    unsafe { *libc::__errno_location() }
}

unsafe fn look(at: RawFd, path: &std::ffi::CStr, flags: c_int) -> Result<libc::statx, i32> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path ends with a NUL byte. All bytes of the result may be zero.
    unsafe {
        match libc::statx(at, path.as_ptr(), flags, libc::STATX_SIZE, found.as_mut_ptr()) {
            0 => Ok(found.assume_init()),
            _ => Err(errno()),
        }
    }
}

/// Whether the file that the kernel has is smaller.
///
/// # Safety
/// The descriptor is open.
unsafe fn is_smaller(file: RawFd, size: u64) -> bool {
    // SAFETY: as the caller says.
    let kept = unsafe { look(file, c"", libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC) };
    kept.is_ok_and(|kept| kept.stx_size < size)
}

/// Opens a node of the file system that `at` is on.
fn open_by_handle(at: RawFd, nodeid: u64, generation: u64) -> Result<RawFd, i32> {
    let words = [(nodeid >> 32) as u32, nodeid as u32, generation as u32];
    let mut handle = FileHandle { bytes: size_of_val(&words) as u32, kind: HANDLE_TYPE, words };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle is as long as it tells, and outlives the call.
    unsafe {
        match libc::syscall(libc::SYS_open_by_handle_at, at, &raw mut handle, flags) {
            descriptor if descriptor >= 0 => Ok(descriptor as RawFd),
            _ => Err(errno()),
        }
    }
}

/// Whether this process may open files by their handles. The kernel looks at that before it looks
/// at the handle.
pub(super) fn is_allowed() -> bool {
    use std::os::fd::AsRawFd;
    let place = std::fs::File::open("/proc");
    place.is_ok_and(|place| open_by_handle(place.as_raw_fd(), 1, 0) != Err(libc::EPERM))
}
