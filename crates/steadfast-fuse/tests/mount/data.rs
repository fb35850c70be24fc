//! Data of regular files, with all the ways of writing and reading on Linux.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use steadfast::TransactionMask;
use steadfast_fuse::MountOptions;

use crate::support::{Place, QUIET, can_mount, errno, pattern};
use crate::sys::{self, Mapping};

const SIZE: u64 = 128 << 20;
const MIB: usize = 1 << 20;

pub fn both_modes(test: impl Fn(&Place, &MountOptions)) {
    if !can_mount() {
        return;
    }
    for write_back in [true, false] {
        test(
            &Place::new(SIZE, QUIET),
            &MountOptions { write_back, allow_other: true, ..MountOptions::default() },
        );
    }
}

#[test]
fn large_and_small_writes_survive_a_remount() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let large = pattern(1, 20 * MIB + 12345);
        fs::write(mounted.path("large"), &large).unwrap();
        fs::write(mounted.path("small"), "small").unwrap();
        fs::write(mounted.path("empty"), "").unwrap();
        let mut log =
            OpenOptions::new().append(true).create(true).open(mounted.path("log")).unwrap();
        for number in 0..1000 {
            writeln!(log, "line {number}").unwrap();
        }
        log.sync_all().unwrap();
        drop(log);
        let sparse = File::create(mounted.path("sparse")).unwrap();
        sparse.write_at(b"end", 1 << 40).unwrap();
        sparse.sync_all().unwrap();
        drop(sparse);
        mounted.unmount();

        let mounted = place.mount(options);
        assert!(fs::read(mounted.path("large")).unwrap() == large);
        assert_eq!(fs::read_to_string(mounted.path("small")).unwrap(), "small");
        assert_eq!(fs::read_to_string(mounted.path("empty")).unwrap(), "");
        assert_eq!(fs::read_to_string(mounted.path("log")).unwrap().lines().count(), 1000);
        let sparse = fs::metadata(mounted.path("sparse")).unwrap();
        assert_eq!(sparse.len(), (1 << 40) + 3);
        assert!(sparse.blocks() < 1000);
        mounted.unmount();
    });
}

#[test]
fn direct_io() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let data = pattern(2, 4 * MIB);
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_DIRECT)
            .open(mounted.path("direct"))
            .unwrap();
        // Neither the buffer nor the length must be aligned here.
        direct.write_all_at(&data, 0).unwrap();
        direct.write_all_at(b"tail", data.len() as u64).unwrap();
        assert!(fs::read(mounted.path("direct")).unwrap()[..data.len()] == data);
        let mut back = vec![0; data.len()];
        direct.read_exact_at(&mut back, 0).unwrap();
        assert!(back == data);
        drop(direct);
        mounted.unmount();
    });
}

#[test]
fn truncation_and_allocation() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let path = mounted.path("file");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        let data = pattern(3, MIB);
        file.write_all(&data).unwrap();
        file.set_len(100_000).unwrap();
        file.set_len(200_000).unwrap();
        let mut expected = data[..100_000].to_vec();
        expected.resize(200_000, 0);
        assert!(fs::read(&path).unwrap() == expected);
        sys::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 8192, 10_000)
            .unwrap();
        expected[8192..18_192].fill(0);
        assert!(fs::read(&path).unwrap() == expected);
        sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 50_000, 1000).unwrap();
        expected[50_000..51_000].fill(0);
        sys::fallocate(&file, 0, 0, 300_000).unwrap();
        expected.resize(300_000, 0);
        assert!(fs::read(&path).unwrap() == expected);
        sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 300_000, 1_000_000).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 300_000);
        assert!(fs::metadata(&path).unwrap().blocks() * 512 > 1_000_000);
        let collapse = sys::fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
        assert_eq!(errno(collapse), libc::EOPNOTSUPP);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut again = Vec::new();
        file.read_to_end(&mut again).unwrap();
        assert!(again == expected);
        drop(file);
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        mounted.unmount();
    });
}

#[test]
fn blocks_are_right_after_fsync() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let mut file = File::create(mounted.path("file")).unwrap();
        for megabytes in 1..4u64 {
            file.write_all(&pattern(megabytes, MIB)).unwrap();
            file.sync_all().unwrap();
            assert!(file.metadata().unwrap().blocks() * 512 >= megabytes * MIB as u64);
        }
        drop(file);
        mounted.unmount();
    });
}

#[test]
fn seek_sees_dirty_pages() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let file = File::create(mounted.path("file")).unwrap();
        file.write_at(&[1; 4096], MIB as u64).unwrap();
        file.write_at(&[2; 4096], 3 * MIB as u64).unwrap();
        assert_eq!(sys::seek(&file, 0, libc::SEEK_DATA).unwrap(), MIB as i64);
        assert_eq!(sys::seek(&file, MIB as i64, libc::SEEK_HOLE).unwrap(), MIB as i64 + 4096);
        assert_eq!(sys::seek(&file, 2 * MIB as i64, libc::SEEK_DATA).unwrap(), 3 * MIB as i64);
        assert_eq!(errno(sys::seek(&file, 4 * MIB as i64, libc::SEEK_DATA)), libc::ENXIO);
        assert_eq!(sys::seek(&file, 0, libc::SEEK_HOLE).unwrap(), 0);
        drop(file);
        mounted.unmount();
    });
}

#[test]
fn copies_within_and_between_files() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let data = pattern(5, 3 * MIB + 17);
        let from = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(mounted.path("from"))
            .unwrap();
        from.write_all_at(&data, 0).unwrap();
        let to = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(mounted.path("to"))
            .unwrap();
        to.write_all_at(&[9; 5000], 0).unwrap();
        let mut copied = 0;
        while copied < data.len() {
            let step =
                sys::copy_file_range(&from, copied as i64, &to, copied as i64, data.len() - copied)
                    .unwrap();
            assert!(step > 0);
            copied += step;
        }
        assert!(fs::read(mounted.path("to")).unwrap() == data);
        assert_eq!(sys::copy_file_range(&from, 100, &from, 2 * MIB as i64, 1000).unwrap(), 1000);
        let mut expected = data;
        expected.copy_within(100..1100, 2 * MIB);
        assert!(fs::read(mounted.path("from")).unwrap() == expected);
        drop((from, to));
        mounted.unmount();
    });
}

#[test]
fn shared_mappings() {
    if !can_mount() {
        return;
    }
    for write_back in [true, false] {
        let place = Place::new(SIZE, QUIET);
        let daemon = place.daemon_with(write_back);
        let path = daemon.path("mapped");
        fs::write(&path, vec![0; MIB]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::new(&file, MIB).unwrap();
        drop(file);
        mapping.write(5000, b"through the mapping");
        mapping.sync().unwrap();
        mapping.write(500_000, b"not synced");
        drop(mapping);
        steadfast_fuse::ioctl::transact(&daemon.root()).unwrap();
        daemon.unmount();
        let daemon = place.daemon_with(write_back);
        let found = fs::read(daemon.path("mapped")).unwrap();
        assert_eq!(&found[5000..5019], b"through the mapping");
        assert_eq!(&found[500_000..500_010], b"not synced");
        daemon.unmount();
    }
}

#[test]
fn files_without_names() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        // A file is unlinked while it is open.
        let path = mounted.path("unlinked");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.write_all(&pattern(6, 100_000)).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all(b"still here").unwrap();
        file.sync_all().unwrap();
        let mut back = vec![0; 10];
        file.read_exact_at(&mut back, 100_000).unwrap();
        assert_eq!(back, b"still here");
        drop(file);
        // O_TMPFILE with a name added later.
        let flags = libc::O_TMPFILE | libc::O_RDWR;
        let mut unnamed = sys::open(&place.mount_point(), flags, 0o640).unwrap();
        unnamed.write_all(b"came late").unwrap();
        assert_eq!(unnamed.metadata().unwrap().nlink(), 0);
        sys::link_file(&unnamed, &mounted.path("named")).unwrap();
        drop(unnamed);
        assert_eq!(fs::read_to_string(mounted.path("named")).unwrap(), "came late");
        assert_eq!(fs::metadata(mounted.path("named")).unwrap().mode() & 0o777, 0o640 & !0o022);
        // An O_TMPFILE file that never gets a name.
        drop(sys::open(&place.mount_point(), flags, 0o600).unwrap());
        assert_eq!(fs::read_dir(place.mount_point()).unwrap().count(), 1);
        mounted.unmount();
    });
}

#[test]
fn strangers_lose_set_id_bits() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let path = mounted.path("program");
        let reset = || {
            fs::write(&path, vec![1; 10_000]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        };
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        reset();
        assert_eq!(mode(), 0o6777);
        // Root keeps the bits.
        OpenOptions::new().write(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(mode(), 0o6777);
        type Change = fn(&File) -> bool;
        let changes: [(&str, Change); 4] = [
            ("write", |file| file.write_at(b"x", 0).is_ok()),
            ("truncate", |file| file.set_len(5).is_ok()),
            ("punch", |file| {
                let flags = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                sys::fallocate(file, flags, 0, 4096).is_ok()
            }),
            ("allocate", |file| sys::fallocate(file, 0, 0, 50_000).is_ok()),
        ];
        for (name, change) in changes {
            reset();
            let changed = sys::as_user(1000, 1000, || {
                OpenOptions::new().write(true).open(&path).is_ok_and(|file| change(&file))
            });
            assert!(changed, "{name}");
            assert_eq!(mode(), 0o777, "{name} {options:?}");
        }
        reset();
        assert!(sys::as_user(1000, 1000, || {
            OpenOptions::new().write(true).truncate(true).open(&path).is_ok()
        }));
        // The kernel uses this cached mode when it executes the file. A request for more than the
        // mode would make the kernel ask the daemon.
        assert_eq!(
            sys::mode_alone(&path).unwrap() & 0o7777,
            0o777,
            "O_TRUNC, as the kernel has it"
        );
        assert_eq!(mode(), 0o777, "O_TRUNC");
        reset();
        std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
        assert_eq!(mode(), 0o777, "chown");
        mounted.unmount();
    });
}

/// No transaction point contains another user's data in a file that still runs with its owner's
/// rights.
#[test]
fn set_id_bits_go_before_the_data_comes() {
    if !can_mount() {
        return;
    }
    type Change = fn(&File, &File, &Path) -> bool;
    let changes: [(&str, TransactionMask, Change); 5] = [
        ("write", TransactionMask::WRITE, |file, _, _| file.write_at(b"stranger", 0).is_ok()),
        ("truncate", TransactionMask::TRUNCATE, |file, _, _| file.set_len(0).is_ok()),
        ("O_TRUNC", TransactionMask::TRUNCATE, |_, _, path| {
            OpenOptions::new().write(true).truncate(true).open(path).is_ok()
        }),
        ("allocate", TransactionMask::TRUNCATE, |file, _, _| {
            sys::fallocate(file, 0, 0, 50_000).is_ok()
        }),
        ("copy", TransactionMask::WRITE, |file, from, _| {
            sys::copy_file_range(from, 0, file, 0, 8).is_ok()
        }),
    ];
    for (name, mask, change) in changes {
        // Each change is a transaction point, and no other event is.
        let place = Place::new(16 << 20, mask);
        let mounted = place.mount(&MountOptions {
            write_back: false,
            allow_other: true,
            ..MountOptions::default()
        });
        let path = mounted.path("program");
        fs::write(mounted.path("from"), "stranger").unwrap();
        fs::write(&path, "program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        steadfast_fuse::ioctl::transact(&mounted.root()).unwrap();
        let changed = sys::as_user(1000, 1000, || {
            let from = File::open(mounted.path("from"));
            let file = OpenOptions::new().write(true).open(&path);
            from.is_ok_and(|from| file.is_ok_and(|file| change(&file, &from, &path)))
        });
        assert!(changed, "{name}");
        steadfast_fuse::ioctl::rollback(&mounted.root(), true).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_ne!(found.len(), 7, "{name}: the change is there");
        assert_eq!(found.mode() & 0o7777, 0o777, "{name}");
        mounted.unmount();
    }
}

#[test]
fn mounts_of_root_trust_no_image() {
    if !can_mount() {
        return;
    }
    let flags = |extra: &[&str]| {
        let place = Place::new(16 << 20, QUIET);
        let extra = extra.iter().map(|option| String::from(*option)).collect();
        let mounted = place.mount(&MountOptions { extra, ..MountOptions::default() });
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let path = format!(" {} ", place.mount_point().display());
        let line = table.lines().find(|line| line.contains(&path)).unwrap().to_owned();
        mounted.unmount();
        ["nosuid", "nodev"].map(|flag| line.split([' ', ',']).any(|word| word == flag))
    };
    assert_eq!(flags(&[]), [true, true]);
    assert_eq!(flags(&["suid"]), [false, true]);
    assert_eq!(flags(&["dev", "suid"]), [false, false]);
    assert_eq!(flags(&["suid", "nosuid", "dev"]), [true, false]);
}

#[test]
fn a_full_volume_says_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new(16 << 20, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let mut file = File::create(mounted.path("full")).unwrap();
    let chunk = pattern(7, MIB);
    let mut written = Ok(());
    for _ in 0..32 {
        written = file.write_all(&chunk).and_then(|()| file.sync_all());
        if written.is_err() {
            break;
        }
    }
    assert_eq!(errno(written), libc::ENOSPC);
    drop(file);
    let (free, all) = sys::statfs(&place.mount_point()).unwrap();
    assert!(free < all / 4);
    fs::remove_file(mounted.path("full")).unwrap();
    steadfast_fuse::ioctl::transact(&mounted.root()).unwrap();
    crate::support::wait_for("space to come back", || {
        let (free, all) = sys::statfs(&place.mount_point()).unwrap();
        free > all / 2
    });
    fs::write(mounted.path("again"), &chunk).unwrap();
    mounted.unmount();
}
