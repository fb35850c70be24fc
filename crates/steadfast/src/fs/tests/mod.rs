//! Tests of the semantics over a real volume in memory, in several geometries.

mod data;
mod flags;
pub(crate) mod keyspace;
mod names;
mod namespace;
mod paths;
mod plans;
mod special;
mod threads;

use alloc::vec::Vec;

use steadfast_media::MemoryMedium;

use crate::fs::{Attributes, Caller, NewNode};
use crate::mask::TransactionMask;
use crate::options::{FormatOptions, OpenOptions};
use crate::testing::TestPlatform;
use crate::tools::check::{CheckOptions, check};
use crate::types::InodeNumber;
use crate::volume::Volume;

pub(super) type TestVolume = Volume<MemoryMedium, TestPlatform>;

pub(super) const ROOT: InodeNumber = InodeNumber::ROOT;

/// Formats and opens a volume of `size` bytes.
pub(super) fn volume(size: u64, block_size: u32, node_size: u32) -> TestVolume {
    let medium = MemoryMedium::new(size, 128).expect("geometry");
    let options = FormatOptions {
        block_size,
        node_size: Some(node_size),
        mask: TransactionMask::DEFAULT,
        ..FormatOptions::default()
    };
    let platform = TestPlatform::new();
    Volume::format(&medium, &options, &platform).expect("format");
    Volume::open(medium, OpenOptions::default(), platform).expect("open")
}

/// A volume with typical parameters.
pub(super) fn plain() -> TestVolume {
    volume(64 << 20, 4096, 4096)
}

impl TestVolume {
    /// Creates an inode in the root directory.
    pub(super) fn make(&self, name: &str, node: NewNode<'_>) -> Attributes {
        self.make_in(ROOT, name, node)
    }

    /// Creates an inode as root with usual permissions.
    pub(super) fn make_in(
        &self,
        directory: InodeNumber,
        name: &str,
        node: NewNode<'_>,
    ) -> Attributes {
        let permissions = if node == NewNode::Directory { 0o755 } else { 0o644 };
        self.create(directory, name.as_bytes(), node, permissions, &Caller::default()).expect(name)
    }

    /// Reads all bytes of a file.
    pub(super) fn contents(&self, inode: InodeNumber) -> Vec<u8> {
        let size = self.attributes(inode).expect("attributes").size as usize;
        let mut bytes = alloc::vec![0xaa; size + 10];
        assert_eq!(self.read(inode, 0, &mut bytes).expect("read"), size);
        bytes.truncate(size);
        bytes
    }

    /// Runs background work until there is none left.
    pub(super) fn settle_orphans(&self) {
        while self.orphan_step().expect("reclaim") {}
    }

    /// Checks that everything on the medium is consistent.
    pub(super) fn assert_clean(&self) {
        self.transact().expect("transact");
        let options = CheckOptions::default();
        let report = check(self.medium(), self.platform(), &options, &mut |_| ()).expect("check");
        assert!(report.is_clean(), "{:?}", report.findings);
    }

    /// Free blocks after all freed blocks are reusable.
    pub(super) fn free_blocks(&self) -> u64 {
        self.settle_orphans();
        self.checkpoint().expect("checkpoint");
        self.checkpoint().expect("checkpoint");
        self.statistics().expect("statistics").blocks_free
    }
}
