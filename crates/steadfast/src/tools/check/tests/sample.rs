//! The volume that is damaged in the catalogue.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::MemoryMedium;

use crate::fs::{Caller, NewNode, SetXattrMode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::tests::forge::Forge;
use crate::tools::check::{CheckOptions, CheckReport, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

pub(super) const ROOT: InodeNumber = InodeNumber::ROOT;

/// Inode numbers of the sample, in the order of their creation.
pub(super) const SUB: InodeNumber = InodeNumber(16);
pub(super) const BIG: InodeNumber = InodeNumber(17);
pub(super) const SMALL: InodeNumber = InodeNumber(18);
pub(super) const LINK: InodeNumber = InodeNumber(19);
pub(super) const OPEN: InodeNumber = InodeNumber(20);
pub(super) const DEEP: InodeNumber = InodeNumber(21);
pub(super) const OTHER: InodeNumber = InodeNumber(22);

/// `/sub/deep/`, `/sub/big` of several extents with a large attribute, `/small` inline, `/link`,
/// `/other`. One file was unlinked and was open at the power cut. The log has `records` transaction
/// points, each too long for a group.
pub(super) fn sample(copies: u8, records: usize) -> Vec<u8> {
    sample_with_points(copies, records, |volume, index| {
        volume.write(SMALL, 0, &[index as u8; 9], false).unwrap();
        let name = format!("user.{index}");
        // Long enough that no two records share a block.
        volume
            .set_xattr(SMALL, name.as_bytes(), &[index as u8 + 1; 200], SetXattrMode::Any)
            .unwrap();
    })
}

/// A sample with `points` transaction points in the log, each after a call of `change`.
pub(super) fn sample_with_points(
    copies: u8,
    points: usize,
    change: impl Fn(&Volume<Arc<MemoryMedium>, TestPlatform>, usize),
) -> Vec<u8> {
    let medium = Arc::new(MemoryMedium::new(2 << 20, 512).unwrap());
    let options = FormatOptions {
        block_size: 512,
        metadata_copies: Some(copies),
        log_size: Some(64 << 10),
        uuid: *b"damage catalogue",
        ..FormatOptions::default()
    };
    Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
    let volume = Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap();
    let caller = Caller::default();
    let make = |directory, name: &[u8], node| {
        volume.create(directory, name, node, 0o755, &caller).unwrap().inode
    };
    assert_eq!(make(ROOT, b"sub", NewNode::Directory), SUB);
    assert_eq!(make(SUB, b"big", NewNode::Regular), BIG);
    assert_eq!(make(ROOT, b"small", NewNode::Regular), SMALL);
    assert_eq!(make(ROOT, b"link", NewNode::Symlink(b"sub/big")), LINK);
    assert_eq!(make(ROOT, b"open", NewNode::Regular), OPEN);
    assert_eq!(make(SUB, b"deep", NewNode::Directory), DEEP);
    assert_eq!(make(ROOT, b"other", NewNode::Regular), OTHER);
    for index in 0..40u64 {
        volume.write(BIG, index * 1024, &[index as u8 + 1; 512], false).unwrap();
    }
    volume.write(OTHER, 0, &[7; 4000], false).unwrap();
    volume.write(SMALL, 0, b"few bytes", false).unwrap();
    volume.set_xattr(BIG, b"user.large", &[8; 900], SetXattrMode::Any).unwrap();
    volume.acquire(OPEN).unwrap();
    volume.unlink(ROOT, b"open").unwrap();
    volume.checkpoint().unwrap();
    volume.set_mask(TransactionMask::DEFAULT).unwrap();
    volume.checkpoint().unwrap();
    for index in 0..points {
        change(&volume, index);
        volume.transact().unwrap();
    }
    medium.to_bytes()
}

pub(super) fn run(forge: &Forge) -> Result<CheckReport, crate::error::Error> {
    check(forge.medium.clone(), TestPlatform::new(), &CheckOptions::default(), &mut |_| {})
}
