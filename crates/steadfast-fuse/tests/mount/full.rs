//! A full volume under the kernel's write-back cache. All data that `write` has accepted is stored.
//! Programs that check results see the errors of data that does not fit.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use steadfast::TransactionMask;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Mounted, Place, can_mount, errno, wait_for};
use crate::sys;

const MIB: usize = 1 << 20;
/// Far more than the volumes of these tests hold.
const TOO_MUCH: usize = 200 * MIB;

/// The byte at `offset` of the data that a test writes.
fn byte(offset: usize) -> u8 {
    (offset / 509 % 251) as u8 + 1
}

fn bytes(offset: usize, length: usize) -> Vec<u8> {
    (offset..offset + length).map(byte).collect()
}

/// Writes `step` bytes a call until the volume refuses. Returns the number of accepted bytes.
fn fill(mut write: impl FnMut(&[u8]) -> io::Result<()>, step: usize) -> usize {
    let mut done = 0;
    while done < TOO_MUCH {
        match write(&bytes(done, step)) {
            Ok(()) => done += step,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
                return done;
            }
        }
    }
    panic!("a volume of a fraction of that took {done} bytes");
}

/// The file has exactly these bytes, on the volume too.
fn assert_holds(path: &Path, length: usize) {
    let mut found = Vec::new();
    File::open(path).unwrap().read_to_end(&mut found).unwrap();
    assert_eq!(found.len(), length, "{}", path.display());
    let wrong = (0..length).find(|offset| found[*offset] != byte(*offset));
    assert_eq!(wrong, None, "{}", path.display());
}

/// Unmounts and mounts again, which empties the kernel's cache.
fn again<'a>(place: &'a Place, mounted: Mounted<'a>) -> Mounted<'a> {
    let lost = ioctl::lost_writes(&mounted.root()).unwrap();
    assert_eq!((lost.bytes, lost.errno), (0, 0), "no write was accepted and lost");
    mounted.unmount();
    place.mount(&MountOptions::default())
}

/// Bytes that may remain free when a file cannot grow any more: see docs/POSIX.md.
fn assert_full(place: &Place, all: usize) {
    let (free, _) = sys::statfs(&place.mount_point()).unwrap();
    assert!(free < (all / 16) as u64, "{free} bytes left of {all}");
}

#[test]
fn write_refuses_what_does_not_fit() {
    if !can_mount() {
        return;
    }
    for (size, step) in
        [(64 * MIB, 256 << 10), (64 * MIB, 5000), (16 * MIB, 128 << 10), (4 * MIB, 4096)]
    {
        let place = Place::new(size as u64, TransactionMask::DEFAULT);
        let mounted = place.mount(&MountOptions::default());
        let mut file = File::create(mounted.path("file")).unwrap();
        let done = fill(|data| file.write_all(data), step);
        assert!(done > size / 4, "{done} of {size}");
        assert_full(&place, size);
        drop(file);
        let mounted = again(&place, mounted);
        assert_holds(&mounted.path("file"), done);
        mounted.unmount();
    }
}

#[test]
fn appending_stops_where_the_volume_is_full() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 * MIB as u64, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    let path = mounted.path("log");
    // As a shell does: each append opens and closes the file, and ignores the result of the close.
    let done = fill(
        |data| OpenOptions::new().append(true).create(true).open(&path)?.write_all(data),
        100_000,
    );
    assert_full(&place, 64 * MIB);
    // Freed space is available to the next write.
    let filler = mounted.path("filler");
    assert_eq!(errno(fs::write(&filler, bytes(0, 2 * MIB))), libc::ENOSPC);
    fs::remove_file(&filler).unwrap();
    let mounted = again(&place, mounted);
    assert_holds(&mounted.path("log"), done);
    fs::remove_file(mounted.path("log")).unwrap();
    fs::write(mounted.path("filler"), bytes(0, 30 * MIB)).unwrap();
    let mounted = again(&place, mounted);
    assert_holds(&mounted.path("filler"), 30 * MIB);
    mounted.unmount();
}

#[test]
fn several_writers_stop_and_lose_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 * MIB as u64, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    let steps = [777, 4096, 65_536, 300_000];
    let done = std::thread::scope(|scope| {
        let writers = steps.map(|step| {
            let mut file = File::create(mounted.path(&step.to_string())).unwrap();
            scope.spawn(move || fill(|data| file.write_all(data), step))
        });
        writers.map(|writer| writer.join().unwrap())
    });
    assert_full(&place, 64 * MIB);
    let mounted = again(&place, mounted);
    for (step, done) in steps.iter().zip(done) {
        assert_holds(&mounted.path(&step.to_string()), done);
    }
    mounted.unmount();
}

/// Programs that check only their writes keep the files that they could not move.
#[test]
fn mv_keeps_the_source() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 * MIB as u64, TransactionMask::DEFAULT);
    let elsewhere = tempfile::tempdir().unwrap();
    let source = elsewhere.path().join("source");
    fs::write(&source, bytes(0, 100 * MIB)).unwrap();
    let mounted = place.mount(&MountOptions::default());
    let run = |program: &str, arguments: &[&Path]| {
        let out = Command::new(program).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && text.contains("No space left"), "{program}: {text}");
        let _ = fs::remove_file(mounted.path("target"));
    };
    let target = mounted.path("target");
    run("mv", &[&source, &target]);
    assert_eq!(fs::metadata(&source).unwrap().len(), 100 * MIB as u64);
    run("install", &[Path::new("-p"), &source, &target]);
    run("cp", &[Path::new("--preserve=all"), &source, &target]);
    let (from, to) = (format!("if={}", source.display()), format!("of={}", target.display()));
    run("dd", &[Path::new(&from), Path::new(&to), Path::new("bs=64k")]);
    again(&place, mounted).unmount();
}

/// Stores into a map cannot be refused. The error is returned late, by the next call on that file
/// of any kind, and is counted.
#[test]
fn what_a_map_loses_is_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new(16 * MIB as u64, TransactionMask::DEFAULT);
    let daemon = place.daemon();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(daemon.path("mapped"))
        .unwrap();
    file.set_len(40 * MIB as u64).unwrap();
    let map = sys::Mapping::new(&file, 40 * MIB).unwrap();
    map.write(0, &bytes(0, 40 * MIB));
    drop(map);
    assert_eq!(errno(file.sync_all()), libc::ENOSPC, "the kernel's own, for this descriptor");
    // The kernel has no further error to report, but the daemon has.
    let _ = file.set_modified(std::time::SystemTime::UNIX_EPOCH);
    wait_for("a write to be told", || file.write_at(b"x", 0).is_err());
    let lost = ioctl::lost_writes(&daemon.root()).unwrap();
    assert!(lost.bytes >= 20 * MIB as u64 && lost.errno == libc::ENOSPC as u64, "{lost:?}");
    assert!(daemon.log().contains("cannot store what was written"), "{}", daemon.log());
    // The error has been reported; after truncation to 0 bytes no loss remains.
    file.set_len(0).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    daemon.unmount();
}

/// The limit of dirty pages belongs to the mount alone, whatever other devices write: its lower
/// bound follows the upper one down and up.
#[test]
fn the_limit_of_dirty_pages_is_not_shared() {
    if !can_mount() {
        return;
    }
    let place = Place::new((768 * MIB) as u64, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    let device = fs::metadata(place.mount_point()).unwrap().dev();
    let limits =
        format!("/sys/class/bdi/{}:{}", libc::major(device as _), libc::minor(device as _));
    let limit = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("{limits}/{name}")).ok()?.trim().parse().ok()
    };
    // Before Linux 6.2 there is no such limit, without root no right to set it, and a machine with
    // little memory needs none.
    if limit("strict_limit") != Some(1) {
        return;
    }
    let first = limit("max_ratio_fine").unwrap();
    assert_eq!(limit("min_ratio_fine"), Some(first));

    let filler = File::create(mounted.path("filler")).unwrap();
    sys::fallocate(&filler, 0, 0, (384 * MIB) as _).unwrap();
    filler.write_all_at(b"x", 0).unwrap();
    filler.sync_all().unwrap();
    let follows = || limit("min_ratio_fine") == limit("max_ratio_fine");
    wait_for("a lower limit", || limit("max_ratio_fine") < Some(first) && follows());
    let low = limit("max_ratio_fine");
    drop(filler);
    fs::remove_file(mounted.path("filler")).unwrap();
    wait_for("a higher limit", || {
        fs::write(mounted.path("small"), b"x").unwrap();
        ioctl::transact(&mounted.root()).unwrap();
        limit("max_ratio_fine") > low && follows()
    });
    mounted.unmount();
}

/// A shell empties a file and fills it again with few bytes: on a full volume, too, it is filled.
#[test]
fn an_emptied_file_can_be_filled_again() {
    if !can_mount() {
        return;
    }
    for size in [64 * MIB, 16 * MIB] {
        let place = Place::new(size as u64, TransactionMask::DEFAULT);
        let mounted = place.mount(&MountOptions::default());
        let (small, blocks, large) =
            (mounted.path("small"), mounted.path("blocks"), mounted.path("large"));
        fs::write(&small, "old").unwrap();
        fs::write(&blocks, bytes(0, 20_000)).unwrap();
        fs::write(&large, bytes(0, 3 * MIB)).unwrap();
        let mut filler = File::create(mounted.path("filler")).unwrap();
        fill(|data| filler.write_all(data), 64 << 10);
        fill(|data| filler.write_all(data), 100);
        assert_full(&place, size);
        for round in 0..50 {
            for path in [&small, &blocks] {
                fs::write(path, format!("new {round}")).unwrap();
                assert_eq!(fs::read(path).unwrap(), format!("new {round}").as_bytes());
            }
        }
        // As many bytes as before, in any number of writes, also after ftruncate(2).
        for _ in 0..3 {
            let mut file = OpenOptions::new().write(true).open(&large).unwrap();
            file.set_len(0).unwrap();
            for offset in (0..3 * MIB).step_by(64 << 10) {
                file.write_all(&bytes(offset, 64 << 10)).unwrap();
            }
        }
        // What a new file would take is still not there.
        let mut more = File::create(mounted.path("more")).unwrap();
        let done = fill(|data| more.write_all(data), 64 << 10);
        assert!(done < 2 * MIB, "{done} bytes");
        drop(more);
        // A file that becomes larger than it was uses up the room, and write(2) says so.
        let mut file = File::create(&small).unwrap();
        let done = fill(|data| file.write_all(data), 4096);
        assert!(done < 2 * MIB, "{done} bytes");
        drop((file, filler));
        let mounted = again(&place, mounted);
        assert_holds(&mounted.path("large"), 3 * MIB);
        assert_holds(&mounted.path("small"), done);
        mounted.unmount();
    }
}

/// Overwrites a file until that is refused. Returns the number of accepted bytes.
fn overwrite(path: &Path, length: usize) -> usize {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let step = 64 << 10;
    for offset in (0..length).step_by(step) {
        if let Err(error) = file.write_all_at(&vec![b'n'; step], offset as u64) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
            file.sync_all().unwrap();
            return offset;
        }
    }
    file.sync_all().unwrap();
    length
}

/// Overwriting shared blocks takes new ones, so write(2) itself refuses what does not fit.
#[test]
fn overwriting_shared_blocks_is_refused_by_the_write() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 * MIB as u64, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    for name in ["source", "held", "alone"] {
        fs::write(mounted.path(name), bytes(0, 4 * MIB)).unwrap();
    }
    fs::copy(mounted.path("source"), mounted.path("clone")).unwrap();
    let fill_up = || {
        let mut file = OpenOptions::new();
        let mut file = file.append(true).create(true).open(mounted.path("filler")).unwrap();
        fill(|data| file.write_all(data), 64 << 10);
    };
    fill_up();
    // The last unit is not for them, and less than it is left.
    for name in ["source", "clone"] {
        let done = overwrite(&mounted.path(name), 4 * MIB);
        assert!(done < MIB, "{name}: {done} bytes");
    }
    for name in ["held", "alone"] {
        assert_eq!(overwrite(&mounted.path(name), 4 * MIB), 4 * MIB, "{name}");
    }
    // What was alone before a snapshot is not alone after it.
    fs::remove_file(mounted.path("alone")).unwrap();
    ioctl::snapshot_create(&mounted.root(), "snapshot").unwrap();
    fill_up();
    let held = OpenOptions::new().write(true).open(mounted.path("held")).unwrap();
    assert!(overwrite(&mounted.path("held"), 4 * MIB) < MIB);
    drop(held);
    let lost = ioctl::lost_writes(&mounted.root()).unwrap();
    assert_eq!((lost.bytes, lost.errno), (0, 0), "no write was accepted and lost");
    mounted.unmount();
}

/// Without transaction points an overwrite brings nothing back, so it counts as growth.
#[test]
fn overwriting_without_points_is_refused_by_the_write() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 * MIB as u64, TransactionMask::MANUAL);
    let mounted = place.mount(&MountOptions::default());
    fs::write(mounted.path("file"), bytes(0, 8 * MIB)).unwrap();
    ioctl::transact(&mounted.root()).unwrap();
    let mut filler = File::create(mounted.path("filler")).unwrap();
    fill(|data| filler.write_all(data), 64 << 10);
    assert!(overwrite(&mounted.path("file"), 8 * MIB) < MIB);
    drop(filler);
    let lost = ioctl::lost_writes(&mounted.root()).unwrap();
    assert_eq!((lost.bytes, lost.errno), (0, 0), "no write was accepted and lost");
    mounted.unmount();
}
