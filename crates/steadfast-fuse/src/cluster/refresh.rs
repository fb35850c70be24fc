//! [`Refresher`]: has the kernel ask for the attributes of a file, and take the answer.
//!
//! The kernel drops an answer about attributes that a notification has overtaken, and goes on with
//! the size that it has. A cached read would end there, or show zero bytes behind the end. So before
//! each notification about pages this node itself asks, as a program does. What it is told then is
//! what the kernel has: the size that the kernel keeps is compared.
//!
//! The file is opened by its handle, which is the node id and the generation (`fuse_fh_to_dentry`,
//! open_by_handle_at(2)). That takes a place on the mount to begin with. This is the working
//! directory, because a descriptor would take a request. It is in a copy of the mount, because the
//! mount itself would then be busy for umount(2). The copy is kept while recalls keep coming,
//! because removing it takes long on a busy machine (`synchronize_rcu_expedited`).

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, makedev, statx};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{chdir, fchdir};

use crate::filesystem::recall::NodeHandle;

/// `FILEID_INO64_GEN`: 64 bits of a number and 32 of a generation.
const HANDLE_TYPE: c_int = 0x81;
/// How often the kernel is asked, if writes of this node have other answers dropped.
const ATTEMPTS: usize = 8;

/// `struct file_handle` with the data of this type.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: c_int,
    words: [u32; 3],
}

/// See the module. It is used by one thread, whose working directory is its own.
pub(super) struct Refresher {
    directory: PathBuf,
    /// The device number of the mount.
    device: u64,
    /// The copy of the mount, with the working directory in it.
    copy: Option<OwnedFd>,
}

impl Refresher {
    /// For the calling thread. `device`: the major and minor device number of the mount on
    /// `directory`.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(directory: PathBuf, (major, minor): (u32, u32)) -> io::Result<Refresher> {
        // SAFETY: only changes what the calling thread shares.
        match unsafe { libc::unshare(libc::CLONE_FS) } {
            0 => Ok(Refresher { directory, device: makedev(major, minor), copy: None }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the kernel ask for the attributes of a node.
    ///
    /// # Errors
    /// The kernel may have an old size. It has none of a node that is stale, or that it does not
    /// know; that is no error.
    pub(super) fn refresh(&mut self, node: NodeHandle) -> io::Result<()> {
        if self.copy.is_none() {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            let copy = open_tree(CWD, &self.directory, flags)?;
            fchdir(&copy)?;
            self.copy = Some(copy);
        }
        let file = match open_by_handle(node) {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(()),
            opened => opened?,
        };
        for _ in 0..ATTEMPTS {
            let told = match look(&file, AtFlags::STATX_FORCE_SYNC) {
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(()),
                told => told?,
            };
            if makedev(told.stx_dev_major, told.stx_dev_minor) != self.device {
                return Err(io::Error::other("another file system covers the mount"));
            }
            if look(&file, AtFlags::STATX_DONT_SYNC)?.stx_size == told.stx_size {
                return Ok(());
            }
        }
        Err(io::Error::other("this node changes the file all the time"))
    }

    /// Whether there is something to [`rest`](Self::rest) from.
    pub(super) fn is_awake(&self) -> bool {
        self.copy.is_some()
    }

    /// No recall comes for a while: the mount may end.
    pub(super) fn rest(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        // The root of all directories is there.
        let _ = chdir(c"/");
        // It takes long, and the next recall must not wait.
        let closes = std::thread::Builder::new().name("closes-copy".into());
        let _ = closes.spawn(move || drop(copy));
    }
}

fn look(file: &OwnedFd, sync: AtFlags) -> io::Result<Statx> {
    Ok(statx(file, c"", AtFlags::EMPTY_PATH | sync, StatxFlags::SIZE)?)
}

/// Whether this process may open files by their handles. The kernel looks at that before it looks at
/// the handle.
pub(crate) fn is_allowed() -> bool {
    match open_by_handle(NodeHandle { nodeid: u64::MAX, generation: 0 }) {
        Err(error) => error.raw_os_error() != Some(libc::EPERM),
        Ok(_) => true,
    }
}

/// Opens a node of the file system of the working directory.
fn open_by_handle(node: NodeHandle) -> io::Result<OwnedFd> {
    let words = [(node.nodeid >> 32) as u32, node.nodeid as u32, node.generation as u32];
    let mut handle = FileHandle { bytes: size_of_val(&words) as u32, kind: HANDLE_TYPE, words };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle is as long as it tells, and outlives the call.
    let opened = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, libc::AT_FDCWD, &raw mut handle, flags)
    };
    match c_int::try_from(opened) {
        // SAFETY: the call has made this descriptor, and nothing else has it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
