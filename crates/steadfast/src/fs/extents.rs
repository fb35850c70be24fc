//! Where the data of a file lies, for people and tools: the equivalent of FIEMAP.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::KeyspaceRead;
use crate::error::Result;
use crate::format::extent::Extent;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::memory;
use crate::platform::Platform;
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// A run of blocks of a file. A range without an extent is a hole, or the data of a small file that
/// is stored with its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// Index of its first block in the file.
    pub index: u64,
    /// Where this block is on the volume.
    pub address: BlockAddress,
    /// Number of blocks.
    pub blocks: u64,
    /// Allocated but never written: it reads as zeros.
    pub unwritten: bool,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// At most `limit` extents of a regular file from block `from` of the file on, in order.
    /// Contiguous extents are reported separately, as in the tree.
    ///
    /// # Errors
    /// `IsADirectory`, `NotARegularFile`, `Stale`; `CorruptMetadata`, and the medium's error.
    pub fn file_extents(
        &self,
        inode: InodeNumber,
        from: u64,
        limit: usize,
    ) -> Result<Vec<FileExtent>> {
        let reader = self.engine.reader()?;
        Inode::load_regular(&reader, inode)?;
        let granules = self.parameters().granules_per_block();
        let (_, last) = Key::kind_range(inode, Kind::Extent);
        let (mut next, mut found) = (Some(Key::extent(inode, from)), Vec::new());
        while let Some(key) = next.filter(|_| found.len() < limit) {
            let Some((key, value)) = reader.next(&key, &last)? else { break };
            let extent = Extent::decode(&value, granules)?;
            let (address, blocks) = (extent.address, u64::from(extent.length));
            let unwritten = extent.unwritten;
            memory::push(
                &mut found,
                FileExtent { index: key.suffix(), address, blocks, unwritten },
            )?;
            next = key.successor();
        }
        Ok(found)
    }
}
