//! Commands by ioctl on a live mount.

use std::fs::File;

use steadfast::TransactionMask;
use steadfast_fuse::{MountOptions, ioctl};

use crate::support::{Place, QUIET, can_mount, errno, wait_for};
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

#[test]
fn the_daemon_keeps_no_capability_that_it_does_not_need() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let daemon = place.daemon();
    // CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_NET_BIND_SERVICE, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYS_RESOURCE.
    let needed = 1 << 1 | 1 << 2 | 1 << 10 | 1 << 14 | 1 << 21 | 1 << 24;
    // The thread that the test framework waits in was there before.
    let mut serving: Vec<String> = Vec::new();
    wait_for("the threads of the mount", || {
        serving = daemon.threads();
        serving.retain(|status| status.starts_with("Name:\tsteadfast"));
        serving.len() > 2
    });
    for status in serving {
        for name in ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:", "CapAmb:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            assert_eq!(u64::from_str_radix(line.trim(), 16).unwrap() & !needed, 0, "{name} {status}");
        }
    }
    // Pages of files of others are still written back, and the mount goes away.
    let path = daemon.path("file");
    std::fs::write(&path, "data").unwrap();
    std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b" of others").unwrap();
    ioctl::transact(&daemon.root()).unwrap();
    daemon.kill();
    drop(file);
    let daemon = place.daemon();
    assert_eq!(std::fs::read_to_string(daemon.path("file")).unwrap(), "data of others");
    daemon.unmount();
}
