//! Short names for system calls on paths relative to the check's working directory.
//!
//! Each function is one call, unless its comment says otherwise, and returns that call's error.
//! Modes are octal numbers as in the manuals. The umask applies unless the comment says otherwise.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{
    self, AtFlags, CWD, Dev, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
};
pub use rustix::fs::{FileType as Kind, OFlags as O, Stat};
pub use rustix::io::Errno;
use rustix::path::Arg;
use rustix::time::{ClockId, clock_gettime};

pub use crate::list::List;
pub use crate::sys::{self, Map, as_user, need_root};
pub use crate::verdict::{Stop, Verdict, fails, fails_with, holds, same, supported};

/// Result of a call.
pub type Call<T = ()> = Result<T, Errno>;

/// The unprivileged user and group that checks use.
pub const USER: u32 = 65534;

/// A point in time as `stat` shows it: seconds and nanoseconds.
pub type Time = (i64, i64);

/// open(2) without O_CREAT.
pub fn open(path: impl Arg, flags: O) -> Call<OwnedFd> {
    fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// open(2) with a mode.
pub fn open_mode(path: impl Arg, flags: O, mode: u32) -> Call<OwnedFd> {
    fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode))
}

/// Creates an empty file, open for reading and writing, mode 0644. The file must not exist.
pub fn create(path: impl Arg) -> Call<OwnedFd> {
    open_mode(path, O::CREATE | O::EXCL | O::RDWR, 0o644)
}

/// Creates an empty file with this mode.
pub fn create_mode(path: impl Arg, mode: u32) -> Call<OwnedFd> {
    open_mode(path, O::CREATE | O::EXCL | O::RDWR, mode)
}

/// Opens for reading and writing.
pub fn open_rw(path: impl Arg) -> Call<OwnedFd> {
    open(path, O::RDWR)
}

/// Creates or replaces a file with these bytes.
pub fn put(path: impl Arg, bytes: &[u8]) -> Call {
    let file = open_mode(path, O::CREATE | O::TRUNC | O::WRONLY, 0o644)?;
    write_all(&file, bytes)
}

/// Writes all bytes at the file's position.
pub fn write_all(file: impl AsFd, mut bytes: &[u8]) -> Call {
    while !bytes.is_empty() {
        let count = rustix::io::write(&file, bytes)?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Writes all bytes at `offset`.
pub fn write_at(file: impl AsFd, mut offset: u64, mut bytes: &[u8]) -> Call {
    while !bytes.is_empty() {
        let count = rustix::io::pwrite(&file, bytes, offset)?;
        bytes = bytes.get(count..).unwrap_or_default();
        offset += count as u64;
    }
    Ok(())
}

/// Reads up to `length` bytes from `offset`; less only at the end of the file.
pub fn read_at(file: impl AsFd, mut offset: u64, length: usize) -> Call<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let count = rustix::io::pread(&file, &mut bytes[filled..], offset)?;
        if count == 0 {
            break;
        }
        filled += count;
        offset += count as u64;
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// One read(2) at the file's position.
pub fn read_some(file: impl AsFd, length: usize) -> Call<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = rustix::io::read(file, &mut bytes[..])?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The whole contents of a file.
pub fn get(path: impl Arg) -> Call<Vec<u8>> {
    let file = open(path, O::RDONLY)?;
    let size = fs::fstat(&file)?.st_size;
    // One more than the size, to detect a file that is longer than its size.
    read_at(&file, 0, usize::try_from(size).unwrap_or(0) + 1)
}

/// stat(2).
pub fn stat(path: impl Arg) -> Call<Stat> {
    fs::stat(path)
}

/// lstat(2).
pub fn lstat(path: impl Arg) -> Call<Stat> {
    fs::lstat(path)
}

/// fstat(2).
pub fn fstat(file: impl AsFd) -> Call<Stat> {
    fs::fstat(file)
}

/// Whether the name exists. A symbolic link itself counts.
pub fn exists(path: impl Arg) -> bool {
    lstat(path).is_ok()
}

/// Permission bits, including set-id and sticky.
pub fn mode(path: impl Arg) -> Call<u32> {
    Ok(lstat(path)?.st_mode & 0o7777)
}

/// Type of file.
pub fn kind(stat: &Stat) -> Kind {
    FileType::from_raw_mode(stat.st_mode)
}

/// Hard links.
pub fn links(path: impl Arg) -> Call<u64> {
    Ok(lstat(path)?.st_nlink as u64)
}

/// Size in bytes.
pub fn size(path: impl Arg) -> Call<i64> {
    Ok(lstat(path)?.st_size)
}

/// Access time.
pub fn atime(stat: &Stat) -> Time {
    (stat.st_atime, stat.st_atime_nsec as i64)
}

/// Modification time.
pub fn mtime(stat: &Stat) -> Time {
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}

/// Change time.
pub fn ctime(stat: &Stat) -> Time {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

/// mkdir(2).
pub fn mkdir(path: impl Arg, mode: u32) -> Call {
    fs::mkdir(path, Mode::from_raw_mode(mode))
}

/// rmdir(2).
pub fn rmdir(path: impl Arg) -> Call {
    fs::rmdir(path)
}

/// unlink(2).
pub fn unlink(path: impl Arg) -> Call {
    fs::unlink(path)
}

/// link(2).
pub fn link(from: impl Arg, to: impl Arg) -> Call {
    fs::link(from, to)
}

/// linkat(2) that follows a symbolic link.
pub fn link_follow(from: impl Arg, to: impl Arg) -> Call {
    fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

/// symlink(2).
pub fn symlink(target: impl Arg, path: impl Arg) -> Call {
    fs::symlink(target, path)
}

/// readlink(2).
pub fn readlink(path: impl Arg) -> Call<Vec<u8>> {
    Ok(fs::readlink(path, Vec::new())?.into_bytes())
}

/// rename(2).
pub fn rename(from: impl Arg, to: impl Arg) -> Call {
    fs::rename(from, to)
}

/// renameat2(2) with flags.
pub fn rename_with(from: impl Arg, to: impl Arg, flags: RenameFlags) -> Call {
    fs::renameat_with(CWD, from, CWD, to, flags)
}

/// mknod(2).
pub fn mknod(path: impl Arg, kind: Kind, mode: u32, device: Dev) -> Call {
    fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device)
}

/// mkfifo(3).
pub fn mkfifo(path: impl Arg, mode: u32) -> Call {
    mknod(path, FileType::Fifo, mode, 0)
}

/// chmod(2).
pub fn chmod(path: impl Arg, mode: u32) -> Call {
    fs::chmod(path, Mode::from_raw_mode(mode))
}

/// chown(2); `None` keeps a value.
pub fn chown(path: impl Arg, uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>) -> Call {
    let (uid, gid) = (uid.into(), gid.into());
    fs::chown(path, uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw))
}

/// lchown(2).
pub fn lchown(path: impl Arg, uid: impl Into<Option<u32>>, gid: impl Into<Option<u32>>) -> Call {
    let (uid, gid) = (uid.into().map(fs::Uid::from_raw), gid.into().map(fs::Gid::from_raw));
    fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

/// truncate(2).
pub fn truncate(path: &str, length: i64) -> Call {
    sys::truncate(path.as_bytes(), length)
}

/// access(2) with the effective identity (AT_EACCESS).
pub fn access(path: impl Arg, what: fs::Access) -> Call {
    fs::accessat(CWD, path, what, AtFlags::EACCESS)
}

/// utimensat(2) following symbolic links.
pub fn set_times(path: impl Arg, accessed: Time, modified: Time) -> Call {
    fs::utimensat(CWD, path, &times(accessed, modified), AtFlags::empty())
}

/// utimensat(2) on a symbolic link itself.
pub fn set_link_times(path: impl Arg, accessed: Time, modified: Time) -> Call {
    fs::utimensat(CWD, path, &times(accessed, modified), AtFlags::SYMLINK_NOFOLLOW)
}

/// A pair of times for the calls that take one.
pub fn times(accessed: Time, modified: Time) -> Timestamps {
    let spec = |(tv_sec, tv_nsec): Time| Timespec { tv_sec, tv_nsec };
    Timestamps { last_access: spec(accessed), last_modification: spec(modified) }
}

/// The time that means "now" to the time-setting calls.
pub const NOW: Time = (0, fs::UTIME_NOW);
/// The time that means "keep the present value" to the time-setting calls.
pub const OMIT: Time = (0, fs::UTIME_OMIT);

/// One entry of a directory with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Type, or unknown.
    pub kind: Kind,
    /// Position after this entry, for lseek(2).
    pub cookie: u64,
}

/// All entries from the descriptor's position, including `.` and `..`.
pub fn entries(directory: impl AsFd) -> Call<Vec<Entry>> {
    let mut buffer = [MaybeUninit::uninit(); 8192];
    let mut reader = fs::RawDir::new(directory, &mut buffer);
    let mut found = Vec::new();
    while let Some(entry) = reader.next() {
        let entry = entry?;
        found.push(Entry {
            name: entry.file_name().to_bytes().to_vec(),
            inode: entry.ino(),
            kind: entry.file_type(),
            cookie: entry.next_entry_cookie(),
        });
    }
    Ok(found)
}

/// Names in a directory, sorted, without `.` and `..`.
pub fn names(path: impl Arg) -> Call<Vec<Vec<u8>>> {
    let directory = open(path, O::RDONLY | O::DIRECTORY)?;
    let mut names: Vec<_> = entries(&directory)?.into_iter().map(|entry| entry.name).collect();
    names.retain(|name| name != b"." && name != b"..");
    names.sort();
    Ok(names)
}

/// Sets an extended attribute, following symbolic links.
pub fn set_attribute(path: impl Arg, name: &str, value: &[u8]) -> Call {
    fs::setxattr(path, name, value, fs::XattrFlags::empty())
}

/// Value of an extended attribute.
pub fn attribute(path: impl Arg, name: &str) -> Call<Vec<u8>> {
    let mut value = vec![0; 65536];
    let length = fs::getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

/// Names of all extended attributes that the caller may see, sorted.
pub fn attributes(path: impl Arg) -> Call<Vec<String>> {
    let mut list = vec![0; 65536];
    let length = fs::listxattr(path, &mut list[..])?;
    list.truncate(length);
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Waits until the next time stamp differs from all earlier ones.
///
/// File systems take stamps from the kernel's coarse clock, which moves at each tick. In a virtual
/// machine that has to wait for its processors this clock was 47 ms late, so a sleep does not do.
pub fn tick() {
    let begin = clock_gettime(ClockId::Realtime);
    // A clock that is set back must not keep the check for ever.
    for _ in 0..250 {
        std::thread::sleep(Duration::from_millis(20));
        if clock_gettime(ClockId::RealtimeCoarse) > begin {
            return;
        }
    }
}

/// Requires that the condition holds within some seconds. For background work of a file system,
/// such as freeing the space of a large file.
///
/// Errors: those of `condition`; failed if it does not hold in time.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> Result<bool, Stop>) -> Verdict {
    let failed = Stop::failed(format!("does not come to hold within 15 s: {what}"));
    for _ in 0..300 {
        if condition()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(failed)
}

/// Bytes that depend on position and seed, so that misplaced data is detected.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8) ^ ((i >> 8) as u8).wrapping_mul(31) ^ seed).collect()
}
