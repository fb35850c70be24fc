//! Reading data past the volume: it tells where the bytes of a file are, and another program, maybe
//! on another machine, reads them from the medium.
//!
//! Nothing keeps the blocks of a plan. They may be freed, discarded and written again before the
//! other program reads them, and a write may still be on its way to the medium. So that program
//! checks each granule, and asks the volume for the data where one does not match. Whatever matches
//! is what the file had when the plan was made.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::inode::{FLAG_INLINE, Inode};
use crate::fs::extent_map::Mapped;
use crate::fs::read::{STEP_BYTES, find_extents};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// The largest block, bytes.
const BLOCK_MAX: usize = 1 << 16;

/// Where the bytes of a part of a file are. What is in no extent reads as zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPlan {
    /// Bytes before those of the plan, from the start of its first block.
    pub skip: usize,
    /// Number of bytes of the file.
    pub length: usize,
    /// Bytes that one checksum covers.
    pub granule: u32,
    /// In the order of the file, without overlaps.
    pub extents: Vec<PlannedExtent>,
}

/// Adjacent granules on the medium. The last one may go on after the bytes of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedExtent {
    /// Where it begins, bytes from the start of the plan's first block.
    pub at: usize,
    /// Where it is on the medium, in bytes.
    pub position: u64,
    /// CRC-32C of each granule.
    pub checksums: Vec<u32>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Tells where `length` bytes of a regular file from `offset` are, all of one state of the
    /// file. `notes`: it renews the access time as [`read`](Self::read) does. `None`: the bytes
    /// must be read from the volume. These are the data of a small file, more than 1 MiB or 256
    /// extents, and bytes past the end.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for `CorruptData`.
    pub fn plan_read(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: usize,
        notes: bool,
    ) -> Result<Option<ReadPlan>> {
        let parameters = self.parameters();
        let (attributes, extents) = {
            let reader = self.engine.reader()?;
            let attributes = Inode::load_regular(&reader, inode)?;
            let end = offset.checked_add(length as u64);
            if end.is_none_or(|end| end > attributes.size)
                || length > STEP_BYTES
                || attributes.has(FLAG_INLINE)
            {
                return Ok(None);
            }
            let step = find_extents(&reader, &parameters, inode, offset, length)?;
            if step.length < length {
                return Ok(None);
            }
            (attributes, step.extents)
        };
        let skip = offset % parameters.block();
        let planned = |mapped: &Mapped| {
            Ok(PlannedExtent {
                at: (mapped.index * parameters.block() - (offset - skip)) as usize,
                position: mapped.extent.address.0 * parameters.block(),
                checksums: memory::copy(&mapped.extent.checksums)?,
            })
        };
        let extents = extents.iter().map(planned).collect::<Result<_>>()?;
        if notes && length > 0 {
            self.note_access(inode, &attributes);
        }
        let (skip, granule) = (skip as usize, parameters.granule);
        Ok(Some(ReadPlan { skip, length, granule, extents }))
    }
}

impl ReadPlan {
    /// Reads the bytes from the medium of the volume, which another program may have open for
    /// writing. `None`: some do not match their checksums.
    ///
    /// # Errors
    /// The medium's error; `InvalidArgument` if this is no plan of a volume.
    pub fn read(&self, medium: &impl Medium, platform: &impl Platform) -> Result<Option<Vec<u8>>> {
        let granule = self.granule as usize;
        let end = self.end().ok_or(Error::InvalidArgument("no plan of a volume"))?;
        let mut bytes = memory::zeroed(end)?;
        for extent in &self.extents {
            let part = &mut bytes[extent.at..][..extent.checksums.len() * granule];
            medium.read_afresh(extent.position, part)?;
            let mut granules = part.chunks(granule).zip(&extent.checksums);
            if !granules.all(|(bytes, expected)| platform.crc32c(0, bytes) == *expected)
                && !planted(Sabotage::IgnoreDataChecksum)
            {
                return Ok(None);
            }
        }
        bytes.truncate(self.skip + self.length);
        bytes.drain(..self.skip);
        Ok(Some(bytes))
    }

    /// The end of the last granule, or of the bytes. `None` if the extents are not in order, or are
    /// longer than those of a plan.
    fn end(&self) -> Option<usize> {
        let granule = usize::try_from(self.granule).ok().filter(|granule| *granule > 0)?;
        let bytes = self.skip.checked_add(self.length)?;
        let mut end = 0;
        for extent in &self.extents {
            if extent.at < end || extent.at >= bytes {
                return None;
            }
            end = extent.at.checked_add(extent.checksums.len().checked_mul(granule)?)?;
        }
        Some(end.max(bytes)).filter(|end| *end <= STEP_BYTES + 2 * BLOCK_MAX)
    }
}
