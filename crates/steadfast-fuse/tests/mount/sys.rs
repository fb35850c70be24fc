//! System calls that the standard library does not provide.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::path::Path;
use std::sync::atomic::AtomicU32;

use crate::support::c_path;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn open(path: &Path, flags: libc::c_int, mode: u32) -> io::Result<File> {
    let path = c_path(path);
    // SAFETY: a NUL-terminated path; the new descriptor has no other owner.
    unsafe {
        check(libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode))
            .map(|fd| File::from_raw_fd(fd))
    }
}

/// close(2), with its result.
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: nothing else owns the descriptor any more.
    unsafe { check(libc::close(file.into_raw_fd())).map(drop) }
}

/// Tries to take an exclusive lock of a whole file for this process (fcntl).
pub fn lock(file: &File) -> io::Result<()> {
    // SAFETY: all zeroes are a valid value. It is a lock of the whole file.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: the descriptor is open, and the structure lives as long as the call.
    unsafe { check(libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &wanted)).map(drop) }
}

/// fstat(2). The standard library asks for the time of creation, too, which is another request.
pub fn stat(file: &File) -> io::Result<libc::stat> {
    // SAFETY: all zeroes are a valid value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure lives as long as the call.
    unsafe { check(libc::fstat(file.as_raw_fd(), &mut found)).map(|_| found) }
}

/// stat(2), in the same way.
pub fn stat_name(path: &Path) -> io::Result<libc::stat> {
    let path = c_path(path);
    // SAFETY: all zeroes are a valid value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path, and the structure lives as long as the call.
    unsafe { check(libc::stat(path.as_ptr(), &mut found)).map(|_| found) }
}

/// Gives a file without a name (O_TMPFILE) a name.
pub fn link_file(file: &File, to: &Path) -> io::Result<()> {
    let from = c_path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
    let to = c_path(to);
    // SAFETY: NUL-terminated paths.
    unsafe {
        let flags = libc::AT_SYMLINK_FOLLOW;
        check(libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags))
            .map(drop)
    }
}

pub fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: NUL-terminated paths.
    let result = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    };
    check(result as libc::c_int).map(drop)
}

pub fn fallocate(file: &File, mode: libc::c_int, offset: i64, length: i64) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) }).map(drop)
}

pub fn seek(file: &File, offset: i64, whence: libc::c_int) -> io::Result<i64> {
    // SAFETY: the descriptor is open.
    let result = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn copy_file_range(
    from: &File,
    mut at: i64,
    to: &File,
    mut to_at: i64,
    length: usize,
) -> io::Result<usize> {
    // SAFETY: the descriptors are open, and the offsets are live.
    let result = unsafe {
        libc::copy_file_range(
            from.as_raw_fd(),
            &raw mut at,
            to.as_raw_fd(),
            &raw mut to_at,
            length,
            0,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

pub fn ficlone(from: &File, to: &File) -> io::Result<()> {
    // SAFETY: both descriptors are open.
    check(unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE as _, from.as_raw_fd()) }).map(drop)
}

pub fn mknod(path: &Path, mode: u32, device: u64) -> io::Result<()> {
    let path = c_path(path);
    // SAFETY: a NUL-terminated path.
    check(unsafe { libc::mknod(path.as_ptr(), mode, device) }).map(drop)
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8], flags: libc::c_int) -> io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: NUL-terminated strings and a live buffer.
    check(unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    })
    .map(drop)
}

pub fn get_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    let mut value = vec![0; 65536];
    // SAFETY: NUL-terminated strings and a live buffer.
    let length = unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    check(length as libc::c_int)?;
    value.truncate(length as usize);
    Ok(value)
}

pub fn list_xattrs(path: &Path) -> io::Result<Vec<String>> {
    let path = c_path(path);
    let mut list = vec![0u8; 65536];
    // SAFETY: a NUL-terminated string and a live buffer.
    let length = unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    check(length as libc::c_int)?;
    list.truncate(length as usize);
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

pub fn remove_xattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: NUL-terminated strings.
    check(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

/// Free and all blocks.
pub fn statfs(path: &Path) -> io::Result<(u64, u64)> {
    let found = statvfs(path)?;
    Ok((found.f_bfree as u64, found.f_blocks as u64))
}

/// Inodes in use.
pub fn inodes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    Ok(found.f_files as u64 - found.f_ffree as u64)
}

fn statvfs(path: &Path) -> io::Result<libc::statvfs> {
    let path = c_path(path);
    // SAFETY: a NUL-terminated path and a live structure, for which zeros are valid.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        check(libc::statvfs(path.as_ptr(), &raw mut found))?;
        Ok(found)
    }
}

/// A shared writable mapping of a whole file.
pub struct Mapping {
    at: *mut u8,
    length: usize,
}

impl Mapping {
    pub fn new(file: &File, length: usize) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { at: at.cast(), length })
        }
    }

    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length);
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at.add(offset), data.len()) }
    }

    pub fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(offset + data.len() <= self.length);
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), data.as_mut_ptr(), data.len()) }
    }

    /// The `index`-th number of four bytes, shared with all processes that map the file.
    pub fn counter(&self, index: usize) -> &AtomicU32 {
        assert!((index + 1) * 4 <= self.length);
        // SAFETY: inside the mapping, which lives as long as self and starts on a page boundary.
        // These bytes are only accessed through this function.
        unsafe { AtomicU32::from_ptr(self.at.cast::<u32>().add(index)) }
    }

    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the mapping of this object.
        check(unsafe { libc::msync(self.at.cast(), self.length, libc::MS_SYNC) }).map(drop)
    }

    /// Whether reading a page of the mapping raises SIGBUS, tested in a child process.
    pub fn is_dead(&self, offset: usize) -> bool {
        assert!(offset < self.length);
        // SAFETY: the child reads one byte of the mapping and exits; it calls nothing that needs a
        // lock.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
                let byte = std::ptr::read_volatile(self.at.add(offset));
                libc::_exit(if byte == 0 { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of this object, which is not used again.
        unsafe {
            libc::munmap(self.at.cast(), self.length);
        }
    }
}

/// kill -9.
pub fn kill(pid: libc::pid_t) {
    assert!(pid > 1);
    // SAFETY: signals one process.
    check(unsafe { libc::kill(pid, libc::SIGKILL) }).unwrap();
}

/// A file handle, as an NFS server stores it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    length: libc::c_uint,
    kind: libc::c_int,
    bytes: [u8; 128],
}

/// The handle of a file or directory (name_to_handle_at).
pub fn handle(path: &Path) -> io::Result<Handle> {
    let mut handle = Handle { length: 128, kind: 0, bytes: [0; 128] };
    let name = c_path(path);
    let mut mount_id = 0;
    // SAFETY: a NUL-terminated path, and a structure with room for `length` bytes of handle.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount_id,
            0,
        )
    };
    check(result as libc::c_int).map(|_| handle)
}

/// Opens a file by its handle (open_by_handle_at), after dropping the kernel's cached names.
pub fn open_handle(handle: &Handle, mount_point: &Path, flags: libc::c_int) -> io::Result<File> {
    std::fs::write("/proc/sys/vm/drop_caches", "2")?;
    let mount = File::open(mount_point)?;
    let mut handle = *handle;
    // SAFETY: the structure has as many bytes as it states; the returned descriptor has no other
    // owner.
    unsafe {
        let fd =
            libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut handle, flags);
        check(fd as libc::c_int).map(|fd| File::from_raw_fd(fd))
    }
}

/// Opens a file again by its handle, as an NFS server does, after dropping the kernel's caches.
pub fn reopen_by_handle(path: &Path, mount_point: &Path) -> io::Result<File> {
    open_handle(&handle(path)?, mount_point, libc::O_RDONLY)
}

/// Drops the clean pages of a file from the cache.
pub fn forget_pages(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Writes back the dirty pages, but no other state of the file.
pub fn write_pages(file: &File) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) }).map(drop)
}

/// The mode, from the kernel's cache unless the cached value is marked as outdated.
pub fn mode_alone(path: &Path) -> io::Result<u32> {
    let path = c_path(path);
    // SAFETY: a NUL-terminated path and a live structure, for which zeros are valid.
    unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let mask = libc::STATX_MODE;
        check(libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, mask, &raw mut found))?;
        Ok(found.stx_mode.into())
    }
}

pub fn syncfs(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { libc::syncfs(file.as_raw_fd()) }).map(drop)
}

/// Runs `action` in a child process as another user; returns whether it succeeded.
pub fn as_user(uid: u32, gid: u32, action: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only makes system calls through `action` and exits.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let changed = libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(gid, gid, gid) == 0
                && libc::setresuid(uid, uid, uid) == 0;
            libc::_exit(if changed && action() { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// Reads the start of a file through a pipe (splice), as sendfile(2) does.
pub fn spliced(file: &File, length: usize) -> io::Result<Vec<u8>> {
    let (mut reader, writer) = io::pipe()?;
    let mut offset = 0;
    // SAFETY: two descriptors that are open, and a number that lives as long as the call.
    let count = unsafe {
        libc::splice(
            file.as_raw_fd(),
            &raw mut offset,
            writer.as_raw_fd(),
            std::ptr::null_mut(),
            length,
            0,
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    drop(writer);
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut reader, &mut bytes)?;
    assert_eq!(bytes.len(), count);
    Ok(bytes)
}
