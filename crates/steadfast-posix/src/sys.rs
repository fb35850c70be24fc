//! The few system calls that need `unsafe`: memory maps, record locks, `truncate` by path, and
//! threads with their own working directory, descriptors or identity.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use rustix::thread::UnshareFlags;

use crate::verdict::{Stop, Verdict};

/// Gives the calling thread its own working directory and umask.
///
/// Errors: as for unshare(2).
#[allow(unsafe_code)]
pub fn unshare_working_directory() -> Result<(), Errno> {
    // SAFETY: a private copy of working directory and umask invalidates no descriptor and no
    // memory.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}

/// Runs `body` in a new thread with the given identity and no privileges. The thread shares working
/// directory and umask with the caller. Needs root.
///
/// Errors: those of `body`; skipped if the identity cannot be taken.
pub fn as_user(
    uid: u32,
    gid: u32,
    groups: &[u32],
    body: impl FnOnce() -> Verdict + Send,
) -> Verdict {
    need_root()?;
    let groups: Vec<Gid> = groups.iter().map(|&group| Gid::from_raw(group)).collect();
    let become_user = || -> Result<(), Errno> {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)
    };
    in_thread(move || {
        become_user()
            .map_err(|error| Stop::skipped(format!("cannot become user {uid}: {error}")))?;
        body()
    })
}

/// Runs `body` in a new thread with its own descriptor table, so the kernel sees a different owner
/// of record locks.
///
/// `body` can use the caller's descriptors, which are copies, but cannot replace them.
///
/// Errors: those of `body`.
pub fn as_other_process(body: impl FnOnce() -> Verdict + Send) -> Verdict {
    in_thread(move || {
        unshare_descriptors()
            .map_err(|error| Stop::skipped(format!("no descriptor table: {error}")))?;
        body()
    })
}

#[allow(unsafe_code)]
fn unshare_descriptors() -> Result<(), Errno> {
    // SAFETY: the new thread begins with copies of all descriptors under the same numbers, so every
    // borrowed descriptor stays valid in it. Descriptors that it opens are also dropped in it.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }
}

fn in_thread(body: impl FnOnce() -> Verdict + Send) -> Verdict {
    std::thread::scope(|scope| match scope.spawn(body).join() {
        Ok(verdict) => verdict,
        Err(_) => Err(Stop::failed("the check panicked")),
    })
}

/// Skips the check unless it runs as root.
///
/// Errors: skipped.
pub fn need_root() -> Verdict {
    if is_root() { Ok(()) } else { Err(Stop::skipped("needs root")) }
}

/// Whether this thread runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// truncate(2).
///
/// Errors: those of the call.
#[allow(unsafe_code)]
pub fn truncate(path: &[u8], length: i64) -> Result<(), Errno> {
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    // SAFETY: `path` is a valid string for the length of the call.
    if unsafe { libc::truncate(path.as_ptr(), length) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// ftruncate(2) with the signed length of the call.
///
/// Errors: those of the call.
#[allow(unsafe_code)]
pub fn ftruncate(file: impl AsFd, length: i64) -> Result<(), Errno> {
    // SAFETY: the descriptor is borrowed for the length of the call.
    if unsafe { libc::ftruncate(file.as_fd().as_raw_fd(), length) } == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// lseek(2) with any offset and `whence`.
///
/// Errors: those of the call.
#[allow(unsafe_code)]
pub fn seek(file: impl AsFd, offset: i64, whence: i32) -> Result<i64, Errno> {
    // SAFETY: the descriptor is borrowed for the length of the call.
    let at = unsafe { libc::lseek(file.as_fd().as_raw_fd(), offset, whence) };
    if at >= 0 { Ok(at) } else { Err(last_error()) }
}

/// fallocate(2) with any mode, offset and length.
///
/// Errors: those of the call.
#[allow(unsafe_code)]
pub fn fallocate(file: impl AsFd, mode: i32, offset: i64, length: i64) -> Result<(), Errno> {
    // SAFETY: the descriptor is borrowed for the length of the call.
    let result = unsafe { libc::fallocate(file.as_fd().as_raw_fd(), mode, offset, length) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// A kind of record lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// F_RDLCK.
    Read,
    /// F_WRLCK.
    Write,
    /// F_UNLCK.
    None,
}

impl Lock {
    fn raw(self) -> libc::c_short {
        (match self {
            Lock::Read => libc::F_RDLCK,
            Lock::Write => libc::F_WRLCK,
            Lock::None => libc::F_UNLCK,
        }) as libc::c_short
    }
}

/// F_SETLK of a range of bytes. `length` 0: to the end of the file, including later growth.
///
/// Errors: those of the call.
pub fn lock(file: impl AsFd, kind: Lock, start: i64, length: i64) -> Result<(), Errno> {
    lock_call(file, libc::F_SETLK, kind, start, length).map(|_| ())
}

/// F_OFD_SETLK: the lock belongs to the open file description.
///
/// Errors: those of the call.
pub fn lock_description(file: impl AsFd, kind: Lock, start: i64, length: i64) -> Result<(), Errno> {
    lock_call(file, libc::F_OFD_SETLK, kind, start, length).map(|_| ())
}

/// F_GETLK: returns kind and start of a conflicting lock.
///
/// Errors: those of the call.
pub fn lock_in_the_way(
    file: impl AsFd,
    kind: Lock,
    start: i64,
    length: i64,
) -> Result<Option<(Lock, i64)>, Errno> {
    let found = lock_call(file, libc::F_GETLK, kind, start, length)?;
    Ok([Lock::Read, Lock::Write]
        .into_iter()
        .find(|k| k.raw() == found.l_type)
        .map(|k| (k, found.l_start)))
}

#[allow(unsafe_code)]
fn lock_call(
    file: impl AsFd,
    command: i32,
    kind: Lock,
    start: i64,
    length: i64,
) -> Result<libc::flock, Errno> {
    let mut request = libc::flock {
        l_type: kind.raw(),
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is borrowed and `request` is a valid structure for the length of the
    // call.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut request) };
    if result == 0 { Ok(request) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// A memory map of a file, unmapped when dropped. Only touch pages that the file covers.
pub struct Map {
    address: NonNull<u8>,
    length: usize,
}

impl Map {
    /// Maps `length` bytes from `offset`, shared or private, for reading and with `write` also for
    /// writing.
    ///
    /// Errors: those of mmap(2).
    #[allow(unsafe_code)]
    pub fn new(
        file: impl AsFd,
        offset: u64,
        length: usize,
        write: bool,
        shared: bool,
    ) -> Result<Map, Errno> {
        let protection = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the kernel chooses an unused address; nothing else points into it.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, offset)?
        };
        let address = NonNull::new(address.cast()).ok_or(Errno::FAULT)?;
        Ok(Map { address, length })
    }

    /// Copies bytes out of the map.
    #[allow(unsafe_code)]
    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.length);
        // SAFETY: the range lies in the map. Volatile, because the bytes of the file change
        // concurrently.
        (at..at + length).map(|i| unsafe { self.address.as_ptr().add(i).read_volatile() }).collect()
    }

    /// Copies bytes into the map, which must be writable.
    #[allow(unsafe_code)]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        for (i, &byte) in bytes.iter().enumerate() {
            // SAFETY: the range lies in the map; no reference to it exists.
            unsafe { self.address.as_ptr().add(at + i).write_volatile(byte) }
        }
    }

    /// Lets the kernel read the byte at `at` into a pipe: EFAULT if a load would raise SIGBUS.
    ///
    /// Errors: those of write(2).
    #[allow(unsafe_code)]
    pub fn probe(&self, at: usize) -> Result<(), Errno> {
        assert!(at < self.length);
        let (_reader, writer) = std::io::pipe().map_err(|_| Errno::MFILE)?;
        // SAFETY: the kernel checks the address itself and returns EFAULT.
        let written =
            unsafe { libc::write(writer.as_raw_fd(), self.address.as_ptr().add(at).cast(), 1) };
        if written == 1 { Ok(()) } else { Err(last_error()) }
    }

    /// msync(2) of the whole map.
    ///
    /// Errors: those of the call.
    #[allow(unsafe_code)]
    pub fn sync(&self, flags: MsyncFlags) -> Result<(), Errno> {
        // SAFETY: the range belongs to this map.
        unsafe { rustix::mm::msync(self.address.as_ptr().cast(), self.length, flags) }
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the range belongs to this map, and no pointer to it remains. If the call fails,
        // the memory stays mapped, which is harmless.
        let _ = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[allow(unsafe_code)]
// SAFETY: the map is plain memory that is only accessed through volatile loads and stores.
unsafe impl Send for Map {}
#[allow(unsafe_code)]
// SAFETY: as above; a race only mixes bytes, as with any shared map of a file.
unsafe impl Sync for Map {}
