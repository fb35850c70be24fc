//! Checks before a medium is overwritten: its contents, its users, and the owner's consent.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use steadfast_media::Medium;
use steadfast_torture::torture::device::latency::DeviceKind;

use steadfast_cli::failure::{Exit, Failure, Outcome};
use steadfast_cli::{host, making, size};

/// The known signatures: position, bytes, and what they belong to.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (0x1018, b"\xc6\x85\x73\xf6", "a bcachefs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x36, b"FAT", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (0, b"hsqs", "a squashfs image"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xba\xbe", "an encrypted (LUKS) volume"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (0x200, b"EFI PART", "a GPT partition table"),
    (0x1fe, b"\x55\xaa", "a partition table or boot sector"),
];

/// Asks the user for consent if the medium may hold data and a terminal is present.
///
/// # Errors
/// A medium in use, whatever the answer; a medium that may hold data, without consent.
pub fn ask(path: &Path, yes: bool) -> Outcome {
    // This claims a block device and locks a file, so it refuses mounted media, except loop devices
    // over files.
    let medium = host::open_medium(path, false, host::Way::Cached)?;
    let (device, size) = (host::is_device(path), medium.geometry().size);
    drop(medium);
    if let Some(device) = loop_device(path) {
        return Err(Failure::new(
            Exit::Busy,
            format!("the image is in use by {}", device.display()),
            path.display(),
            format!("detach it with 'losetup -d {}'", device.display()),
        ));
    }
    let contents = contents(path)?;
    if yes || (contents.is_none() && !device) {
        return Ok(());
    }
    let holds = match contents {
        Some(what) => format!("holds {what}"),
        None => "is empty as far as can be seen".to_owned(),
    };
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let what = format!("everything on it would be destroyed, and it {holds}");
        return Err(Failure::new(
            Exit::Busy,
            what,
            path.display(),
            "say --yes if that is what you want",
        ));
    }
    eprint!(
        "Everything on {} ({}) will be destroyed. It {holds}.\nType 'yes' to go on: ",
        path.display(),
        size::human(size)
    );
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "nothing was done", path.display(), "the answer was not 'yes'"))
}

/// What the medium holds, if anything.
fn contents(path: &Path) -> Outcome<Option<&'static str>> {
    let file = File::open(path).map_err(|error| Failure::host(&error, "read", path))?;
    let holds = |(offset, bytes, _): &&(u64, &[u8], &str)| {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, *offset).is_ok() && found == *bytes
    };
    if let Some((_, _, name)) = SIGNATURES.iter().find(holds) {
        return Ok(Some(name));
    }
    let options = steadfast::OpenOptions { read_only: true, ..steadfast::OpenOptions::default() };
    if host::open_volume(path, host::Way::Cached, options).is_ok() {
        return Ok(Some("a Steadfast volume"));
    }
    Ok(making::holds_data(path)?.then_some("data of some kind"))
}

/// The loop device over an image file. The lock does not detect this use.
fn loop_device(path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    let devices = fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        (Path::new(file.trim_end_matches('\n')) == path)
            .then(|| Path::new("/dev").join(device.file_name()))
    })
}

/// What the kernel reports about a block device; `None` for a file, or if the kernel reports
/// nothing.
pub fn device_kind(path: &Path) -> Option<DeviceKind> {
    let metadata =
        fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let read = |name: &str| {
        // A partition has the queue of its disk.
        let queue = [device.join("queue"), device.join("../queue")];
        queue.iter().find_map(|queue| fs::read_to_string(queue.join(name)).ok())
    };
    Some(DeviceKind {
        rotational: read("rotational")?.trim() == "1",
        volatile_cache: read("write_cache")?.trim() == "write back",
    })
}
