//! The files below a block device. A loop device and its file are one medium under two names.
//!
//! Opening the device also keeps other openers from its part of the file, with the
//! [locks](super::lock) that an opener of the file takes. So two partitions of one image are two
//! media, and the whole image cannot be used beside them. The search goes down through sysfs. It
//! goes from a partition to its disk, from a mapped device to its components, and from a loop
//! device to its file. A loop device can show another block device. Then the search goes on from
//! that device.
//!
//! A file without a name, or with a name that cannot be opened here, is skipped, because only its
//! name leads other openers to it. Some cases stay undetected: another machine, a network block
//! device, a file shown from another mount namespace. The volume itself detects these when it
//! writes.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

use super::error::{OpenError, Owner};
use super::lock::{self, Part};

/// The directory in which the kernel lists block devices by number.
const SYSFS: &str = "/sys/dev/block";
/// The directory of the device nodes.
const NODES: &str = "/dev";
/// Largest number of devices that are examined: no stack of devices is larger.
const DEVICES_MAX: usize = 64;
/// The unit of a partition's offset in sysfs, in bytes.
const SECTOR: u64 = 512;

/// `LOOP_GET_STATUS64`: the file of a loop device, in 29 words of eight bytes.
const LOOP_GET_STATUS: Opcode = 0x4c05;
/// `struct loop_info64`. Its first three words are the device and the inode of the file, and the
/// number of the device that the file is.
type LoopStatus = [u64; 29];

/// The file or device below is in use under its own name.
#[derive(Debug)]
pub(super) struct Taken {
    /// The file or device below.
    pub(super) path: PathBuf,
    /// The owner, if known.
    pub(super) owner: Option<Owner>,
}

/// The file or device that a loop device below a device shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    path: PathBuf,
    /// The part of the file.
    part: Part,
    /// Device and inode; `None` if the loop device does not report them.
    identity: Option<(u64, u64)>,
}

/// What a loop device reports about its file.
struct Reported {
    /// Device and inode.
    identity: (u64, u64),
    /// The number of the block device that the file is; 0 for a regular file.
    device: u64,
}

/// Locks every file, and claims every device, below the block device with this number. The locks
/// last until the returned files are closed.
pub(super) fn lock(device: u64, exclusive: bool) -> Result<Vec<File>, Taken> {
    let mut locks = Vec::new();
    for shown in shown_by(Path::new(SYSFS), device) {
        locks.extend(lock_one(&shown, exclusive)?);
    }
    Ok(locks)
}

/// Locks what is below an open block device, for a writer that is no medium. `path` is its name.
///
/// # Errors
/// Some of it is in use.
pub(crate) fn lock_below(device: &File, path: &Path) -> Result<Vec<File>, OpenError> {
    let Ok(metadata) = device.metadata() else { return Ok(Vec::new()) };
    if !metadata.file_type().is_block_device() {
        return Ok(Vec::new());
    }
    lock(metadata.st_rdev(), true).map_err(|Taken { path: below, owner }| OpenError::InUseBelow {
        path: path.to_owned(),
        below,
        owner,
    })
}

/// Locks one file; `None` if no other program could open it by this name.
fn lock_one(shown: &Shown, exclusive: bool) -> Result<Option<File>, Taken> {
    let path = &shown.path;
    let taken = |owner| Taken { path: path.clone(), owner };
    let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
    // Another file may have this name by now.
    if shown.identity.is_some_and(|identity| identity != (metadata.st_dev(), metadata.st_ino())) {
        return Ok(None);
    }
    if metadata.file_type().is_block_device() {
        let claim =
            OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
        return match claim {
            Ok(claim) => Ok(Some(claim)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => Err(taken(None)),
            Err(_) => Ok(None),
        };
    }
    if !metadata.file_type().is_file() {
        return Ok(None);
    }
    // An exclusive lock on a file of a network file system requires a writable descriptor.
    let open = |write: bool| OpenOptions::new().read(true).write(write).open(path);
    let Ok(file) = open(exclusive).or_else(|_| open(false)) else { return Ok(None) };
    match lock::lock_part(&file, shown.part, exclusive) {
        Ok(true) => Ok(Some(file)),
        Ok(false) => Err(taken(lock::owner(&file))),
        // If the file system has no locks, there are none to respect.
        Err(_) => Ok(None),
    }
}

/// The files of the loop devices below the device. `sysfs` has a folder for each device number.
fn shown_by(sysfs: &Path, device: u64) -> Vec<Shown> {
    let folder_of = |device: u64| {
        fs::canonicalize(sysfs.join(format!("{}:{}", major(device), minor(device)))).ok()
    };
    let mut waiting = Vec::from_iter(folder_of(device).map(|folder| (folder, Part::ALL)));
    let mut seen: Vec<(PathBuf, Part)> = Vec::new();
    let mut found = Vec::new();
    while let Some((folder, part)) = waiting.pop() {
        let device = (folder, part);
        if seen.contains(&device) || seen.len() >= DEVICES_MAX {
            continue;
        }
        let folder = &device.0;
        let number =
            |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim_end().parse::<u64>().ok();
        if number("partition").is_some() {
            let sectors = |name| number(name).unwrap_or(0).saturating_mul(SECTOR);
            let partition = Part { start: sectors("start"), length: sectors("size") };
            let part = device.1.inside(partition);
            waiting.extend(folder.parent().map(|disk| (disk.to_owned(), part)));
        }
        // sysfs does not report which part of each component a mapped device uses.
        let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        waiting.extend(
            slaves.filter_map(|slave| Some((fs::canonicalize(slave.path()).ok()?, Part::ALL))),
        );
        if let Ok(text) = fs::read(folder.join("loop/backing_file")) {
            let name = text.strip_suffix(b"\n").unwrap_or(&text);
            let limit = |name| number(name).unwrap_or(0);
            let whole = Part { start: limit("loop/offset"), length: limit("loop/sizelimit") };
            let part = device.1.inside(whole);
            let path = PathBuf::from(OsStr::from_bytes(name));
            let reported = reported(folder);
            let below = match &reported {
                Some(reported) => reported.device,
                None => block_device(&path).unwrap_or(0),
            };
            if below != 0 {
                waiting.extend(folder_of(below).map(|folder| (folder, part)));
            }
            found.push(Shown { path, part, identity: reported.map(|reported| reported.identity) });
        }
        seen.push(device);
    }
    found
}

/// The number of the block device at this path.
fn block_device(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.st_rdev())
}

/// What the loop device of this folder reports about its file.
fn reported(folder: &Path) -> Option<Reported> {
    let number = fs::read_to_string(folder.join("dev")).ok()?;
    let node = File::open(Path::new(NODES).join(folder.file_name()?)).ok()?;
    let device = node.metadata().ok()?.st_rdev();
    if number.trim_end() != format!("{}:{}", major(device), minor(device)) {
        return None;
    }
    // SAFETY: LOOP_GET_STATUS64 reads nothing and writes one `struct loop_info64` of 232 bytes. The
    // structure consists of plain numbers and has the size of `LoopStatus`.
    #[allow(unsafe_code)]
    let status = unsafe { ioctl(&node, Getter::<LOOP_GET_STATUS, LoopStatus>::new()) }.ok()?;
    Some(Reported { identity: (status[0], status[1]), device: status[2] })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;

    use super::*;

    /// A folder with the layout of sysfs, for a mapped device over a partition of a loop device.
    fn sysfs() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for folder in [
            "devices/loop9/loop",
            "devices/loop9/loop9p1",
            "devices/dm-3/slaves",
            "devices/sda",
            "by",
        ] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (file, text) in [
            ("loop9/loop/backing_file", "/images/a b.img\n"),
            ("loop9/loop/offset", "4096\n"),
            ("loop9/loop/sizelimit", "0\n"),
            ("loop9/loop9p1/partition", "1\n"),
            ("loop9/loop9p1/start", "2048\n"),
            ("loop9/loop9p1/size", "64\n"),
        ] {
            fs::write(at("devices").join(file), text).unwrap();
        }
        symlink(at("devices/loop9/loop9p1"), at("devices/dm-3/slaves/loop9p1")).unwrap();
        // Devices do not contain one another, but a folder that claims so must not cause an endless
        // loop.
        symlink(at("devices/dm-3"), at("devices/dm-3/slaves/dm-3")).unwrap();
        for (number, device) in
            [("7:9", "loop9"), ("259:0", "loop9/loop9p1"), ("253:3", "dm-3"), ("8:0", "sda")]
        {
            symlink(at("devices").join(device), at("by").join(number)).unwrap();
        }
        directory
    }

    #[test]
    fn the_file_is_found_through_partitions_and_mapped_devices() {
        let directory = sysfs();
        let sysfs = directory.path().join("by");
        let partition = Part { start: 4096 + 2048 * 512, length: 64 * 512 };
        let all = Part { start: 4096, length: 0 };
        for (device, part) in
            [(makedev(7, 9), all), (makedev(259, 0), partition), (makedev(253, 3), partition)]
        {
            let found = shown_by(&sysfs, device);
            assert_eq!(found, [Shown { path: "/images/a b.img".into(), part, identity: None }]);
        }
        assert_eq!(shown_by(&sysfs, makedev(8, 0)), []);
        assert_eq!(shown_by(&sysfs, makedev(9, 9)), [], "a device that is not there");
    }

    #[test]
    fn only_the_file_that_is_shown_is_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let shown = |identity| Shown { path: file.path().to_owned(), part: Part::ALL, identity };
        let itself = shown(Some((metadata.st_dev(), metadata.st_ino())));
        let held = lock_one(&itself, true).unwrap().unwrap();
        assert_eq!(lock_one(&itself, true).unwrap_err().path, file.path());
        assert!(lock_one(&shown(None), false).is_err());
        assert!(
            lock_one(&shown(Some((metadata.st_dev(), metadata.st_ino() + 1))), true)
                .unwrap()
                .is_none()
        );
        drop(held);
        assert!(lock_one(&itself, false).unwrap().is_some());
        let path = file.path().with_extension("img (deleted)");
        let gone = Shown { path, part: Part::ALL, identity: None };
        assert!(lock_one(&gone, true).unwrap().is_none());
    }
}
