//! Prepares a file for a change of its data or size. Then it has no inline data where extents are
//! to be, no extents past its end, and no stale bytes in its last block. Nothing here changes
//! what a reader sees. Callers hold the inode's data lock.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::{KeyspaceRead, SpaceClass};
use crate::error::Result;
use crate::format::inode::{FLAG_INLINE, FLAG_TAIL_STALE, FLAG_TRUNCATING, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map;
use crate::fs::orphan::truncate_step;
use crate::fs::parameters::Parameters;
use crate::fs::publish::{self, Parts, WritePlan};
use crate::memory;
use crate::platform::Platform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// What a file needs before it can grow.
enum GrowthStep {
    /// The end of a truncation.
    Truncate,
    /// Zeros past its end, which is at this byte.
    ZeroTail(u64),
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Moves inline data to blocks, so that the file can have extents. An unfinished truncation to
    /// size 0 makes the file an inline one when it ends, so it is finished first.
    pub(crate) fn spill(&self, inode: InodeNumber) -> Result<()> {
        let parameters = self.parameters();
        let attributes = Inode::load_regular(&self.engine.reader()?, inode)?;
        if attributes.has(FLAG_TRUNCATING) && attributes.size == 0 {
            self.finish_truncation(inode)?;
        }
        let value = {
            let reader = self.engine.reader()?;
            if !Inode::load_regular(&reader, inode)?.has(FLAG_INLINE) {
                return Ok(());
            }
            reader.get(&Key::new(inode, Kind::Inline, 0))?
        };
        match value {
            Some(value) => self.write_extents(&parameters, inode, 0, &value, false).map(drop),
            None => {
                let plan = WritePlan {
                    from: 0,
                    end: 0,
                    parts: Parts::default(),
                    size: 0,
                    may_join: true,
                    times: false,
                };
                self.update(SpaceClass::Normal, |tx| {
                    publish::publish(tx, &parameters, inode, &plan)
                })
            }
        }
    }

    /// Prepares a file for an end of `size` bytes. It finishes a pending truncation and zeroes a
    /// stale tail, unless the blocks to be written include the tail. Returns whether the file is
    /// an inline one.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    pub(crate) fn prepare_write(
        &self,
        inode: InodeNumber,
        size: u64,
        blocks: Option<core::ops::Range<u64>>,
    ) -> Result<bool> {
        let parameters = self.parameters();
        loop {
            let (is_inline, step) = self.step_of_growth(&parameters, inode, size, &blocks)?;
            match step {
                None => {}
                Some(GrowthStep::Truncate) => {
                    self.finish_truncation(inode)?;
                    continue;
                }
                Some(GrowthStep::ZeroTail(size)) => self.zero_tail(&parameters, inode, size)?,
            }
            return Ok(is_inline);
        }
    }

    /// What must happen before the growth, and whether the file is an inline one. The attributes
    /// do not stay on the stack of that step.
    #[inline(never)]
    fn step_of_growth(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        size: u64,
        blocks: &Option<core::ops::Range<u64>>,
    ) -> Result<(bool, Option<GrowthStep>)> {
        let attributes = Inode::load_regular(&self.engine.reader()?, inode)?;
        let written = |tail| blocks.as_ref().is_some_and(|blocks| blocks.contains(&tail));
        let step = if size <= attributes.size {
            None
        } else if attributes.has(FLAG_TRUNCATING) {
            Some(GrowthStep::Truncate)
        } else if attributes.has(FLAG_TAIL_STALE) && !written(parameters.block_of(attributes.size))
        {
            Some(GrowthStep::ZeroTail(attributes.size))
        } else {
            None
        };
        Ok((attributes.has(FLAG_INLINE), step))
    }

    /// Removes all extents that a truncation has left past the end of the file.
    #[inline(never)]
    pub(crate) fn finish_truncation(&self, inode: InodeNumber) -> Result<()> {
        let parameters = self.parameters();
        loop {
            let more = self.update(SpaceClass::Freeing, |tx| {
                let mut attributes = Inode::load_regular(tx, inode)?;
                if attributes.has(FLAG_TRUNCATING) {
                    truncate_step(tx, &parameters, inode, &mut attributes)?;
                }
                Ok(attributes.has(FLAG_TRUNCATING))
            })?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Zeroes the bytes of the last block past the end of the file.
    fn zero_tail(&self, parameters: &Parameters, inode: InodeNumber, size: u64) -> Result<()> {
        match self.kept_in_tail(parameters, inode, size)? {
            Some(kept) => {
                let start = parameters.block_of(size) * parameters.block();
                self.write_extents(parameters, inode, start, &kept, false).map(drop)
            }
            None => self.update(SpaceClass::Normal, |tx| publish::clear_tail_stale(tx, inode)),
        }
    }

    /// The bytes of the last block before the end of the file, if the block is written. Its stack
    /// is free again before the tail is written.
    #[inline(never)]
    fn kept_in_tail(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        size: u64,
    ) -> Result<Option<Vec<u8>>> {
        let tail = parameters.block_of(size);
        let mapped =
            extent_map::overlap(&self.engine.reader()?, parameters, inode, tail, tail + 1)?;
        if mapped.is_none_or(|mapped| mapped.extent.unwritten) {
            return Ok(None);
        }
        let start = tail * parameters.block();
        let mut kept = memory::zeroed((size - start) as usize)?;
        self.read_data(inode, start, &mut kept)?;
        Ok(Some(kept))
    }
}
