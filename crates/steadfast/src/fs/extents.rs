//! Where the data of a file lies, for people and tools: the equivalent of FIEMAP.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::inode::Inode;
use crate::fs::extent_map;
use crate::memory;
use crate::platform::Platform;
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Extents that are looked up at a time.
const STEP_EXTENTS: usize = 64;

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
    /// A snapshot or another extent has some of its blocks, too.
    pub shared: bool,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// At most `limit` extents of a regular file from the one on that holds block `from` of the
    /// file, in order. Contiguous extents are reported separately, as in the tree.
    ///
    /// # Errors
    /// `IsADirectory`, `NotARegularFile`, `Stale`; `CorruptMetadata`, and the medium's error.
    pub fn file_extents(
        &self,
        inode: InodeNumber,
        from: u64,
        limit: usize,
    ) -> Result<Vec<FileExtent>> {
        let (mut found, mut births) = (Vec::new(), Vec::new());
        {
            let reader = self.engine.reader()?;
            Inode::load_regular(&reader, inode)?;
            let parameters = self.parameters();
            let mut next = extent_map::overlap(&reader, &parameters, inode, from, u64::MAX)?;
            while let Some(mapped) = next.filter(|_| found.len() < limit) {
                let run = mapped.extent.run();
                let unwritten = mapped.extent.unwritten;
                let extent = FileExtent {
                    index: mapped.index,
                    address: run.start,
                    blocks: run.count,
                    unwritten,
                    shared: false,
                };
                memory::push(&mut found, extent)?;
                memory::push(&mut births, (run, mapped.extent.birth))?;
                next = extent_map::starting(&reader, &parameters, inode, mapped.end(), u64::MAX)?;
            }
        }
        // Without the reader, because this takes the writer's lock.
        for (extent, (run, birth)) in found.iter_mut().zip(births) {
            extent.shared = !self.engine.is_unshared(run, birth)?;
        }
        Ok(found)
    }

    /// Whether a snapshot or another extent has some of the blocks of a regular file. Overwriting
    /// such blocks takes new ones. Unwritten blocks do not count: they are written in place.
    ///
    /// # Errors
    /// Those of [`file_extents`](Self::file_extents).
    pub fn shares_blocks(&self, inode: InodeNumber) -> Result<bool> {
        if !self.engine.shares_any() {
            return Ok(false);
        }
        let mut from = 0;
        loop {
            let extents = self.file_extents(inode, from, STEP_EXTENTS)?;
            if extents.iter().any(|extent| extent.shared && !extent.unwritten) {
                return Ok(true);
            }
            let Some(last) = extents.last() else { return Ok(false) };
            from = last.index.saturating_add(last.blocks);
        }
    }
}
