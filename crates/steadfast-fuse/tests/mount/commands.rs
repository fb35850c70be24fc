//! Commands by ioctl to a running mount.

use std::fs::File;

use steadfast::TransactionMask;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno};
use crate::sys;

const SIZE: u64 = 64 << 20;

#[test]
fn mask_and_info() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    assert_eq!(ioctl::mask_get(&root).unwrap(), (QUIET, 200));
    ioctl::mask_set(&root, TransactionMask::DEFAULT, 7000).unwrap();
    assert_eq!(ioctl::mask_get(&root).unwrap(), (TransactionMask::DEFAULT, 7000));
    // With the write-back cache the mount cannot set a transaction point at every write.
    let refused =
        ioctl::mask_set(&root, TransactionMask::DEFAULT.union(TransactionMask::WRITE), 7000);
    assert_eq!(errno(refused), libc::EOPNOTSUPP);
    assert_eq!(errno(ioctl::mask_set(&root, TransactionMask(1 << 31), 7000)), libc::EINVAL);
    assert_eq!(errno(ioctl::mask_set(&root, QUIET, 0)), libc::EINVAL);
    assert_eq!(ioctl::mask_get(&root).unwrap(), (TransactionMask::DEFAULT, 7000), "unchanged");
    let info = ioctl::info(&root).unwrap();
    assert_eq!(info, mounted.volume().info());
    assert_eq!((info.size, info.label.as_str(), info.timer_ms), (SIZE, "test", 7000));
    ioctl::transact(&root).unwrap();
    ioctl::checkpoint(&root).unwrap();
    assert_eq!(errno(ioctl::transact(&File::open("/tmp").unwrap())), libc::ENOTTY);
    drop(root);
    mounted.unmount();
    assert!(!place.is_mounted());
}

#[test]
fn a_stranger_publishes_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, TransactionMask(0));
    let mounted = place.mount(&MountOptions { allow_other: true, ..MountOptions::default() });
    std::fs::write(mounted.path("half"), "of an update").unwrap();
    let refused = || {
        let root = File::open(place.mount_point());
        let answer = root.and_then(|root| ioctl::transact(&root));
        answer.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    };
    assert!(sys::as_user(1000, 1000, refused), "transact by another user is refused");
    ioctl::rollback(&mounted.root(), true).unwrap();
    assert!(!mounted.path("half").exists());
    mounted.unmount();
}
