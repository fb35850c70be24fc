//! Copies that share blocks: copy_file_range(2), and the kernel's handling of FICLONE.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

use steadfast_fuse::MountOptions;

use crate::data::both_modes;
use crate::support::{Mounted, Place, QUIET, can_mount, errno, pattern};
use crate::sys;

const MIB: usize = 1 << 20;

/// Blocks in use after all freed blocks have become free.
fn used(mounted: &Mounted<'_>) -> u64 {
    steadfast_fuse::ioctl::checkpoint(&mounted.root()).unwrap();
    steadfast_fuse::ioctl::checkpoint(&mounted.root()).unwrap();
    let statistics = mounted.volume().statistics().unwrap();
    statistics.blocks - statistics.blocks_free
}

fn open(mounted: &Mounted<'_>, name: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(mounted.path(name))
        .unwrap()
}

/// Largest number of blocks for the metadata of a few files.
const METADATA: u64 = 40;

#[test]
fn cp_takes_no_space() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let data = pattern(1, 16 * MIB + 1000);
        fs::write(mounted.path("source"), &data).unwrap();
        let before = used(&mounted);
        for (arguments, name) in
            [(&["--reflink=auto"][..], "auto"), (&[][..], "plain"), (&["-a"][..], "all")]
        {
            let (from, to) = (mounted.path("source"), mounted.path(name));
            let status = Command::new("cp").args(arguments).arg(from).arg(to).status().unwrap();
            assert!(status.success(), "{name}");
            assert!(fs::read(mounted.path(name)).unwrap() == data, "{name}");
        }
        let after = used(&mounted);
        assert!(after < before + METADATA, "{before} blocks, then {after}");
        // Each file changes independently.
        open(&mounted, "plain").write_all_at(b"changed", 5 * MIB as u64).unwrap();
        fs::remove_file(mounted.path("source")).unwrap();
        assert!(fs::read(mounted.path("auto")).unwrap() == data);
        assert!(fs::read(mounted.path("all")).unwrap() == data);
        assert_eq!(&fs::read(mounted.path("plain")).unwrap()[5 * MIB..5 * MIB + 7], b"changed");
        mounted.unmount();
    });
}

/// The copy includes data of both files that is only in the kernel's cache, and no old page
/// remains.
#[test]
fn dirty_pages_and_pages_in_use() {
    both_modes(|place, options| {
        let mounted = place.mount(options);
        let (from, to) = (open(&mounted, "from"), open(&mounted, "to"));
        to.write_all_at(&pattern(1, 3 * MIB), 0).unwrap();
        let old = fs::read(mounted.path("to")).unwrap();
        let data = pattern(2, 3 * MIB);
        from.write_all_at(&data, 0).unwrap();
        to.write_all_at(b"dirty in front", 100).unwrap();
        to.write_all_at(b"dirty in between", MIB as u64 + 100).unwrap();
        assert_eq!(sys::copy_file_range(&from, 4096, &to, MIB as i64, MIB).unwrap(), MIB);
        let mut expected = old;
        expected[100..114].copy_from_slice(b"dirty in front");
        expected[MIB..2 * MIB].copy_from_slice(&data[4096..4096 + MIB]);
        assert!(fs::read(mounted.path("to")).unwrap() == expected);
        from.write_all_at(b"later", 5000).unwrap();
        assert!(fs::read(mounted.path("to")).unwrap() == expected);
        // The file is longer than before, and the kernel knows that immediately.
        assert_eq!(sys::copy_file_range(&from, 0, &to, 8 * MIB as i64, 2 * MIB).unwrap(), 2 * MIB);
        assert_eq!(to.metadata().unwrap().len(), 10 * MIB as u64);
        drop((from, to));
        mounted.unmount();
    });
}

/// The kernel does not pass FICLONE on to FUSE, so programs that only know FICLONE get an error and
/// copy. If this test fails, a kernel passes it on, and the mount should implement it.
#[test]
fn the_kernel_answers_ficlone_itself() {
    if !can_mount() {
        return;
    }
    let place = Place::new(64 << 20, QUIET);
    let mounted = place.mount(&MountOptions::default());
    let (from, to) = (open(&mounted, "from"), open(&mounted, "to"));
    from.write_all_at(&[1; 8192], 0).unwrap();
    assert_eq!(errno(sys::ficlone(&from, &to)), libc::EOPNOTSUPP);
    drop((from, to));
    mounted.unmount();
}
