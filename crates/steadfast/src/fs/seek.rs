//! Finding data and holes.

use steadfast_media::Medium;

use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_INLINE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map;
use crate::fs::parameters::Parameters;
use crate::fs::stat::SeekTo;
use crate::platform::Platform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// The first byte of data at or after `offset`, or the first byte of a hole. Unwritten extents and
/// the end of the file are holes.
fn find(
    view: &impl KeyspaceRead,
    parameters: &Parameters,
    inode: InodeNumber,
    size: u64,
    offset: u64,
    to: SeekTo,
) -> Result<u64> {
    let block = parameters.block();
    let end = parameters.blocks_for(size);
    let mut at = parameters.block_of(offset);
    let mut found = extent_map::overlap(view, parameters, inode, at, end)?;
    loop {
        let Some(mapped) = found else {
            return match to {
                SeekTo::Data => Err(Error::NoSuchOffset),
                SeekTo::Hole => Ok(offset.max(at * block).min(size)),
            };
        };
        let is_gap = mapped.index > at;
        match to {
            SeekTo::Data if !mapped.extent.unwritten => return Ok(offset.max(mapped.index * block)),
            SeekTo::Hole if is_gap || mapped.extent.unwritten => return Ok(offset.max(at * block)),
            _ => at = mapped.end(),
        }
        found = extent_map::starting(view, parameters, inode, at, end)?;
    }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// SEEK_DATA and SEEK_HOLE: the first offset at or after `offset` that is data, or in a hole.
    /// The end of the file and allocated space without data count as holes.
    ///
    /// # Errors
    /// `NoSuchOffset`: `offset` is at or after the end, or no data follows. `IsADirectory`,
    /// `NotARegularFile`, `Stale`.
    pub fn seek(&self, inode: InodeNumber, offset: u64, to: SeekTo) -> Result<u64> {
        let reader = self.engine.reader()?;
        let attributes = Inode::load_regular(&reader, inode)?;
        if offset >= attributes.size {
            return Err(Error::NoSuchOffset);
        }
        if attributes.has(FLAG_INLINE) {
            let found = reader.get(&Key::new(inode, Kind::Inline, 0))?;
            let data = found.map_or(0, |found| found.len() as u64).min(attributes.size);
            return match to {
                SeekTo::Data if offset < data => Ok(offset),
                SeekTo::Data => Err(Error::NoSuchOffset),
                SeekTo::Hole => Ok(offset.max(data)),
            };
        }
        find(&reader, &self.parameters(), inode, attributes.size, offset, to)
    }
}
