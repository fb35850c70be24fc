//! One volume has one owner: advisory locks on files, exclusive claims on block devices.
//!
//! Image files are locked with flock(2), shared by readers and exclusive for a writer. The lock
//! ends with the process in every case. Block devices are claimed with O_EXCL, which mounts, device
//! mapper and swap also respect. The claim has its own descriptor, so that it can be released for
//! the kernel to mount the device (fuseblk) while I/O continues.
//!
//! An opener of a device that shows [a part of a file](super::below) locks that part. It takes a
//! shared flock, and locks the bytes with a lock of the open file, as a reader or as a writer. An
//! opener of the file itself locks all of its bytes in the same way. So a writer of one part
//! excludes readers of the whole file, and two parts do not conflict.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use super::error::Owner;

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub start: u64,
    /// 0: up to the end of the file.
    pub length: u64,
}

impl Part {
    pub(super) const ALL: Part = Part { start: 0, length: 0 };

    /// The same bytes, counted from the start of the medium of which `outer` is a part. This part
    /// counts from the start of `outer`, and at least one byte is left of it.
    pub(super) fn inside(self, outer: Part) -> Part {
        let start = outer.start.saturating_add(self.start);
        let rest = outer.length.saturating_sub(self.start).max(1);
        let length = match (self.length, outer.length) {
            (length, 0) => length,
            (0, _) => rest,
            (length, _) => length.min(rest),
        };
        Part { start, length }
    }
}

/// Locks a regular file without waiting; `false` if another opener holds it.
pub(crate) fn lock_file(file: &File, exclusive: bool) -> Result<bool, Errno> {
    lock(file, exclusive, Part::ALL, exclusive)
}

/// Locks a part of a file without waiting; `false` if another opener holds the file or an
/// overlapping part.
pub(super) fn lock_part(file: &File, part: Part, exclusive: bool) -> Result<bool, Errno> {
    lock(file, false, part, exclusive)
}

fn lock(file: &File, whole_exclusive: bool, part: Part, exclusive: bool) -> Result<bool, Errno> {
    if !lock_whole(file, whole_exclusive)? {
        return Ok(false);
    }
    let locked = lock_bytes(file, part, exclusive);
    if !locked {
        // Otherwise the table would show this process as the owner.
        let _ = flock(file, FlockOperation::NonBlockingUnlock);
    }
    Ok(locked)
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

/// Locks bytes for this open file; `false` if another open file has locked some of them. If the
/// file system has no such locks, or the descriptor may not take them, it locks nothing; the flock
/// still holds.
fn lock_bytes(file: &File, part: Part, exclusive: bool) -> bool {
    // SAFETY: `flock` consists of plain numbers, for which zeros are valid. F_OFD_SETLK requires
    // the process id 0.
    #[allow(unsafe_code)]
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = libc::off_t::try_from(part.start).unwrap_or(libc::off_t::MAX);
    request.l_len = libc::off_t::try_from(part.length).unwrap_or(0);
    // SAFETY: the descriptor is open while `file` is borrowed, and F_OFD_SETLK reads one `flock`
    // and writes nothing.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    result == 0
        || !matches!(
            std::io::Error::last_os_error().raw_os_error(),
            Some(libc::EAGAIN | libc::EACCES)
        )
}

/// How often the kernel's table of locks is read in search of one.
const READS_OF_TABLE: usize = 16;

/// A process that holds a lock of the whole file, if the kernel's table lists it and the process
/// still exists.
pub(crate) fn owner(file: &File) -> Option<Owner> {
    let metadata = file.metadata().ok()?;
    let device = metadata.st_dev();
    let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), metadata.st_ino());
    // The kernel gives the table in pieces of a page and counts lines to continue. A lock that ends
    // between two pieces hides the line after them, but hardly twice.
    (0..READS_OF_TABLE).find_map(|_| owner_in(&fs::read_to_string("/proc/locks").ok()?, &place))
}

fn owner_in(table: &str, place: &str) -> Option<Owner> {
    table.lines().find_map(|line| {
        let pid = holder(line, place)?;
        // The table lists a daemon's lock under the process that took it, which may be the daemon's
        // dead parent.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(Owner { pid, name: Some(name.trim_end().to_owned()).filter(|name| !name.is_empty()) })
    })
}

/// The process id in a line of /proc/locks for `place`, such as `1: FLOCK  ADVISORY  WRITE 708
/// fe:00:5242 0 EOF`.
fn holder(line: &str, place: &str) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // Lines of waiting processes have an arrow here.
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    (words.next()? == place && pid != 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{Part, holder, lock_file, lock_part, owner};

    #[test]
    fn a_refused_lock_leaves_nothing_locked() {
        let name = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(name.path()).unwrap();
        let (part, refused, next) = (open(), open(), open());
        assert!(lock_part(&part, Part { start: 0, length: 8 }, true).unwrap());
        assert!(!lock_file(&refused, false).unwrap());
        drop(part);
        assert!(lock_file(&next, true).unwrap());
    }

    /// Other programs take and release their locks all the time.
    #[test]
    fn finds_the_owner_while_other_locks_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let locked = |name: &str| {
            let file = File::create(directory.path().join(name)).unwrap();
            assert!(lock_file(&file, true).unwrap());
            file
        };
        // The newest are the first in the table, and these fill several of its pieces.
        let watched = locked("watched");
        let others: Vec<File> = (0..200).map(|index| locked(&index.to_string())).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for some in others.chunks(40) {
                        some.iter().for_each(|file| file.unlock().unwrap());
                        some.iter().for_each(|file| assert!(lock_file(file, true).unwrap()));
                    }
                }
            });
            let found = (0..2000).filter(|_| owner(&watched).is_some()).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(found, 2000);
        });
    }

    #[test]
    fn a_part_of_a_part_stays_inside() {
        let part = |start, length| Part { start, length };
        for (inner, outer, both) in [
            (Part::ALL, Part::ALL, Part::ALL),
            (Part::ALL, part(8, 4), part(8, 4)),
            (part(8, 4), Part::ALL, part(8, 4)),
            (part(1, 2), part(8, 4), part(9, 2)),
            (part(1, 9), part(8, 4), part(9, 3)),
            (part(1, 0), part(8, 4), part(9, 3)),
            (part(1, 0), part(8, 0), part(9, 0)),
            (part(5, 0), part(8, 4), part(13, 1)),
            (part(u64::MAX, 1), part(8, 4), part(u64::MAX, 1)),
        ] {
            assert_eq!(inner.inside(outer), both, "{inner:?} in {outer:?}");
        }
    }

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
