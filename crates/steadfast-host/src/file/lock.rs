//! One volume has one owner: advisory locks on files, exclusive claims on block devices.
//!
//! Image files are locked with flock(2): shared by readers, exclusive for a writer, and gone with the process however
//! it ends. Block devices are claimed by opening them with O_EXCL, which mounts, device mapper and swap respect, too.
//! The claim has a descriptor of its own so that it can be given up for the kernel to mount the device (fuseblk)
//! while I/O goes on.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

use super::error::Owner;

/// Locks a regular file without waiting; `false` when another has it.
pub(crate) fn lock_file(file: &File, exclusive: bool) -> Result<bool, Errno> {
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

/// The pid in a line of /proc/locks such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:5242 0 EOF` for `place`.
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
