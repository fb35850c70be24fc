//! The effects of a close. Without `close` in the mask it causes no round trip; with it, a
//! transaction point. In both cases it reports errors of the pages that it writes back.

use std::fs::{self, File};
use std::io::Write;

use steadfast::fs::{Caller, NewNode};
use steadfast::{InodeNumber, TransactionMask};
use steadfast_fuse::metrics::Kind;
use steadfast_fuse::{MountOptions, ioctl, watch};

use crate::support::{Mounted, Place, QUIET, can_mount, errno};
use crate::sys;

const SIZE: u64 = 16 << 20;
const WITH_CLOSE: TransactionMask = QUIET.union(TransactionMask::CLOSE);

fn closes(mounted: &Mounted<'_>) -> u64 {
    let readings = watch::readings(&mounted.root()).unwrap();
    readings.operations[Kind::Close as usize].latency.count()
}

fn write_some(mounted: &Mounted<'_>, count: usize) {
    for number in 0..count {
        let mut file = File::create(mounted.path(&format!("f{number}"))).unwrap();
        file.write_all(b"some").unwrap();
        sys::close(file).unwrap();
    }
}

#[test]
fn without_close_in_the_mask_only_the_first_close_reaches_the_daemon() {
    if !can_mount() {
        return;
    }
    for write_back in [true, false] {
        let place = Place::new(SIZE, QUIET);
        let mounted = place.mount(&MountOptions { write_back, ..MountOptions::default() });
        let root = mounted.root();
        // The event can still be added while no file has been closed.
        ioctl::mask_set(&root, WITH_CLOSE, 200).unwrap();
        ioctl::mask_set(&root, QUIET, 200).unwrap();
        write_some(&mounted, 5);
        assert_eq!(closes(&mounted), 1);
        assert_eq!(errno(ioctl::mask_set(&root, WITH_CLOSE, 300)), libc::EBUSY);
        assert_eq!(ioctl::mask_get(&root).unwrap(), (QUIET, 200), "nothing is changed");
        ioctl::mask_set(&root, QUIET.union(TransactionMask::RENAME), 300).unwrap();
        // The closes still wrote back the data, and a rollback does not change the answer.
        for number in 0..5 {
            assert_eq!(fs::read(mounted.path(&format!("f{number}"))).unwrap(), b"some");
        }
        ioctl::transact(&root).unwrap();
        ioctl::rollback(&root, false).unwrap();
        assert_eq!(errno(ioctl::mask_set(&root, WITH_CLOSE, 300)), libc::EBUSY);
        assert_eq!(fs::read(mounted.path("f4")).unwrap(), b"some");
        drop(root);
        mounted.unmount();
    }
}

#[test]
fn a_mask_that_starts_with_close_may_lose_and_regain_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, WITH_CLOSE);
    let mounted = place.mount(&MountOptions::default());
    let root = mounted.root();
    let points = || mounted.volume().info().transaction_points;
    let before = points();
    write_some(&mounted, 3);
    assert_eq!(points() - before, 3, "each close of a file that was written is one");
    ioctl::mask_set(&root, QUIET, 200).unwrap();
    let before = points();
    write_some(&mounted, 3);
    assert_eq!(points(), before);
    ioctl::mask_set(&root, WITH_CLOSE, 200).unwrap();
    write_some(&mounted, 3);
    assert_eq!(points() - before, 3);
    assert!(closes(&mounted) >= 9);
    drop(root);
    mounted.unmount();
}

#[test]
fn errors_of_written_back_pages_come_at_the_close() {
    if !can_mount() {
        return;
    }
    let place = Place::new(SIZE, QUIET);
    let mounted = place.mount(&MountOptions::default());
    write_some(&mounted, 2);
    assert_eq!(closes(&mounted), 1);
    // If the kernel has written the pages back before the volume was full, they are stored and the
    // close reports no error.
    let told = (0..20).any(|attempt| !is_stored_at_close(&mounted, attempt));
    assert!(told, "the kernel was always faster");
    assert_eq!(closes(&mounted), 1);
    mounted.unmount();
}

/// Writes a file, fills the volume without the mount, which has admitted the write, and closes the
/// file. Either the close reports that there is no space, or the file is stored.
fn is_stored_at_close(mounted: &Mounted<'_>, attempt: u32) -> bool {
    const LENGTH: u64 = 1 << 20;
    let name = format!("late {attempt}");
    let mut file = File::create(mounted.path(&name)).unwrap();
    file.write_all(&vec![7; LENGTH as usize]).unwrap();
    let volume = mounted.volume();
    let caller = Caller::default();
    let filler = volume
        .create(InodeNumber::ROOT, b"filler", NewNode::Regular, 0o600, &caller)
        .unwrap()
        .inode;
    for step in [1 << 20, 4096] {
        while volume.append(filler, &vec![7; step], false).is_ok() {}
    }
    match sys::close(file) {
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            false
        }
        Ok(()) => {
            let stored = volume.lookup(InodeNumber::ROOT, name.as_bytes()).unwrap();
            assert_eq!(stored.allocated, LENGTH);
            fs::remove_file(mounted.path(&name)).unwrap();
            volume.unlink(InodeNumber::ROOT, b"filler").unwrap();
            true
        }
    }
}
