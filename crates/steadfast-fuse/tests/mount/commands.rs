//! Commands by ioctl on a live mount.

use std::fs::File;

use steadfast::TransactionMask;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno};

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
    // The write-back cache cannot honour a transaction point at every write.
    let refused = ioctl::mask_set(&root, TransactionMask::DEFAULT.union(TransactionMask::WRITE), 7000);
    assert_eq!(errno(refused), libc::EOPNOTSUPP);
    assert_eq!(errno(ioctl::mask_set(&root, TransactionMask(1 << 31), 7000)), libc::EINVAL);
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
