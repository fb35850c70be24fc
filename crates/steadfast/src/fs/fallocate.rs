//! fallocate: allocate space, punch holes, zero ranges.
//!
//! Whole blocks are handled in the map, in bounded steps. The partial blocks at both ends of a
//! punched or zeroed range are zeroed first. So an error for lack of space comes before anything
//! else has changed.

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::format::extent::{Checksums, EXTENT_UNWRITTEN_BLOCKS_MAX};
use crate::format::inode::{FILE_SIZE_MAX, FLAG_INLINE, Inode};
use crate::fs::extent_map;
use crate::fs::parameters::Parameters;
use crate::fs::publish::{self, NewRun, Parts, WritePlan};
use crate::fs::stat::AllocateMode;
use crate::fs::zero::Whole;
use crate::mask::TransactionMask;
use crate::memory;
use crate::platform::Platform;
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Limit of the keys that one punching step changes.
const STEP_KEYS: usize = 56;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Changes the allocation of `length` bytes from `offset`, as fallocate(2) does in the given
    /// mode. Allocated space reads as zeros, and writing to it needs no new data blocks.
    ///
    /// # Errors
    /// `InvalidArgument` (length 0), `FileTooLarge`, `IsADirectory`, `NotARegularFile`, `Stale`;
    /// `NotPermitted` (the file's flags); `NoSpace`. On `NoSpace` a reader sees no change, unless
    /// the range to be zeroed is in more than about 48 extents.
    pub fn allocate(
        &self,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        if length == 0 {
            return Err(Error::InvalidArgument("length is 0"));
        }
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= FILE_SIZE_MAX)
            .ok_or(Error::FileTooLarge)?;
        {
            let _guard = self.inode_lock(inode);
            let size = self.size_to_allocate(inode, mode)?;
            match mode {
                AllocateMode::Allocate { keep_size } => {
                    self.fill_holes(inode, offset, end)?;
                    self.finish(inode, size, end, keep_size)?;
                }
                AllocateMode::PunchHole => self.punch_hole(inode, offset, end, size)?,
                AllocateMode::ZeroRange { keep_size } => {
                    self.check_space(inode, offset, end, false)?;
                    self.zero_range(inode, offset, end, size, keep_size)?;
                }
            }
        }
        self.engine.event(TransactionMask::TRUNCATE)
    }

    /// The size of a file whose flags let its allocation change.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn size_to_allocate(&self, inode: InodeNumber, mode: AllocateMode) -> Result<u64> {
        let found = Inode::load_regular(&self.engine.reader()?, inode)?;
        match mode {
            AllocateMode::Allocate { .. } => found.file_flags().check_add()?,
            _ => found.file_flags().check_change()?,
        }
        Ok(found.size)
    }

    fn punch_hole(&self, inode: InodeNumber, offset: u64, end: u64, size: u64) -> Result<()> {
        let inline = Inode::load_regular(&self.engine.reader()?, inode)?.has(FLAG_INLINE);
        let inline_end = end.min(size).min(self.parameters().inline_max as u64);
        if inline && offset < inline_end {
            return self.zero(inode, offset, inline_end);
        }
        if !inline && self.zero_at_once(inode, offset, end, Whole::Hole, 0)? {
            return Ok(());
        }
        self.punch(inode, offset, end, size)?;
        self.finish(inode, size, end, true)
    }

    fn zero_range(
        &self,
        inode: InodeNumber,
        offset: u64,
        end: u64,
        size: u64,
        keep_size: bool,
    ) -> Result<()> {
        self.spill(inode)?;
        // Extents that a truncation has left past the end of the file are no allocation.
        self.finish_truncation(inode)?;
        let new_size = if keep_size { 0 } else { end };
        self.prepare_write(inode, new_size, None)?;
        if self.zero_at_once(inode, offset, end, Whole::Unwritten, new_size)? {
            return Ok(());
        }
        self.punch(inode, offset, end, size)?;
        self.fill_holes(inode, offset, end)?;
        self.finish(inode, size, end, keep_size)
    }

    fn finish(&self, inode: InodeNumber, size: u64, end: u64, keep_size: bool) -> Result<()> {
        let grow = !keep_size && end > size;
        if grow {
            self.prepare_write(inode, end, None)?;
        }
        self.update(SpaceClass::Normal, |tx| {
            publish::finish_allocation(tx, inode, grow.then_some(end))
        })
    }

    /// Fails with `NoSpace` if the volume cannot hold the missing blocks of the range (`holes`) or
    /// the whole range. Reclaimed blocks of removed files count as available.
    fn check_space(&self, inode: InodeNumber, offset: u64, end: u64, holes: bool) -> Result<()> {
        let parameters = self.parameters();
        let (from, to) = (parameters.block_of(offset), parameters.blocks_for(end));
        let mut needed = to - from;
        if holes && needed > self.statistics()?.blocks_available {
            // The extents are counted only for a range that is larger than the free space.
            let reader = self.engine.reader()?;
            let mut found = extent_map::overlap(&reader, &parameters, inode, from, to)?;
            while let Some(mapped) = found {
                needed = needed.saturating_sub(mapped.end().min(to) - mapped.index.max(from));
                found = extent_map::starting(&reader, &parameters, inode, mapped.end(), to)?;
            }
        }
        self.wait_for_space(needed)
    }

    /// Allocates unwritten blocks for every hole in the range.
    fn fill_holes(&self, inode: InodeNumber, offset: u64, end: u64) -> Result<()> {
        let parameters = self.parameters();
        self.check_space(inode, offset, end, true)?;
        self.spill(inode)?;
        // Extents that a truncation has left past the end of the file are no allocation.
        self.finish_truncation(inode)?;
        let to = parameters.blocks_for(end);
        let mut at = parameters.block_of(offset);
        while at < to {
            let (hole_end, goal) = {
                let reader = self.engine.reader()?;
                let found = extent_map::overlap(&reader, &parameters, inode, at, to)?;
                match found {
                    Some(mapped) if mapped.index <= at => {
                        at = mapped.end();
                        continue;
                    }
                    next => {
                        let before = extent_map::preceding(&reader, &parameters, inode, at)?;
                        let goal = before.map(|before| BlockAddress(before.extent.run().end()));
                        (next.map_or(to, |next| next.index), goal)
                    }
                }
            };
            at = self.fill_hole(&parameters, inode, at, hole_end, goal)?;
        }
        Ok(())
    }

    /// Allocates the first blocks of a hole. Returns where they end.
    fn fill_hole(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        from: u64,
        end: u64,
        goal: Option<BlockAddress>,
    ) -> Result<u64> {
        let want = (end - from).min(u64::from(EXTENT_UNWRITTEN_BLOCKS_MAX));
        let run = self.allocate_blocks(want, want, goal, SpaceClass::Normal)?;
        let mut parts = Parts::default();
        let part = NewRun { index: from, run, in_place: None, checksums: Checksums::default() };
        let end = from + run.count;
        let allocated = memory::push(&mut parts, part).and_then(|()| {
            let plan = WritePlan { from, end, parts, size: 0, may_join: true, times: false };
            self.update(SpaceClass::Normal, |tx| publish::publish(tx, parameters, inode, &plan))
        });
        if let Err(error) = allocated {
            self.engine.release_blocks(run);
            return Err(error);
        }
        Ok(end)
    }

    /// Makes a range read as zeros: whole blocks become a hole, partial blocks are zeroed.
    fn punch(&self, inode: InodeNumber, offset: u64, end: u64, size: u64) -> Result<()> {
        let parameters = self.parameters();
        let block = parameters.block();
        let attributes = Inode::load_regular(&self.engine.reader()?, inode)?;
        if attributes.has(FLAG_INLINE) {
            return self.zero(inode, offset, end.min(size).min(parameters.inline_max as u64));
        }
        // Nothing past the end of the file must be kept, so a range that reaches the end takes
        // the whole last block.
        let whole_end = if end >= size { end.next_multiple_of(block) } else { end / block * block };
        let whole_start = offset.next_multiple_of(block);
        if whole_start >= whole_end {
            return self.zero_mapped(&parameters, inode, offset, end.min(size));
        }
        self.zero_mapped(&parameters, inode, offset, whole_start.min(size))?;
        self.zero_mapped(&parameters, inode, whole_end, end.min(size))?;
        let (mut at, to) = (whole_start / block, whole_end / block);
        let first = extent_map::overlap(&self.engine.reader()?, &parameters, inode, at, to)?;
        let split = first.and_then(|first| first.split_by(at, to));
        let class = self.engine.class_of_hole(split)?;
        while at < to {
            at = self.update(class, |tx| {
                let mut attributes = Inode::load_regular(tx, inode)?;
                let done = extent_map::clear(
                    tx,
                    &parameters,
                    (inode, &mut attributes),
                    at,
                    to,
                    STEP_KEYS,
                )?;
                attributes.touch(tx.now());
                attributes.store(tx, inode)?;
                Ok(done)
            })?;
        }
        Ok(())
    }

    /// Writes zeros to a range within one block (or two adjacent ones), if it has data.
    fn zero_mapped(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        from: u64,
        end: u64,
    ) -> Result<()> {
        let mut at = from;
        while at < end {
            let index = parameters.block_of(at);
            let to = end.min((index + 1) * parameters.block());
            let mapped =
                extent_map::overlap(&self.engine.reader()?, parameters, inode, index, index + 1)?;
            if mapped.is_some_and(|mapped| !mapped.extent.unwritten) {
                self.zero(inode, at, to)?;
            }
            at = to;
        }
        Ok(())
    }

    /// Writes zeros to a short range.
    fn zero(&self, inode: InodeNumber, from: u64, end: u64) -> Result<()> {
        if from >= end {
            return Ok(());
        }
        let zeros = memory::zeroed((end - from) as usize)?;
        self.write_locked(inode, from, &zeros)
    }
}
