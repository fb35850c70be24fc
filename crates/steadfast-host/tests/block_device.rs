//! Block devices as media, on a loop device. Skipped without root or loop devices.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_host::{FileMedium, FileOptions, LockMode, OpenError};
use steadfast_media::{FailureModel, Medium, Temperature};

use crate::common::Aligned;

const SIZE: u64 = 4 << 20;

/// Lets one test run at a time. A process that a test forks holds a copy of every descriptor until
/// it executes. One of these may be a device that another test has just closed.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loop device with its own file. Dropping it detaches the device by name.
struct Loop {
    device: PathBuf,
    file: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl Loop {
    fn new(sector: u32) -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = directory.path().join("loop.img");
        std::fs::File::create(&file).unwrap().set_len(SIZE).unwrap();
        let mut shown = Self::over(&file, &["--sector-size", &sector.to_string()])?;
        shown._directory = Some(directory);
        Some(shown)
    }

    /// A loop device over a file that another loop device may use too.
    fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Loop { device, file: file.to_owned(), _directory: None })
            }
            _ => {
                eprintln!("skipped: no loop device to be had");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

#[test]
fn block_device_behaves_like_memory() {
    let _alone = alone();
    for (seed, sector) in [(1, 512), (2, 4096)] {
        let Some(device) = Loop::new(sector) else { return };
        for (direct, cached_above) in [(false, false), (false, true), (true, false)] {
            let options = FileOptions { direct, cached_above, ..FileOptions::default() };
            let medium = FileMedium::open(device.path(), &options).unwrap();
            let geometry = medium.geometry();
            assert!(medium.is_block_device());
            assert_eq!((geometry.size, geometry.failure_model), (SIZE, FailureModel::PowerSafe));
            assert!(geometry.atomic_unit >= sector);
            let zeros = vec![0; SIZE as usize];
            medium.write(0, &zeros).unwrap();
            // Loop devices punch holes in their file.
            common::compare(&medium, seed, 800, true);
            common::in_parallel(&medium);
        }
    }
}

/// Two loop devices of one file have two caches, as two machines with one disk have.
#[test]
fn an_owner_reads_what_another_machine_has_written() {
    let _alone = alone();
    let Some(here) = Loop::new(512) else { return };
    let Some(there) = Loop::over(&here.file, &[]) else { return };
    let beside = FileOptions { read_only: true, lock: LockMode::None, ..FileOptions::default() };
    let reads = |medium: &FileMedium| {
        let mut byte = [0; 4096];
        medium.read(0, &mut byte).unwrap();
        byte[0]
    };
    let other = OpenOptions::new().write(true).open(there.path()).unwrap();
    let write = |byte: u8| {
        other.write_all_at(&[byte; 4096], 0).unwrap();
        other.sync_all().unwrap();
    };
    // A node that reads beside the owner must not fill its own cache.
    let direct = FileOptions { direct: true, ..beside.clone() };
    let direct = FileMedium::open(here.path(), &direct).unwrap();
    for byte in [1, 2] {
        write(byte);
        assert_eq!(reads(&direct), byte);
    }
    // Any other program may. While it has the device open, the pages stay, and become old.
    let reader = FileMedium::open(here.path(), &beside).unwrap();
    assert_eq!(reads(&reader), 2);
    write(3);
    assert_eq!(reads(&reader), 2, "this test needs an old page");
    let owner = FileMedium::open(here.path(), &FileOptions::default()).unwrap();
    assert_eq!(reads(&owner), 3);
}

/// Ends the other threads of a test, also one that fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Large writes of data go past the page cache, between small ones that use it, while read-ahead
/// fills it. Linux must not find one in the way of the other: it would fail the flush.
#[test]
fn ways_of_writing_do_not_meet() {
    const AREA: u64 = 256 << 10;
    let _alone = alone();
    let Some(file) = Loop::new(512) else { return };
    // Its writes take as long as those of a disk.
    let Some(device) = Loop::over(&file.file, &["--direct-io=on"]) else { return };
    let options = FileOptions { cached_above: true, ..FileOptions::default() };
    let medium = FileMedium::open(device.path(), &options).unwrap();
    // Each area has a large write of all but its last block, and a small one of that.
    let large = AREA as usize - 4096;
    let done = AtomicBool::new(false);
    let areas = || (0..SIZE / AREA).map(|area| area * AREA);
    std::thread::scope(|scope| {
        let small = scope.spawn(|| {
            for number in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return (number as u8).wrapping_sub(1);
                }
                for area in areas() {
                    let block = [number as u8; 4096];
                    let at = area + large as u64;
                    medium.write_hinted(at, &[&block], Temperature::Hot).unwrap();
                }
            }
            0
        });
        let reader = scope.spawn(|| {
            let file = std::fs::File::open(device.path()).unwrap();
            let mut bytes = vec![0; 16 << 10];
            while !done.load(Ordering::Relaxed) {
                // Where nothing is cached, read-ahead makes folios across the areas.
                let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
                for at in (0..SIZE).step_by(bytes.len()) {
                    file.read_exact_at(&mut bytes, at).unwrap();
                }
            }
        });
        let stop = Stop(&done);
        let mut aligned = Aligned::new(large, 0);
        for number in 0..200_u8 {
            aligned.bytes_mut().fill(number);
            for area in areas() {
                medium.write_hinted(area, &[aligned.bytes()], Temperature::Cold).unwrap();
            }
            medium.flush().unwrap_or_else(|error| panic!("flush {number}: {error}"));
            let mut found = vec![0; large];
            for area in areas() {
                medium.read(area, &mut found).unwrap();
                assert!(found.iter().all(|byte| *byte == number), "round {number} at {area}");
            }
        }
        drop(stop);
        reader.join().unwrap();
        let last = small.join().unwrap();
        let mut found = [0; 4096];
        for area in areas() {
            medium.read(area + large as u64, &mut found).unwrap();
            assert_eq!(found, [last; 4096]);
        }
    });
}

#[test]
fn a_device_has_one_owner() {
    let _alone = alone();
    let Some(device) = Loop::new(512) else { return };
    let options = FileOptions::default();
    let medium = FileMedium::open(device.path(), &options).unwrap();
    let error = FileMedium::open(device.path(), &options).unwrap_err();
    assert!(matches!(error, OpenError::DeviceInUse(_)), "{error}");
    // After the claim is released for the kernel, I/O continues.
    medium.release_claim();
    medium.write(0, &[1; 4096]).unwrap();
    medium.discard(0, 4096).unwrap();
    // As the kernel does. For other openers the file below is still in use.
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let claimed =
        OpenOptions::new().read(true).custom_flags(exclusive).open(device.path()).unwrap();
    drop(claimed);
    let error = FileMedium::open(device.path(), &options).unwrap_err();
    assert!(matches!(error, OpenError::InUseBelow { .. }), "{error}");
    drop(medium);
    FileMedium::open(device.path(), &options).unwrap();
}

#[test]
fn units_of_a_device_are_its_blocks() {
    let _alone = alone();
    let Some(device) = Loop::new(4096) else { return };
    for unit in [512, 1 << 17] {
        let options = FileOptions { atomic_unit: Some(unit), ..FileOptions::default() };
        assert!(matches!(
            FileMedium::open(device.path(), &options),
            Err(OpenError::AtomicUnit { .. })
        ));
    }
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let medium = FileMedium::open(device.path(), &options).unwrap();
    assert_eq!(medium.geometry().atomic_unit, 4096);
    assert!(medium.write(0, &[0; 4096]).is_err());
}

#[test]
fn a_device_and_the_file_below_have_one_owner() {
    let _alone = alone();
    let Some(device) = Loop::new(512) else { return };
    let writing = FileOptions::default();
    let reading = FileOptions { read_only: true, ..writing.clone() };
    let below = FileMedium::open(&device.file, &writing).unwrap();
    for options in [&writing, &reading] {
        let error = FileMedium::open(device.path(), options).unwrap_err();
        let OpenError::InUseBelow { below, owner: Some(owner), .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((below, owner.pid), (&device.file, std::process::id()));
    }
    FileMedium::open(device.path(), &FileOptions { lock: LockMode::None, ..reading.clone() })
        .unwrap();
    drop(below);

    let above = FileMedium::open(device.path(), &writing).unwrap();
    for options in [&writing, &reading] {
        assert!(matches!(FileMedium::open(&device.file, options), Err(OpenError::InUse { .. })));
    }
    // The kernel may have the device, but the file is still in use.
    above.release_claim();
    assert!(matches!(FileMedium::open(&device.file, &writing), Err(OpenError::InUse { .. })));
    drop(above);

    let above = FileMedium::open(device.path(), &reading).unwrap();
    FileMedium::open(&device.file, &reading).unwrap();
    assert!(matches!(FileMedium::open(&device.file, &writing), Err(OpenError::InUse { .. })));
    drop(above);
    FileMedium::open(&device.file, &writing).unwrap();
}

#[test]
fn parts_of_a_file_are_media_of_their_own() {
    let _alone = alone();
    let Some(whole) = Loop::new(512) else { return };
    let half = SIZE / 2;
    let part = |offset: u64, size: u64| {
        Loop::over(
            &whole.file,
            &["--offset", &offset.to_string(), "--sizelimit", &size.to_string()],
        )
        .unwrap()
    };
    let (first, second, across) = (part(0, half), part(half, half), part(half / 2, half));
    let options = FileOptions::default();
    let reading = FileOptions { read_only: true, ..options.clone() };
    let one = FileMedium::open(first.path(), &options).unwrap();
    let two = FileMedium::open(second.path(), &options).unwrap();
    for other in [&across.device, &whole.device] {
        assert!(matches!(FileMedium::open(other, &options), Err(OpenError::InUseBelow { .. })));
        assert!(matches!(FileMedium::open(other, &reading), Err(OpenError::InUseBelow { .. })));
    }
    assert!(matches!(FileMedium::open(&whole.file, &reading), Err(OpenError::InUse { .. })));
    drop(one);
    drop(two);
    FileMedium::open(across.path(), &options).unwrap();
}

/// A loop device over a loop device, over a partition of one, and over these in turn.
#[test]
fn a_file_has_one_owner_through_several_devices() {
    let _alone = alone();
    let writing = FileOptions::default();
    let reading = FileOptions { read_only: true, ..writing.clone() };
    let Some(first) = Loop::new(512) else { return };
    let mut devices = Vec::new();
    for depth in 0..4 {
        let below = devices.last().unwrap_or(&first).path();
        let Some(device) = Loop::over(below, &[]) else { return };
        let owner = FileMedium::open(&first.file, &writing).unwrap();
        for options in [&writing, &reading] {
            let error = FileMedium::open(device.path(), options).unwrap_err();
            let OpenError::InUseBelow { below, owner: Some(owner), .. } = &error else {
                panic!("{depth}: {error}")
            };
            assert_eq!((below, owner.pid), (&first.file, std::process::id()), "{depth}");
        }
        drop(owner);
        let owner = FileMedium::open(device.path(), &writing).unwrap();
        for options in [&writing, &reading] {
            let error = FileMedium::open(&first.file, options).unwrap_err();
            assert!(matches!(error, OpenError::InUse { .. }), "{depth}: {error}");
            let error = FileMedium::open(first.path(), options).unwrap_err();
            assert!(
                matches!(error, OpenError::DeviceInUse(_) | OpenError::InUseBelow { .. }),
                "{depth}: {error}"
            );
        }
        drop(owner);
        devices.push(device);
    }
    // The device above detaches first: a device that is in use stays.
    while devices.pop().is_some() {}
}

/// Two halves of a loop device are two media, also where a loop device shows each.
#[test]
fn parts_of_a_device_are_parts_of_its_file() {
    let _alone = alone();
    let Some(whole) = Loop::new(512) else { return };
    let quarter = SIZE / 4;
    let Some(half) = Loop::over(&whole.file, &["--offset", &(2 * quarter).to_string()]) else {
        return;
    };
    let Some(last) = Loop::over(half.path(), &["--offset", &quarter.to_string()]) else { return };
    let part = |offset: u64| {
        let size = quarter.to_string();
        Loop::over(&whole.file, &["--offset", &offset.to_string(), "--sizelimit", &size]).unwrap()
    };
    let (third, fourth) = (part(2 * quarter), part(3 * quarter));
    let options = FileOptions::default();
    let owner = FileMedium::open(last.path(), &options).unwrap();
    FileMedium::open(third.path(), &options).unwrap();
    for other in [&fourth.device, &whole.device] {
        let error = FileMedium::open(other, &options).unwrap_err();
        assert!(matches!(error, OpenError::InUseBelow { .. }), "{error}");
    }
    drop(owner);
    drop(last);
}

/// A partition of a loop device, and a loop device over that partition.
#[test]
fn a_partition_of_a_loop_device_belongs_to_its_file() {
    let _alone = alone();
    let Some(disk) = Loop::new(512) else { return };
    let Some(device) = Loop::over(&disk.file, &["--partscan"]) else { return };
    // The kernel takes the partition without a table: number, first sector, sectors.
    let added = Command::new("addpart").arg(device.path()).args(["1", "2048", "4096"]).status();
    let partition = PathBuf::from(format!("{}p1", device.device.display()));
    if !added.is_ok_and(|status| status.success()) || !partition.exists() {
        eprintln!("skipped: no partitions of loop devices to be had");
        return;
    }
    let Some(above) = Loop::over(&partition, &[]) else { return };
    let options = FileOptions::default();
    let owner = FileMedium::open(&disk.file, &options).unwrap();
    for device in [&partition, &above.device] {
        let error = FileMedium::open(device, &options).unwrap_err();
        assert!(matches!(error, OpenError::InUseBelow { .. }), "{error}");
    }
    drop(owner);
    let owner = FileMedium::open(above.path(), &options).unwrap();
    let error = FileMedium::open(&partition, &options).unwrap_err();
    assert!(matches!(error, OpenError::DeviceInUse(_)), "{error}");
    let error = FileMedium::open(&disk.file, &options).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(owner);
    drop(above);
}
