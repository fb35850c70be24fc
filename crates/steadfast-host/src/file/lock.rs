//! One volume has one owner: advisory locks on files, exclusive claims on block devices.
//!
//! Image files are locked with flock(2): shared by readers, exclusive for a writer, and gone with
//! the process however it ends. Block devices are claimed by opening them with O_EXCL, which
//! mounts, device mapper and swap respect, too. The claim has a descriptor of its own so that it
//! can be given up for the kernel to mount the device (fuseblk) while I/O goes on.
//!
//! Who opens a device that shows [a part of a file](super::below) locks that part: flock shared
//! with others who do, and the bytes by a lock of the open file, as a reader or as a writer. Who
//! opens the file itself locks all of its bytes likewise. So a writer of one part keeps readers of
//! the whole out, and two parts are not in each other's way.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use super::error::Owner;

/// Bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u64,
    /// 0: up to the end of the file, wherever that is.
    pub(super) length: u64,
}

impl Part {
    pub(super) const ALL: Part = Part { start: 0, length: 0 };
}

/// Locks a regular file without waiting; `false` when another has it.
pub(crate) fn lock_file(file: &File, exclusive: bool) -> Result<bool, Errno> {
    Ok(lock_whole(file, exclusive)? && lock_bytes(file, Part::ALL, exclusive))
}

/// Locks a part of a file without waiting; `false` when another has the file, or a part that
/// overlaps.
pub(super) fn lock_part(file: &File, part: Part, exclusive: bool) -> Result<bool, Errno> {
    Ok(lock_whole(file, false)? && lock_bytes(file, part, exclusive))
}

fn lock_whole(file: &File, exclusive: bool) -> Result<bool, Errno> {
    let operation = if exclusive {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Locks bytes for this open file; `false` when another open file has locked some of them. A file
/// system that has no such locks, and a descriptor that must not take them, lock nothing: flock has
/// kept out whom it could.
fn lock_bytes(file: &File, part: Part, exclusive: bool) -> bool {
    // SAFETY: `flock` is plain numbers, for which zeros are valid; F_OFD_SETLK wants the process
    // number to be 0.
    #[allow(unsafe_code)]
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = libc::off_t::try_from(part.start).unwrap_or(libc::off_t::MAX);
    request.l_len = libc::off_t::try_from(part.length).unwrap_or(0);
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and F_OFD_SETLK reads one
    // `flock` and writes nothing.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    result == 0
        || !matches!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EAGAIN | libc::EACCES)
        )
}

/// Who has the file locked, as far as the kernel's table tells and the process still lives.
pub(crate) fn owner(file: &File) -> Option<Owner> {
    let metadata = file.metadata().ok()?;
    let device = metadata.st_dev();
    let table = fs::read_to_string("/proc/locks").ok()?;
    let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.st_ino());
    table.lines().find_map(|line| {
        let pid = holder(line, &place)?;
        // A daemon's lock is listed under the process that took it, which may be its dead parent.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Owner { pid, name: Some(name.trim_end().to_owned()).filter(|name| !name.is_empty()) })
    })
}

/// The pid in a line of /proc/locks such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:5242 0 EOF` for
/// `place`.
fn holder(line: &str, place: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // Waiters have an arrow here.
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == place && pid != 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::holder;

    #[test]
    fn finds_the_holder_in_the_kernels_table() {
        let line = "3: FLOCK  ADVISORY  WRITE 708 fe:00:5242 0 EOF";
        assert_eq!(holder(line, "fe:00:5242"), Some(708));
        assert_eq!(holder(line, "fe:00:524"), None);
        assert_eq!(holder("3: -> FLOCK  ADVISORY  WRITE 708 fe:00:5242 0 EOF", "fe:00:5242"), None);
        assert_eq!(holder("3: POSIX  ADVISORY  WRITE 708 fe:00:5242 0 EOF", "fe:00:5242"), None);
        assert_eq!(holder("3: FLOCK  ADVISORY  WRITE 0 fe:00:5242 0 EOF", "fe:00:5242"), None);
        assert_eq!(holder("", ""), None);
    }
}
