//! Snapshots on a mount: the commands, and the directory `.snapshots`.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno, pattern};

const SIZE: u64 = 128 << 20;
const MIB: usize = 1 << 20;

fn names(mounted: &crate::support::Mounted) -> Vec<String> {
    ioctl::snapshots(&mounted.root()).unwrap().into_iter().map(|snapshot| snapshot.name).collect()
}

#[test]
fn a_snapshot_stays_as_it_was() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    let old = pattern(1, 3 * MIB);
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/file"), &old).unwrap();
    fs::write(path("small"), "small").unwrap();
    symlink("dir/file", path("link")).unwrap();
    // The data is still only in the kernel's cache, and the snapshot must contain it.
    let open = OpenOptions::new().create(true).append(true).open(path("open")).unwrap();
    (&open).write_all(b"before").unwrap();

    let taken = ioctl::snapshot_create(&mounted.root(), "first").unwrap();
    assert_eq!((taken.name.as_str(), taken.inodes), ("first", 6));
    (&open).write_all(b" and after").unwrap();
    fs::write(path("dir/file"), "new").unwrap();
    fs::remove_file(path("small")).unwrap();
    fs::write(path("dir/newer"), "newer").unwrap();
    ioctl::snapshot_create(&mounted.root(), "second").unwrap();
    assert_eq!(names(&mounted), ["first", "second"]);

    let seen = |name: &str| path(&format!(".snapshots/{name}"));
    assert!(fs::read(seen("first/dir/file")).unwrap() == old);
    assert!(
        fs::read(seen("first/link")).unwrap() == old,
        "a relative link stays inside the snapshot"
    );
    assert_eq!(fs::read_link(seen("first/link")).unwrap().to_str(), Some("dir/file"));
    assert_eq!(fs::read(seen("first/small")).unwrap(), b"small");
    assert_eq!(fs::read(seen("first/open")).unwrap(), b"before");
    assert_eq!(fs::read(seen("second/open")).unwrap(), b"before and after");
    assert_eq!(fs::read(seen("second/dir/newer")).unwrap(), b"newer");
    assert_eq!(errno(fs::read(seen("first/dir/newer"))), libc::ENOENT);
    assert_eq!(errno(fs::read(seen("third"))), libc::ENOENT);

    // cp and find must not take these for the live files.
    let (live, then) =
        (fs::metadata(path("dir/file")).unwrap(), fs::metadata(seen("first/dir/file")).unwrap());
    assert_ne!(live.ino(), then.ino());
    assert_eq!(then.len(), old.len() as u64);
    let listed = |directory: &str| {
        let mut names: Vec<_> = fs::read_dir(path(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(listed(".snapshots"), ["first", "second"]);
    assert_eq!(listed(".snapshots/first/dir"), ["file"]);
    assert_eq!(
        listed("."),
        ["dir", "link", "open"],
        "the directory of snapshots is not in the way"
    );
    let inner = fs::read_dir(path(".snapshots")).unwrap().next().unwrap().unwrap();
    assert_eq!(
        std::os::unix::fs::DirEntryExt::ino(&inner),
        fs::metadata(inner.path()).unwrap().ino()
    );
}

#[test]
fn nothing_in_a_snapshot_can_be_changed() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::write(path("file"), "content").unwrap();
    ioctl::snapshot_create(&mounted.root(), "s").unwrap();
    let seen = path(".snapshots/s/file");
    assert_eq!(errno(OpenOptions::new().write(true).open(&seen)), libc::EROFS);
    assert_eq!(errno(fs::remove_file(&seen)), libc::EROFS);
    assert_eq!(errno(fs::write(path(".snapshots/s/new"), "")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(path(".snapshots/new"))), libc::EROFS);
    assert_eq!(errno(fs::set_permissions(&seen, fs::Permissions::from_mode(0o600))), libc::EROFS);
    assert_eq!(errno(fs::rename(&seen, path(".snapshots/s/other"))), libc::EROFS);
    assert_eq!(errno(fs::hard_link(&seen, path("linked"))), libc::EXDEV);
    assert_eq!(errno(fs::rename(path("file"), path(".snapshots/s/file"))), libc::EXDEV);
    assert_eq!(errno(fs::create_dir(path(".snapshots"))), libc::EEXIST);
    // Copying out of a snapshot works, whichever call the library uses.
    fs::copy(&seen, path("copy")).unwrap();
    assert_eq!(fs::read(path("copy")).unwrap(), b"content");
}

#[test]
fn names_are_checked() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    let create = |name: &str| errno(ioctl::snapshot_create(&root, name));
    ioctl::snapshot_create(&root, "taken").unwrap();
    assert_eq!(create("taken"), libc::EEXIST);
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert_eq!(create(name), libc::EINVAL, "{name:?}");
    }
    assert_eq!(create(&"x".repeat(64)), libc::ENAMETOOLONG);
    ioctl::snapshot_create(&root, &"x".repeat(63)).unwrap();
    assert_eq!(errno(ioctl::snapshot_delete(&root, "none")), libc::ENOENT);
    assert_eq!(errno(ioctl::snapshot_rollback(&root, "none", false, false)), libc::ENOENT);
    // More snapshots than one answer holds.
    for number in 0..2 * ioctl::SNAPSHOT_LIST_MAX {
        ioctl::snapshot_create(&root, &format!("n{number}")).unwrap();
    }
    let expected = ["taken".to_owned(), "x".repeat(63)].into_iter();
    let numbered = (0..2 * ioctl::SNAPSHOT_LIST_MAX).map(|number| format!("n{number}"));
    assert_eq!(names(&mounted), expected.chain(numbered).collect::<Vec<_>>());
    // Every snapshot can be read, although only a few stay open.
    for name in names(&mounted) {
        assert!(fs::metadata(mounted.path(&format!(".snapshots/{name}"))).unwrap().is_dir());
    }
}

#[test]
fn a_deleted_snapshot_is_stale_and_its_name_is_free() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::write(path("file"), pattern(1, MIB)).unwrap();
    ioctl::snapshot_create(&mounted.root(), "s").unwrap();
    let directory = File::open(path(".snapshots/s")).unwrap();
    let open = File::open(path(".snapshots/s/file")).unwrap();
    open.read_exact_at(&mut [0; 100], 0).unwrap();
    ioctl::snapshot_delete(&mounted.root(), "s").unwrap();
    assert_eq!(errno(fs::metadata(path(".snapshots/s"))), libc::ENOENT);
    assert_eq!(errno(directory.metadata()), libc::ESTALE);
    fs::write(path("file"), "new").unwrap();
    ioctl::snapshot_create(&mounted.root(), "s").unwrap();
    assert_eq!(fs::read(path(".snapshots/s/file")).unwrap(), b"new");
    assert_eq!(errno(open.metadata()), libc::ESTALE);
}

#[test]
fn the_volume_goes_back_to_a_snapshot() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    let root = || mounted.root();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir/file"), pattern(1, MIB)).unwrap();
    ioctl::snapshot_create(&root(), "first").unwrap();
    fs::write(path("dir/file"), "changed").unwrap();
    ioctl::snapshot_create(&root(), "second").unwrap();
    let seen = File::open(path(".snapshots/second/dir/file")).unwrap();
    fs::remove_dir_all(path("dir")).unwrap();

    assert_eq!(errno(ioctl::snapshot_rollback(&root(), "first", false, false)), libc::ENOTEMPTY);
    let open = File::create(path("open")).unwrap();
    assert_eq!(errno(ioctl::snapshot_rollback(&root(), "second", false, false)), libc::EBUSY);
    drop(open);
    ioctl::snapshot_rollback(&root(), "second", false, false).unwrap();
    assert_eq!(fs::read(path("dir/file")).unwrap(), b"changed");
    assert_eq!(errno(fs::metadata(path("open"))), libc::ENOENT);

    let held = OpenOptions::new().write(true).open(path("dir/file")).unwrap();
    ioctl::snapshot_rollback(&root(), "first", true, true).unwrap();
    assert_eq!(errno((&held).write_all(b"x").and_then(|()| held.sync_all())), libc::ESTALE);
    assert!(fs::read(path("dir/file")).unwrap() == pattern(1, MIB));
    assert_eq!(names(&mounted), ["first"]);
    assert_eq!(errno(seen.metadata()), libc::ESTALE);

    // The checkpointed state is the one that was rolled back to.
    drop(held);
    drop(mounted);
    let mounted = place.mount(&MountOptions::default());
    assert!(fs::read(mounted.path("dir/file")).unwrap() == pattern(1, MIB));
    assert_eq!(names(&mounted), ["first"]);
}

#[test]
fn a_refused_deletion_leaves_open_files_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::write(mounted.path("file"), pattern(1, MIB)).unwrap();
    ioctl::snapshot_create(&mounted.root(), "s").unwrap();
    mounted.unmount();
    let mounted = place.mount(&MountOptions { read_only: true, ..MountOptions::default() });
    let open = File::open(mounted.path(".snapshots/s/file")).unwrap();
    let mut bytes = vec![0; MIB];
    open.read_exact_at(&mut bytes[..100], 0).unwrap();

    assert_eq!(errno(ioctl::snapshot_delete(&mounted.root(), "s")), libc::EROFS);

    open.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == pattern(1, MIB));
    assert_eq!(names(&mounted), ["s"]);
    drop(open);
    mounted.unmount();
}
