//! The check on sound and on damaged volumes.

mod catalogue;
mod edit;
mod forge;
mod log;
mod repair;
mod resized;
mod sample;
mod snapshots;

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::fs::{Caller, NewNode};
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

fn sample(clean: bool) -> Arc<MemoryMedium> {
    let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
    let options = FormatOptions { block_size: 512, ..FormatOptions::default() };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let caller = Caller::default();
    for number in 0..40u8 {
        let name = [b'a' + number / 10, b'0' + number % 10];
        let node = if number % 10 == 0 { NewNode::Directory } else { NewNode::Regular };
        let made = volume.create(InodeNumber::ROOT, &name, node, 0o755, &caller).unwrap();
        if node == NewNode::Regular {
            volume
                .write(made.inode, 0, &alloc::vec![number; 100 * usize::from(number)], false)
                .unwrap();
        }
    }
    volume.checkpoint().unwrap();
    volume.unlink(InodeNumber::ROOT, b"a5").unwrap();
    volume.transact().unwrap();
    if clean {
        volume.close().unwrap();
    }
    medium
}

fn run(medium: &Arc<MemoryMedium>) -> crate::error::Result<CheckReport> {
    check(medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
}

#[test]
fn a_sound_volume_is_clean() {
    for clean in [true, false] {
        let report = run(&sample(clean)).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_eq!((report.inodes, report.directories), (40, 5));
        assert_eq!(report.replayed_records > 0, !clean);
        assert!(report.data_blocks > 100);
    }
}

#[test]
fn every_flipped_bit_is_seen_or_does_not_matter() {
    let medium = sample(true);
    let reference = medium.to_bytes();
    let used = 512 * 400;
    let mut found = 0;
    for offset in (0..used).step_by(97) {
        let mut bytes: Vec<u8> = reference.clone();
        bytes[offset] ^= 1 << (offset % 8);
        let damaged =
            Arc::new(MemoryMedium::from_bytes(&bytes, medium.geometry().atomic_unit).unwrap());
        match run(&damaged) {
            Ok(report) => found += usize::from(!report.is_clean()),
            Err(_) => found += 1,
        }
        assert_eq!(damaged.to_bytes(), bytes, "the check writes nothing");
    }
    assert!(found > 20, "found {found}");
}
