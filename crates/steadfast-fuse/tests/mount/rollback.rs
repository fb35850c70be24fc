//! Rollback of a running mount, as seen by programs with open files, mappings and directories.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use steadfast::InodeNumber;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno, pattern};
use crate::sys::Mapping;

const SIZE: u64 = 128 << 20;
const MIB: usize = 1 << 20;

#[test]
fn everything_is_as_it_was() {
    if !can_mount() {
        return;
    }
    // The last run emulates a kernel without epochs of names (before Linux 6.16).
    let new = MountOptions::default().protocol_minor_max;
    for (write_back, protocol_minor_max) in [(true, new), (false, new), (true, 40)] {
        let place = Place::new(SIZE, QUIET);
        let mounted = place.mount(&MountOptions {
            write_back,
            protocol_minor_max,
            ..MountOptions::default()
        });
        let path = |name: &str| mounted.path(name);
        let old = pattern(1, 3 * MIB);
        for name in ["extended", "cut", "changed", "removed", "renamed"] {
            fs::write(path(name), &old).unwrap();
        }
        fs::create_dir_all(path("dir/sub")).unwrap();
        fs::write(path("dir/file"), "old").unwrap();
        let inode = fs::metadata(path("extended")).unwrap().ino();
        ioctl::transact(&mounted.root()).unwrap();

        OpenOptions::new().append(true).open(path("extended")).unwrap().write_all(&old).unwrap();
        OpenOptions::new().write(true).open(path("cut")).unwrap().set_len(10).unwrap();
        OpenOptions::new()
            .write(true)
            .open(path("changed"))
            .unwrap()
            .write_at(&[7; 100], MIB as u64)
            .unwrap();
        fs::remove_file(path("removed")).unwrap();
        fs::rename(path("renamed"), path("dir/moved")).unwrap();
        fs::write(path("dir/file"), "newer").unwrap();
        fs::write(path("new"), "new").unwrap();
        fs::create_dir(path("dir/newdir")).unwrap();
        fs::remove_dir(path("dir/sub")).unwrap();
        assert_eq!(fs::metadata(path("dir")).unwrap().nlink(), 3);
        // All of this is in the kernel's caches.
        assert_eq!(fs::read_dir(path("dir")).unwrap().count(), 3);

        ioctl::rollback(&mounted.root(), false).unwrap();

        for name in ["extended", "cut", "changed", "removed", "renamed"] {
            assert_eq!(fs::metadata(path(name)).unwrap().len(), old.len() as u64, "{name}");
            assert!(fs::read(path(name)).unwrap() == old, "{name} {write_back}");
        }
        assert_eq!(
            fs::metadata(path("extended")).unwrap().ino(),
            inode,
            "the inode number is the same"
        );
        assert!(!path("new").exists());
        assert!(!path("dir/moved").exists());
        assert!(!path("dir/newdir").exists());
        assert!(path("dir/sub").is_dir());
        assert_eq!(fs::read_to_string(path("dir/file")).unwrap(), "old");
        assert_eq!(fs::read_dir(path("dir")).unwrap().count(), 2);
        assert_eq!(fs::metadata(path("dir")).unwrap().nlink(), 3);
        // Work continues from that state.
        fs::write(path("new"), "again").unwrap();
        fs::create_dir(path("dir/newdir")).unwrap();
        ioctl::transact(&mounted.root()).unwrap();
        mounted.unmount();
        let mounted = place.mount(&MountOptions::default());
        assert_eq!(fs::read_to_string(mounted.path("new")).unwrap(), "again");
        assert!(fs::read(mounted.path("cut")).unwrap() == old);
        mounted.unmount();
    }
}

#[test]
fn open_files_are_busy_and_then_stale() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.daemon();
    let path = mounted.path("file");
    fs::write(&path, vec![1; MIB]).unwrap();
    ioctl::transact(&mounted.root()).unwrap();

    let mut writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    writer.write_all(&vec![2; 2 * MIB]).unwrap();
    assert_eq!(errno(ioctl::rollback(&mounted.root(), false)), libc::EBUSY);
    // A mapping counts even after its file was closed.
    let mapping = Mapping::new(&writer, MIB).unwrap();
    drop(writer);
    mapping.write(0, &[3; 4096]);
    assert_eq!(errno(ioctl::rollback(&mounted.root(), false)), libc::EBUSY);
    let writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    writer.write_at(&[4; 100_000], 3 * MIB as u64).unwrap();
    let reader = File::open(&path).unwrap();

    ioctl::rollback(&mounted.root(), true).unwrap();

    assert!(fs::read(&path).unwrap() == vec![1; MIB]);
    let mut byte = [0];
    assert_eq!(errno(reader.read_at(&mut byte, 0)), libc::ESTALE);
    assert_eq!(errno(writer.read_at(&mut byte, 0)), libc::ESTALE);
    let lost = writer.write_at(&[5; 10], 0).and_then(|_| writer.sync_all());
    assert!(matches!(errno(lost), libc::ESTALE | libc::EIO));
    assert!(mapping.is_dead(0), "a mapping of a stale file gives SIGBUS, not old bytes");
    drop((reader, writer, mapping));
    assert!(fs::read(&path).unwrap() == vec![1; MIB]);
    // No file is open any more: the next rollback needs no force.
    fs::write(&path, "short").unwrap();
    ioctl::rollback(&mounted.root(), false).unwrap();
    assert!(fs::read(&path).unwrap() == vec![1; MIB]);
    mounted.unmount();
}

#[test]
fn a_shell_in_a_directory_stays_there() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::create_dir(mounted.path("home")).unwrap();
    fs::write(mounted.path("home/old"), "old").unwrap();
    ioctl::transact(&mounted.root()).unwrap();
    let home = File::open(mounted.path("home")).unwrap();
    let at = |name: &str| {
        std::path::PathBuf::from(format!(
            "/proc/self/fd/{}/{name}",
            std::os::fd::AsRawFd::as_raw_fd(&home)
        ))
    };
    fs::write(at("new"), "new").unwrap();
    fs::create_dir(mounted.path("gone")).unwrap();
    let gone = File::open(mounted.path("gone")).unwrap();

    ioctl::rollback(&mounted.root(), false).unwrap();

    assert_eq!(home.metadata().unwrap().ino(), fs::metadata(mounted.path("home")).unwrap().ino());
    assert_eq!(fs::read_to_string(at("old")).unwrap(), "old");
    assert_eq!(errno(File::open(at("new"))), libc::ENOENT);
    fs::write(at("newer"), "newer").unwrap();
    assert_eq!(fs::read_to_string(mounted.path("home/newer")).unwrap(), "newer");
    // A directory that the rollback removed is also gone for processes whose working directory it
    // is.
    let below = format!("/proc/self/fd/{}/x", std::os::fd::AsRawFd::as_raw_fd(&gone));
    assert!(matches!(errno(File::create(&below)), libc::ESTALE | libc::ENOENT));
    // Even after its inode number is used again.
    for number in 0..20 {
        fs::create_dir(mounted.path(&format!("d{number}"))).unwrap();
    }
    assert!(matches!(errno(File::create(&below)), libc::ESTALE | libc::ENOENT));
    drop((home, gone));
    mounted.unmount();
}

#[test]
fn rollback_under_load_mixes_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    // Each version writes the same number to all files. Transaction points are only set between
    // versions.
    let names: Vec<_> = (0..8).map(|number| mounted.path(&format!("f{number}"))).collect();
    let write = |version: u64| -> std::io::Result<()> {
        for name in &names {
            fs::write(name, version.to_le_bytes().repeat(2000))?;
        }
        Ok(())
    };
    write(0).unwrap();
    ioctl::transact(&mounted.root()).unwrap();
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for name in &names {
                        let mut bytes = Vec::new();
                        // Open files may become stale for the readers; no other error may occur.
                        match File::open(name).and_then(|mut file| file.read_to_end(&mut bytes)) {
                            Ok(_) => assert_eq!(bytes.len() % 8, 0),
                            Err(error) => assert!(
                                matches!(error.raw_os_error(), Some(libc::ESTALE | libc::EIO)),
                                "{error}"
                            ),
                        }
                        let _ = fs::read_dir(place.mount_point()).map(Iterator::count);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for version in 1..60 {
            write(version).unwrap();
            if version % 3 == 0 {
                ioctl::transact(&mounted.root()).unwrap();
            } else {
                ioctl::rollback(&mounted.root(), true).unwrap();
                let expected = version - version % 3;
                for name in &names {
                    assert!(
                        fs::read(name).unwrap() == expected.to_le_bytes().repeat(2000),
                        "version {version}"
                    );
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    mounted.unmount();
}

/// A rollback to a snapshot is refused only after the volume was asked. What the kernel writes back
/// meanwhile is stored.
#[test]
fn a_refused_rollback_drops_no_write() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    ioctl::snapshot_create(&mounted.root(), "old").unwrap();
    ioctl::snapshot_create(&mounted.root(), "newer").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(mounted.path("file"))
        .unwrap();
    let inode = InodeNumber(file.metadata().unwrap().ino());
    let (stop, refusals) = (AtomicBool::new(false), AtomicU64::new(0));
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            let root = mounted.root();
            while !stop.load(Ordering::Relaxed) {
                let refused = ioctl::snapshot_rollback(&root, "old", true, false);
                assert_eq!(errno(refused), libc::ENOTEMPTY);
                refusals.fetch_add(1, Ordering::Relaxed);
            }
        });
        let write = |round: u64| -> Result<(), String> {
            let data = pattern(round + 1, 8192);
            let offset = round * 8192;
            let told = |what: &str, error: std::io::Error| format!("{what} {round}: {error}");
            file.write_all_at(&data, offset).map_err(|error| told("write", error))?;
            file.sync_data().map_err(|error| told("fsync", error))?;
            let mut found = vec![0; data.len()];
            // From the volume: the kernel still has its own pages.
            mounted.volume().read(inode, offset, &mut found).map_err(|error| error.to_string())?;
            if found == data { Ok(()) } else { Err(format!("write {round} was dropped")) }
        };
        let wrong = (0..1000).find_map(|round| write(round).err());
        stop.store(true, Ordering::Relaxed);
        wrong
    });
    assert_eq!(wrong, None);
    assert!(refusals.load(Ordering::Relaxed) > 0);
    drop(file);
    mounted.unmount();
}
