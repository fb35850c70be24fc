//! The control file: one holder of the volume, and an atomic change.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use steadfast::TransactionMask;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Mounted, Place, can_mount, errno, wait_for};

const SIZE: u64 = 32 << 20;

fn control(mounted: &Mounted<'_>) -> File {
    OpenOptions::new().read(true).open(mounted.path(ioctl::CONTROL_FILE)).unwrap()
}

fn active(root: &File) -> bool {
    ioctl::atomic_status(root).unwrap().flags & ioctl::atomic_flag::ACTIVE != 0
}

#[test]
fn commit_abort_and_lost_descriptors() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    let read = |name: &str| fs::read_to_string(mounted.path(name)).ok();
    fs::write(mounted.path("file"), "before").unwrap();

    // Aborted: the dirty pages in the kernel's cache are dropped too, and earlier changes stay.
    let holder = control(&mounted);
    ioctl::atomic_begin(&holder).unwrap();
    assert!(active(&root));
    let mut open = File::create(mounted.path("new")).unwrap();
    open.write_all(b"dirty").unwrap();
    open.sync_all().unwrap();
    fs::write(mounted.path("file"), "during").unwrap();
    ioctl::atomic_abort(&holder).unwrap();
    assert!(!active(&root));
    assert_eq!((read("file").as_deref(), read("new")), (Some("before"), None));
    assert_eq!(errno(open.sync_all().and_then(|()| open.write_all(b"more"))), libc::ESTALE);
    drop(open);

    // Committed while an open file has dirty pages. Synchronous writes are no exception: they
    // become durable with the commit.
    ioctl::atomic_begin(&holder).unwrap();
    let synchronous = OpenOptions::new()
        .write(true)
        .create(true)
        .custom_flags(libc::O_SYNC)
        .open(mounted.path("synchronous"));
    synchronous.unwrap().write_all(b"whole").unwrap();
    assert_ne!(mounted.volume().info().uncommitted, 0);
    let mut open = File::create(mounted.path("kept")).unwrap();
    open.write_all(b"dirty").unwrap();
    ioctl::atomic_commit(&holder).unwrap();
    assert_eq!(mounted.volume().info().uncommitted, 0);
    drop(open);
    ioctl::rollback(&root, true).unwrap();
    assert_eq!(read("kept").as_deref(), Some("dirty"));
    assert_eq!(read("synchronous").as_deref(), Some("whole"));
    drop(holder);

    // The holder ends without a commit. A duplicate of its descriptor keeps the lease until it is
    // also closed.
    let holder = control(&mounted);
    ioctl::atomic_begin(&holder).unwrap();
    let duplicate = holder.try_clone().unwrap();
    fs::write(mounted.path("lost"), "").unwrap();
    drop(holder);
    assert!(active(&root));
    drop(duplicate);
    wait_for("the end of the lease", || !active(&root));
    assert_eq!(read("lost"), None);
    assert_eq!(ioctl::mask_get(&root).unwrap().0, TransactionMask::DEFAULT);
    drop(root);
    mounted.unmount();
}

#[test]
fn others_are_refused_meanwhile() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, TransactionMask::DEFAULT);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    let (holder, other) = (control(&mounted), control(&mounted));
    assert_eq!(errno(ioctl::atomic_commit(&other)), libc::EINVAL);
    ioctl::atomic_begin(&holder).unwrap();
    for refused in [
        ioctl::atomic_begin(&other),
        ioctl::atomic_begin(&holder),
        ioctl::transact(&root),
        ioctl::checkpoint(&root),
        ioctl::rollback(&root, false),
        ioctl::rollback(&root, true),
        ioctl::mask_set(&root, TransactionMask::MANUAL, 5000),
    ] {
        assert_eq!(errno(refused), libc::EALREADY);
    }
    assert_eq!(errno(ioctl::atomic_commit(&other)), libc::EINVAL);
    assert_eq!(errno(ioctl::atomic_abort(&other)), libc::EINVAL);
    drop(other);
    // fsync returns immediately and sets no transaction point; neither do sync and the timer.
    let points = mounted.volume().info().transaction_points;
    let mut file = File::create(mounted.path("file")).unwrap();
    file.write_all(b"data").unwrap();
    file.sync_all().unwrap();
    assert!(Command::new("sync").arg("-f").arg(mounted.path("")).status().unwrap().success());
    assert_eq!(mounted.volume().info().transaction_points, points);
    drop(file);
    // The volume is full: ENOSPC is recorded, and the abort still works.
    let mut large = File::create(mounted.path("large")).unwrap();
    let filled = large.write_all(&vec![1; SIZE as usize]).and_then(|()| large.sync_all());
    assert_eq!(errno(filled), libc::ENOSPC);
    drop(large);
    // A holder that ignored errors cannot commit an incomplete change.
    assert_eq!(errno(ioctl::atomic_commit(&holder)), libc::ENOSPC);
    assert_ne!(ioctl::atomic_status(&root).unwrap().flags & ioctl::atomic_flag::NO_SPACE, 0);
    ioctl::atomic_abort(&holder).unwrap();
    assert!(!mounted.path("large").exists() && !mounted.path("file").exists());
    ioctl::transact(&root).unwrap();
    // The control file is not listed and cannot be removed, and unknown commands fail.
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
    assert!(fs::remove_file(mounted.path(ioctl::CONTROL_FILE)).is_err());
    assert_eq!(errno(ioctl::transact(&holder)), libc::ENOTTY);
    drop((root, holder));
    mounted.unmount();
}
