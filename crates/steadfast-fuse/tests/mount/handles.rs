//! File handles as an NFS server keeps them. They stay valid after a remount and after the daemon
//! is killed, whatever name the file then has. Handles of removed files return ESTALE, and never
//! lead to another file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;

use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno, wait_for};
use crate::sys::{self, Handle};

const SIZE: u64 = 32 << 20;

/// The contents of a file opened by its handle.
fn text_of(handle: &Handle, place: &Place) -> std::io::Result<String> {
    let mut text = String::new();
    sys::open_handle(handle, &place.mount_point(), libc::O_RDONLY)?.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn handles_mean_the_same_file_after_a_new_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    for name in ["kept", "renamed", "deleted", "replaced"] {
        fs::write(mounted.path("a/b").join(name), name).unwrap();
    }
    fs::hard_link(mounted.path("a/b/kept"), mounted.path("second-name")).unwrap();
    let take = |name: &str| sys::handle(&mounted.path(name)).unwrap();
    let (root, directory, gone_directory) = (take("."), take("a/b"), {
        fs::create_dir(mounted.path("gone")).unwrap();
        take("gone")
    });
    let [kept, renamed, deleted, replaced] =
        ["kept", "renamed", "deleted", "replaced"].map(|name| take(&format!("a/b/{name}")));
    let inode = fs::metadata(mounted.path("a/b/kept")).unwrap().ino();

    // Within the mount: renamed files stay reachable, removed files do not.
    fs::rename(mounted.path("a/b/renamed"), mounted.path("moved")).unwrap();
    fs::remove_file(mounted.path("a/b/deleted")).unwrap();
    fs::write(mounted.path("new"), "new").unwrap();
    fs::rename(mounted.path("new"), mounted.path("a/b/replaced")).unwrap();
    fs::remove_dir(mounted.path("gone")).unwrap();
    assert_eq!(text_of(&renamed, &place).unwrap(), "renamed");
    // The file exists until the kernel reports its close, a moment later.
    wait_for("the file to be gone", || text_of(&deleted, &place).is_err());
    assert_eq!(errno(text_of(&deleted, &place)), libc::ESTALE);
    ioctl::transact(&mounted.root()).unwrap();
    mounted.unmount();

    // Across two more mounts, with new files in between that could be mistaken for the old ones.
    for round in 0..2 {
        let mounted = place.mount(&MountOptions::default());
        for index in 0..20 {
            fs::write(mounted.path(&format!("other-{round}-{index}")), "other").unwrap();
        }
        assert_eq!(text_of(&kept, &place).unwrap(), "kept");
        assert_eq!(text_of(&renamed, &place).unwrap(), "renamed");
        for stale in [&deleted, &replaced, &gone_directory] {
            // If the mount ended before the kernel reported a close, the background work removes
            // the file.
            let open = || sys::open_handle(stale, &place.mount_point(), libc::O_RDONLY);
            wait_for("the file to be gone", || open().is_err());
            assert_eq!(errno(open()), libc::ESTALE);
        }
        let opened = sys::open_handle(&directory, &place.mount_point(), libc::O_RDONLY).unwrap();
        assert_eq!(
            opened.metadata().unwrap().ino(),
            fs::metadata(mounted.path("a/b")).unwrap().ino()
        );
        // The kernel finds the parents of a directory that it only knows by handle.
        assert!(
            fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)))
                .unwrap()
                .ends_with("a/b")
        );
        drop(opened);
        let opened = sys::open_handle(&root, &place.mount_point(), libc::O_RDONLY).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), 1);
        // The present handle equals the handle of the first mount.
        assert_eq!(sys::handle(&mounted.path("second-name")).unwrap(), kept);
        assert_eq!(fs::metadata(mounted.path("second-name")).unwrap().ino(), inode);
        drop(opened);
        mounted.unmount();
    }
}

#[test]
fn a_file_can_be_written_by_its_handle() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    fs::write(mounted.path("file"), "old").unwrap();
    let handle = sys::handle(&mounted.path("file")).unwrap();
    ioctl::transact(&mounted.root()).unwrap();
    mounted.unmount();
    let mounted = place.mount(&MountOptions::default());
    let mut file: File = sys::open_handle(&handle, &place.mount_point(), libc::O_WRONLY).unwrap();
    file.write_all(b"new").unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.unmount();
    let mounted = place.mount(&MountOptions::default());
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "new");
    mounted.unmount();
}

#[test]
fn a_handle_outlives_the_daemon() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    let committed = daemon.path("committed");
    fs::write(&committed, "committed").unwrap();
    File::open(&committed).unwrap().sync_all().unwrap();
    let kept = sys::handle(&committed).unwrap();
    fs::write(daemon.path("lost"), "lost").unwrap();
    let lost = sys::handle(&daemon.path("lost")).unwrap();
    daemon.kill();

    // The inode number of a file that no transaction point contained can be used again; its handle
    // must stay invalid.
    let mounted = place.mount(&MountOptions::default());
    for index in 0..20 {
        fs::write(mounted.path(&format!("other-{index}")), "other").unwrap();
    }
    assert_eq!(text_of(&kept, &place).unwrap(), "committed");
    assert_eq!(errno(text_of(&lost, &place)), libc::ESTALE);
    mounted.unmount();
}
