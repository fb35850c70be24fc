//! Cached writes that the medium refuses after write(2) has returned.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use steadfast::{FormatOptions, TransactionMask};
use steadfast_media::{ErrorClass, Geometry, Medium, MediumError, MediumOperation, MemoryMedium};

use crate::support::{Own, QUIET, can_mount, errno};
use crate::sys;

/// Writes fail while it is told so.
struct Failing {
    memory: MemoryMedium,
    fails: Arc<AtomicBool>,
}

impl Medium for Failing {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(MediumError {
                operation: MediumOperation::Write,
                offset,
                length: data.len() as u64,
                class: ErrorClass::Permanent,
                os_error: libc::EIO,
            });
        }
        self.memory.write(offset, data)
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.memory.flush()
    }
}

/// A volume on a medium whose writes fail while it is told so. It is far from full, so that writes
/// are not asked for their room.
fn mount(mask: TransactionMask) -> (Own, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let memory = MemoryMedium::new(256 << 20, 512).unwrap();
    let medium = Failing { memory, fails: fails.clone() };
    (Own::mount(medium, &FormatOptions { mask, ..FormatOptions::default() }), fails)
}

/// Writes to the cache, and lets the medium refuse it. The kernel returns the error to this fsync
/// and then has forgotten it.
fn lose(file: &File, fails: &AtomicBool) {
    fails.store(true, Ordering::SeqCst);
    file.write_all_at(&[1; 100_000], 0).unwrap();
    let refused = file.sync_all();
    fails.store(false, Ordering::SeqCst);
    assert_eq!(errno(refused), libc::EIO, "the kernel's own, for this descriptor");
}

/// The kernel returns the error to the first fsync and then has forgotten it. Other calls that the
/// kernel answers from what they return to it must not hide it from the next write.
#[test]
fn a_stat_or_an_open_hides_no_loss() {
    if !can_mount() {
        return;
    }
    let (own, fails) = mount(QUIET);
    let path = own.path("file");
    let file = File::create(&path).unwrap();
    let write = |byte: u8| file.write_all_at(&[byte; 100_000], 0);
    lose(&file, &fails);
    fs::metadata(&path).unwrap();
    file.metadata().unwrap();
    drop(OpenOptions::new().write(true).open(&path).unwrap());
    fs::hard_link(&path, own.path("second")).unwrap();
    assert_eq!(errno(write(2)), libc::EIO, "the write after a stat");
    write(2).unwrap();
    assert_eq!(errno(file.sync_all()), libc::EIO, "the fsync after a write that was refused");
    write(3).unwrap();
    file.sync_all().unwrap();

    // The same for a program that comes later.
    lose(&file, &fails);
    drop(file);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    fs::metadata(&path).unwrap();
    assert_eq!(errno(file.write_all_at(&[4; 100_000], 0)), libc::EIO, "of an earlier descriptor");
    drop(file);
    // The error has been returned, and the file was closed.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[5; 100_000], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), [5; 100_000]);
    own.unmount();
}

/// Where the mask has `close`, close(2) of every descriptor for writing returns the error, until a
/// call has returned it that programs do not ignore.
#[test]
fn a_close_tells_a_loss() {
    if !can_mount() {
        return;
    }
    let (own, fails) = mount(QUIET.union(TransactionMask::CLOSE));
    let path = own.path("file");
    let file = File::create(&path).unwrap();
    let open = || OpenOptions::new().write(true).open(&path).unwrap();
    lose(&file, &fails);
    let (second, third) = (open(), open());
    sys::close(File::open(&path).unwrap()).expect("a reader has lost nothing");
    assert_eq!(errno(sys::close(second)), libc::EIO, "the first close");
    assert_eq!(errno(sys::close(third)), libc::EIO, "the second close");
    assert_eq!(errno(file.write_all_at(&[2; 100_000], 0)), libc::EIO, "a write still gets it");
    sys::close(open()).expect("a write has returned it");
    assert_eq!(errno(file.sync_all()), libc::EIO, "an fsync still gets it");
    file.write_all_at(&[3; 100_000], 0).unwrap();
    sys::close(file).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [3; 100_000]);
    own.unmount();
}

/// chmod, chown and a truncation to no smaller size return the error, as a write does. A truncation
/// that makes the file shorter succeeds, and one to 0 bytes ends the error.
#[test]
fn calls_that_change_attributes_tell_a_loss() {
    if !can_mount() {
        return;
    }
    let (own, fails) = mount(QUIET);
    let path = own.path("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    file.sync_all().unwrap();
    let mode = || fs::set_permissions(&path, fs::Permissions::from_mode(0o640));
    lose(&file, &fails);
    assert_eq!(errno(mode()), libc::EIO, "chmod");
    mode().expect("it was told");
    lose(&file, &fails);
    assert_eq!(errno(chown(&path, Some(0), Some(0))), libc::EIO, "chown");
    lose(&file, &fails);
    assert_eq!(errno(file.set_len(200_000)), libc::EIO, "a truncation to a larger size");
    lose(&file, &fails);
    file.set_len(5_000).expect("a truncation to a smaller size");
    assert_eq!(errno(mode()), libc::EIO, "it has not told the error");
    lose(&file, &fails);
    file.set_len(0).unwrap();
    mode().expect("nothing is left that could be lost");
    lose(&file, &fails);
    let times = FileTimes::new().set_accessed(UNIX_EPOCH).set_modified(UNIX_EPOCH);
    let late = file.set_times(times);
    assert_eq!(errno(late), libc::EIO, "utimensat");
    assert_eq!(
        errno(file.write_all_at(&[2; 100], 0)),
        libc::EIO,
        "programs ignore that of utimensat"
    );
    drop(file);
    own.unmount();
}
