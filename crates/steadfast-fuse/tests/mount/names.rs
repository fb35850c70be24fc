//! Names, links, special files, directories, attributes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::time::{Duration, Instant, UNIX_EPOCH};

use steadfast_fuse::MountOptions;

use crate::support::{Place, QUIET, can_mount, errno};
use crate::sys;

const SIZE: u64 = 64 << 20;

#[test]
fn names_of_all_kinds() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted =
        place.mount(&MountOptions { extra: vec!["dev".into()], ..MountOptions::default() });
    let path = |name: &str| mounted.path(name);

    fs::write(path("file"), "one").unwrap();
    assert_eq!(
        errno(OpenOptions::new().write(true).create_new(true).open(path("file"))),
        libc::EEXIST
    );
    fs::hard_link(path("file"), path("second")).unwrap();
    assert_eq!(fs::metadata(path("file")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(path("file")).unwrap().ino(),
        fs::metadata(path("second")).unwrap().ino()
    );
    symlink("file", path("link")).unwrap();
    assert_eq!(fs::read_link(path("link")).unwrap().to_str(), Some("file"));
    assert_eq!(fs::read_to_string(path("link")).unwrap(), "one");
    fs::create_dir(path("dir")).unwrap();
    assert_eq!(errno(fs::create_dir(path("dir"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_file(path("dir"))), libc::EISDIR);
    fs::write(path("dir/inner"), "x").unwrap();
    assert_eq!(errno(fs::remove_dir(path("dir"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::rename(path("dir"), path("dir/below"))), libc::EINVAL);
    assert_eq!(errno(File::open(path("nothing"))), libc::ENOENT);
    assert_eq!(errno(File::open(path(&"n".repeat(256)))), libc::ENAMETOOLONG);

    sys::mknod(&path("fifo"), libc::S_IFIFO | 0o600, 0).unwrap();
    sys::mknod(&path("socket"), libc::S_IFSOCK | 0o600, 0).unwrap();
    assert!(fs::metadata(path("fifo")).unwrap().file_type().is_fifo());
    assert!(fs::metadata(path("socket")).unwrap().file_type().is_socket());
    sys::mknod(&path("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3)).unwrap();
    assert_eq!(fs::metadata(path("null")).unwrap().rdev(), libc::makedev(1, 3));
    File::options().write(true).open(path("null")).unwrap().write_all(b"gone").unwrap();
    sys::mknod(&path("large"), libc::S_IFBLK | 0o600, libc::makedev(0xabc, 0x12345)).unwrap();
    assert_eq!(fs::metadata(path("large")).unwrap().rdev(), libc::makedev(0xabc, 0x12345));

    fs::remove_file(path("second")).unwrap();
    assert_eq!(fs::metadata(path("file")).unwrap().nlink(), 1);
    mounted.unmount();

    let mounted = place.mount(&MountOptions::default());
    let names: BTreeSet<_> =
        fs::read_dir(place.mount_point()).unwrap().map(|e| e.unwrap().file_name()).collect();
    // QUIET does not have `unmount`, so nothing was committed.
    assert!(names.is_empty(), "{names:?}");
    mounted.unmount();
}

#[test]
fn renames() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::write(path("a"), "a").unwrap();
    fs::write(path("b"), "b").unwrap();
    assert_eq!(errno(sys::rename2(&path("a"), &path("b"), libc::RENAME_NOREPLACE)), libc::EEXIST);
    sys::rename2(&path("a"), &path("c"), libc::RENAME_NOREPLACE).unwrap();
    sys::rename2(&path("b"), &path("c"), libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(path("b")).unwrap(), "a");
    assert_eq!(fs::read_to_string(path("c")).unwrap(), "b");
    assert_eq!(errno(sys::rename2(&path("b"), &path("none"), libc::RENAME_EXCHANGE)), libc::ENOENT);
    let held = File::open(path("c")).unwrap();
    fs::rename(path("b"), path("c")).unwrap();
    assert_eq!(fs::read_to_string(path("c")).unwrap(), "a");
    let mut text = String::new();
    (&held).read_to_string(&mut text).unwrap();
    assert_eq!(text, "b", "a replaced file that is open keeps its bytes");
    fs::create_dir(path("d")).unwrap();
    fs::create_dir(path("e")).unwrap();
    fs::rename(path("c"), path("d/c")).unwrap();
    fs::rename(path("d"), path("e")).unwrap();
    assert_eq!(fs::read_to_string(path("e/c")).unwrap(), "a");
    drop(held);
    mounted.unmount();
}

#[test]
fn a_large_directory_is_listed_completely_while_it_changes() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    for number in 0..3000 {
        File::create(directory.join(format!("stays-{number}"))).unwrap();
        File::create(directory.join(format!("goes-{number}"))).unwrap();
    }
    let mut seen = BTreeSet::new();
    for (count, entry) in fs::read_dir(&directory).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(seen.insert(name.clone()), "{name} twice");
        if count % 2 == 0 && count / 2 < 3000 {
            fs::remove_file(directory.join(format!("goes-{}", count / 2))).unwrap();
            File::create(directory.join(format!("new-{count}"))).unwrap();
        }
    }
    for number in 0..3000 {
        assert!(seen.contains(&format!("stays-{number}")), "stays-{number} is missing");
    }
    // The list has attributes (readdirplus), and they are correct.
    for entry in fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().ino(), fs::metadata(entry.path()).unwrap().ino());
    }
    mounted.unmount();
}

#[test]
fn attributes_and_times() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let file = mounted.path("file");
    fs::write(&file, "text").unwrap();
    let opened = File::options().write(true).open(&file).unwrap();
    let (accessed, modified) =
        (UNIX_EPOCH + Duration::new(4_500_000_000, 123_456_789), UNIX_EPOCH - Duration::new(10, 0));
    opened.set_times(fs::FileTimes::new().set_accessed(accessed).set_modified(modified)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&file, Some(12), Some(34)).unwrap();
    drop(opened);
    let check = || {
        let found = fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode()), (12, 34, libc::S_IFREG | 0o751));
        assert_eq!(found.accessed().unwrap(), accessed);
        assert_eq!(found.modified().unwrap(), modified);
        assert_eq!(found.len(), 4);
        assert!(found.created().unwrap() > UNIX_EPOCH + Duration::from_secs(1_600_000_000));
        assert!(found.blksize() > 0);
    };
    check();
    steadfast_fuse::ioctl::transact(&mounted.root()).unwrap();
    mounted.unmount();
    let mounted = place.mount(&MountOptions::default());
    check();
    mounted.unmount();
}

#[test]
fn what_is_gone_can_still_be_held() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("dir")).unwrap();
    fs::create_dir(path("replaced")).unwrap();
    sys::mknod(&path("fifo"), libc::S_IFIFO | 0o600, 0).unwrap();
    let dir = File::open(path("dir")).unwrap();
    let replaced = File::open(path("replaced")).unwrap();
    let fifo = File::options().read(true).write(true).open(path("fifo")).unwrap();
    fs::remove_dir(path("dir")).unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::rename(path("other"), path("replaced")).unwrap();
    fs::remove_file(path("fifo")).unwrap();
    for (name, file) in [("dir", &dir), ("replaced", &replaced), ("fifo", &fifo)] {
        assert_eq!(file.metadata().unwrap().nlink(), 0, "{name}");
    }
    // The kernel's internal requests for removed files do not count as errors of the file system.
    fs::write(path("file"), "x").unwrap();
    fs::remove_file(path("file")).unwrap();
    sys::syncfs(&mounted.root()).unwrap();
    drop((dir, replaced, fifo));
    mounted.unmount();
}

/// A program that has looked up a name can still open the old file after a rename has given the
/// name to another file. The space of the old file is freed afterwards.
#[test]
fn what_a_rename_replaces_can_still_be_opened() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::write(path("file"), "old").unwrap();
    symlink("old target", path("link")).unwrap();
    let looked_up = |name: &str| {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
            .open(path(name))
            .unwrap()
    };
    let (file, link) = (looked_up("file"), looked_up("link"));
    fs::write(path("new"), "new").unwrap();
    fs::rename(path("new"), path("file")).unwrap();
    symlink("new target", path("other")).unwrap();
    fs::rename(path("other"), path("link")).unwrap();
    let through = |held: &File| format!("/proc/self/fd/{}", held.as_raw_fd());
    assert_eq!(fs::read_to_string(through(&file)).unwrap(), "old");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(link.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "new");
    assert_eq!(fs::read_link(path("link")).unwrap().to_str(), Some("new target"));
    drop((file, link));
    let inodes = || sys::inodes(&path("")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while inodes() != 3 {
        assert!(Instant::now() < deadline, "{} inodes are in use", inodes());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn access_times_follow_relatime() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let file = mounted.path("file");
    fs::write(&file, "text").unwrap();
    let old = UNIX_EPOCH + Duration::from_secs(1000);
    let opened = File::options().write(true).open(&file).unwrap();
    opened.set_times(fs::FileTimes::new().set_accessed(old).set_modified(old)).unwrap();
    drop(opened);
    let accessed = || fs::metadata(&file).unwrap().accessed().unwrap();
    assert_eq!(accessed(), old);
    // Leave the clock tick in which the times were set: an access in the same tick would not count
    // as later.
    std::thread::sleep(Duration::from_millis(20));
    // From the kernel's cache, because it was just written.
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    let first = accessed();
    assert!(first > old);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(accessed(), first);
    mounted.unmount();
}

#[test]
fn umask_setgid_directories_and_acls() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("group")).unwrap();
    std::os::unix::fs::chown(path("group"), None, Some(77)).unwrap();
    fs::set_permissions(path("group"), fs::Permissions::from_mode(0o2775)).unwrap();
    File::create(path("group/file")).unwrap();
    fs::create_dir(path("group/dir")).unwrap();
    assert_eq!(fs::metadata(path("group/file")).unwrap().gid(), 77);
    let inner = fs::metadata(path("group/dir")).unwrap();
    assert_eq!((inner.gid(), inner.mode() & 0o2000), (77, 0o2000));

    // Default ACL: user::rwx, user:1234:rw-, group::r-x, mask::rwx, other::---. It replaces the
    // umask.
    let acl = acl(&[
        (1, 7, u32::MAX),
        (2, 6, 1234),
        (4, 5, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ]);
    fs::create_dir(path("acl")).unwrap();
    sys::set_xattr(&path("acl"), "system.posix_acl_default", &acl, 0).unwrap();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o666)
        .open(path("acl/file"))
        .unwrap();
    let mode = fs::metadata(path("acl/file")).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o660, "{mode:o}");
    let inherited = sys::get_xattr(&path("acl/file"), "system.posix_acl_access").unwrap();
    assert!(inherited.len() > 4);
    // chmod changes the mask of the ACL, and setting an ACL changes the mode.
    fs::set_permissions(path("acl/file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(fs::metadata(path("acl/file")).unwrap().mode() & 0o777, 0o600);
    let simple = self::acl(&[(1, 6, u32::MAX), (4, 4, u32::MAX), (0x20, 4, u32::MAX)]);
    sys::set_xattr(&path("acl/file"), "system.posix_acl_access", &simple, 0).unwrap();
    assert_eq!(fs::metadata(path("acl/file")).unwrap().mode() & 0o777, 0o644);
    mounted.unmount();
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

#[test]
fn extended_attributes() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let file = mounted.path("file");
    File::create(&file).unwrap();
    assert_eq!(errno(sys::get_xattr(&file, "user.none")), libc::ENODATA);
    sys::set_xattr(&file, "user.one", b"1", libc::XATTR_CREATE).unwrap();
    assert_eq!(errno(sys::set_xattr(&file, "user.one", b"2", libc::XATTR_CREATE)), libc::EEXIST);
    sys::set_xattr(&file, "user.one", b"two", libc::XATTR_REPLACE).unwrap();
    assert_eq!(errno(sys::set_xattr(&file, "user.two", b"2", libc::XATTR_REPLACE)), libc::ENODATA);
    sys::set_xattr(&file, "trusted.admin", b"", 0).unwrap();
    sys::set_xattr(&file, "security.label", b"x", 0).unwrap();
    assert_eq!(errno(sys::set_xattr(&file, "strange.name", b"x", 0)), libc::EOPNOTSUPP);
    assert_eq!(sys::get_xattr(&file, "user.one").unwrap(), b"two");
    let mut names = sys::list_xattrs(&file).unwrap();
    names.sort();
    assert_eq!(names, ["security.label", "trusted.admin", "user.one"]);
    sys::remove_xattr(&file, "user.one").unwrap();
    assert_eq!(errno(sys::remove_xattr(&file, "user.one")), libc::ENODATA);
    mounted.unmount();
}

#[test]
fn handles_outlive_the_caches() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::write(mounted.path("a/b/file"), "text").unwrap();
    let mut text = String::new();
    let mut file = sys::reopen_by_handle(&mounted.path("a/b/file"), &place.mount_point()).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    let directory = sys::reopen_by_handle(&mounted.path("a/b"), &place.mount_point()).unwrap();
    assert_eq!(
        directory.metadata().unwrap().ino(),
        fs::metadata(mounted.path("a/b")).unwrap().ino()
    );
    drop((file, directory));
    mounted.unmount();
}

#[test]
fn read_only_mounts_refuse_changes() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::write(mounted.path("file"), "text").unwrap();
    steadfast_fuse::ioctl::transact(&mounted.root()).unwrap();
    mounted.unmount();
    let mounted = place.mount(&MountOptions { read_only: true, ..MountOptions::default() });
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "text");
    assert_eq!(errno(File::create(mounted.path("new"))), libc::EROFS);
    assert_eq!(errno(fs::write(mounted.path("file"), "other")), libc::EROFS);
    assert_eq!(errno(fs::remove_file(mounted.path("file"))), libc::EROFS);
    assert_eq!(errno(steadfast_fuse::ioctl::rollback(&mounted.root(), false)), libc::EROFS);
    mounted.unmount();
}
