//! Writing data: prepare, allocate, write with only the inode's data lock held, publish in a batch.
//!
//! Blocks that the checkpointed state or the log names as data are never overwritten. New data goes
//! to newly allocated blocks, or into blocks of an unwritten extent, which nothing refers to as
//! data. The inode's data lock is held from the first read of the old state until the batch is
//! applied. So partial blocks can be read, changed and replaced.
//!
//! One call of up to [`STEP_BYTES`] is one batch. If the old or the new data is in too many extents
//! for one batch ([`EXTENT_CHANGES_MAX`]), the call is split at block boundaries, in order.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::PinGuard;
use crate::engine::keyspace::{EXTENT_CHANGES_MAX, KeyspaceRead, SpaceClass};
use crate::error::{Error, Result};
use crate::format::extent::{Checksums, written_blocks_max};
use crate::format::inode::{FILE_SIZE_MAX, FLAG_INLINE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map;
use crate::fs::parameters::Parameters;
use crate::fs::publish::{self, NewRun, Parts, WritePlan, extents_needed};
use crate::fs::write_buffer::{Old, WriteBuffer};
use crate::mask::TransactionMask;
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Limit of the bytes written in one batch.
const STEP_BYTES: usize = 1 << 20;

/// Limit of the old extents that one batch replaces.
const OLD_EXTENTS_MAX: usize = 48;

/// Blocks that are written in place, and blocks that are read.
type Pins<'a, M, P> = (PinGuard<'a, M, P>, Option<PinGuard<'a, M, P>>);

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Writes all of `data` at byte `offset` or fails. `sync`: the descriptor has O_SYNC or
    /// O_DSYNC. Up to 1 MiB is atomic as a whole, as long as the range is in fewer than about 48
    /// extents. A longer write is done as several operations, in order.
    ///
    /// # Errors
    /// `NoSpace` (nothing of this piece is written), `FileTooLarge`, `IsADirectory`,
    /// `NotARegularFile`, `Stale`, `Medium`; `CorruptData` if a block that keeps some of its old
    /// bytes is damaged. The block of the last such write is not read again.
    pub fn write(&self, inode: InodeNumber, offset: u64, data: &[u8], sync: bool) -> Result<()> {
        {
            let _guard = self.inode_lock(inode);
            self.write_locked(inode, offset, data)?;
        }
        self.commit_if_masked(sync)
    }

    /// O_APPEND: writes at the end. Returns the offset used. Otherwise like [`write`](Self::write).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn append(&self, inode: InodeNumber, data: &[u8], sync: bool) -> Result<u64> {
        let offset = {
            let _guard = self.inode_lock(inode);
            let offset = Inode::load_regular(&self.engine.reader()?, inode)?.size;
            self.write_locked(inode, offset, data)?;
            offset
        };
        self.commit_if_masked(sync)?;
        Ok(offset)
    }

    fn commit_if_masked(&self, sync: bool) -> Result<()> {
        self.engine.event(TransactionMask::WRITE)?;
        let sync = sync
            && (!planted(Sabotage::SyncWriteNeedsFsync)
                || self.engine.active_mask().contains(TransactionMask::FSYNC));
        if sync { self.engine.event(TransactionMask::SYNC_WRITE) } else { Ok(()) }
    }

    /// Writes under the inode's data lock, which the caller holds.
    pub(crate) fn write_locked(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let too_large = end.is_none_or(|end| end > FILE_SIZE_MAX);
        if too_large || data.is_empty() {
            self.check_regular(inode)?;
            return if too_large { Err(Error::FileTooLarge) } else { Ok(()) };
        }
        let mut done = 0;
        while done < data.len() {
            let part = &data[done..data.len().min(done + STEP_BYTES)];
            done += self.write_step(inode, offset + done as u64, part)?;
        }
        Ok(())
    }

    fn write_step(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        let parameters = self.parameters();
        let end = offset + data.len() as u64;
        let blocks = parameters.block_of(offset)..parameters.blocks_for(end);
        let is_inline = self.prepare_write(inode, end, Some(blocks))?;
        let (inline_max, inline) = self.inline_data(&parameters, inode, is_inline)?;
        if inline.is_some() && end <= inline_max as u64 {
            let grows = inline.flatten().is_none_or(|length| end > length as u64);
            let class = if grows { SpaceClass::Normal } else { SpaceClass::Rewrite };
            return self.write_inline(class, inode, offset as usize, data);
        }
        if let Some(Some(length)) = inline
            && parameters.block_of(offset) > parameters.blocks_for(length as u64)
        {
            // The write starts far past the inline data. The inline data first goes to its own
            // blocks, which changes nothing visible.
            self.move_inline_data(&parameters, inode)?;
        }
        self.write_extents(&parameters, inode, offset, data, true)
    }

    /// Fails unless the file is a regular one.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn check_regular(&self, inode: InodeNumber) -> Result<()> {
        Inode::load_regular(&self.engine.reader()?, inode).map(drop)
    }

    /// Writes inline data to blocks.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn move_inline_data(&self, parameters: &Parameters, inode: InodeNumber) -> Result<()> {
        let value = self.engine.reader()?.get(&Key::new(inode, Kind::Inline, 0))?;
        self.write_extents(parameters, inode, 0, &value.unwrap_or_default(), false).map(drop)
    }

    /// Not inlined: what it needs would be on the stack below a write to blocks.
    #[inline(never)]
    fn write_inline(
        &self,
        class: SpaceClass,
        inode: InodeNumber,
        offset: usize,
        data: &[u8],
    ) -> Result<usize> {
        self.update(class, |tx| publish::write_inline(tx, inode, offset, data))?;
        Ok(data.len())
    }

    /// The largest size of inline data; and, for an inline file, the length of its inline data if
    /// it has any.
    #[inline(never)]
    fn inline_data(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        is_inline: bool,
    ) -> Result<(usize, Option<Option<usize>>)> {
        let reader = self.engine.reader()?;
        let inline_max = parameters.inline_max.min(reader.value_len_max());
        let inline = match is_inline {
            true => Some(reader.get_with(&Key::new(inode, Kind::Inline, 0), <[u8]>::len)?),
            false => None,
        };
        Ok((inline_max, inline))
    }

    /// Writes data to blocks and publishes them in one batch. Returns how many bytes of `data` were
    /// written. `times`: see [`WritePlan::times`].
    pub(crate) fn write_extents(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
        times: bool,
    ) -> Result<usize> {
        let block = parameters.block();
        let end = offset + data.len() as u64;
        let (old, (_in_place, read)) = self.old_extents(parameters, inode, offset, end)?;
        let from = if old.inline > 0 { 0 } else { parameters.block_of(offset) };
        let image = self.image(parameters, inode, &old, from, offset, data)?;
        // The pins end before the batch frees these blocks: pinned blocks could not be reused.
        drop(read);
        let class = self.class_of_write(from, &old)?;
        let mut plan = self.allocate_parts(parameters, from, &old, class)?;
        plan.size = end.min(plan.end * block);
        plan.times = times;
        // An extent before the range that does not end where the new blocks begin is another run.
        plan.may_join = plan.parts.first().is_some_and(|first| old.goal == Some(first.run.start));
        let written = if plan.end < parameters.blocks_for(old.inline as u64) {
            Err(Error::NoSpace)
        } else {
            self.write_parts(parameters, &mut plan, &image).and_then(|()| {
                self.update(class, |tx| publish::publish(tx, parameters, inode, &plan))
            })
        };
        if let Err(error) = written {
            self.release_parts(&plan.parts);
            return Err(error);
        }
        self.keep_block(parameters, inode, &plan, image);
        Ok(plan.size.saturating_sub(offset) as usize)
    }

    /// Finds the old extents in `offset..end`. The file may be removed meanwhile, so two kinds of
    /// them are pinned: unwritten extents, which may be written in place, and those of which old
    /// bytes are read.
    #[inline(never)]
    fn old_extents(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        offset: u64,
        end: u64,
    ) -> Result<(Old, Pins<'_, M, P>)> {
        let reader = self.engine.reader()?;
        let attributes = Inode::load_regular(&reader, inode)?;
        let from = parameters.block_of(offset);
        let mut old = Old {
            extents: Vec::new(),
            end: parameters.blocks_for(end),
            goal: None,
            inline: 0,
            size: attributes.size,
        };
        if attributes.has(FLAG_INLINE) {
            let length = reader.get_with(&Key::new(inode, Kind::Inline, 0), <[u8]>::len)?;
            old.inline = length.unwrap_or(0);
            return Ok((old, (self.engine.pin(Short::default())?, None)));
        }
        // Where no extent starts at the range, one search finds what is before it and what reaches
        // into it.
        let mut found = extent_map::at_or_before(&reader, parameters, inode, from)?;
        if found.as_ref().is_some_and(|mapped| mapped.index == from) {
            let before = extent_map::preceding(&reader, parameters, inode, from)?;
            old.goal = before.map(|before| before.end_before(from));
        } else {
            old.goal = found.as_ref().map(|before| before.end_before(from));
            found = found.filter(|before| before.end() > from);
            if found.is_none() {
                found = extent_map::starting(&reader, parameters, inode, from, old.end)?;
            }
        }
        while let Some(mapped) = found {
            if old.extents.len() == OLD_EXTENTS_MAX {
                old.end = mapped.index;
                break;
            }
            let next = mapped.end();
            memory::push(&mut old.extents, mapped)?;
            found = extent_map::starting(&reader, parameters, inode, next, old.end)?;
        }
        let (mut in_place, mut read) = (Short::default(), Short::default());
        let is_partial = |at: u64| !at.is_multiple_of(parameters.block());
        for mapped in old.extents.iter() {
            let run = mapped.extent.run();
            if mapped.extent.unwritten {
                in_place.push(run)?;
            } else if (mapped.index <= from && is_partial(offset))
                || (mapped.end() >= old.end && is_partial(end))
            {
                read.push(run)?;
            }
        }
        let read = if read.is_empty() { None } else { Some(self.engine.pin(read)?) };
        Ok((old, (self.engine.pin(in_place)?, read)))
    }

    /// Space class of a write. A write that replaces blocks of this file alone frees as many as it
    /// takes.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn class_of_write(&self, from: u64, old: &Old) -> Result<SpaceClass> {
        self.engine.ensure_writable()?;
        if old.mapped(from) < old.end.saturating_sub(from) {
            return Ok(SpaceClass::Normal);
        }
        for mapped in old.extents.iter() {
            let run = mapped.run_within(from, old.end);
            let extent = &mapped.extent;
            if !extent.unwritten && !self.engine.is_unshared(run, extent.birth)? {
                return Ok(SpaceClass::Normal);
            }
        }
        Ok(SpaceClass::Rewrite)
    }

    /// Finds blocks for a write: those of unwritten extents in place, and new ones for the rest.
    #[inline(never)]
    fn allocate_parts(
        &self,
        parameters: &Parameters,
        from: u64,
        old: &Old,
        class: SpaceClass,
    ) -> Result<WritePlan> {
        let extent_max = written_blocks_max(
            parameters.block_size,
            parameters.granule,
            self.engine.reader()?.value_len_max(),
        );
        let mut room = EXTENT_CHANGES_MAX.saturating_sub(old.extents.len() + 2);
        let mut plan = WritePlan {
            from,
            end: from,
            parts: Parts::default(),
            size: 0,
            may_join: false,
            times: true,
        };
        let mut goal = old.goal;
        while plan.end < old.end && room > 0 {
            let at = plan.end;
            let unwritten =
                old.extents.iter().find(|mapped| mapped.extent.unwritten && mapped.end() > at);
            // At most as many blocks as there is room to publish, however long the runs are.
            let most = (old.end - at).min(u64::from(extent_max) * room as u64);
            let part = match unwritten {
                Some(mapped) if mapped.index <= at => {
                    let part = mapped.clip(at, at + most)?;
                    NewRun {
                        index: at,
                        run: part.extent.run(),
                        in_place: Some(part.extent.birth),
                        checksums: Checksums::default(),
                    }
                }
                next => {
                    let until = next.map_or(u64::MAX, |mapped| mapped.index);
                    match self.allocate_blocks(most.min(until - at), old.missing(at), goal, class) {
                        Ok(run) => NewRun {
                            index: at,
                            run,
                            in_place: None,
                            checksums: Checksums::default(),
                        },
                        Err(error) => {
                            if !planted(Sabotage::KeepUnpublished) {
                                self.release_parts(&plan.parts);
                            }
                            return Err(error);
                        }
                    }
                }
            };
            goal = Some(BlockAddress(part.run.end()));
            plan.end += part.run.count;
            room = room.saturating_sub(extents_needed(part.run.count, extent_max));
            let run = part.run;
            let allocated = part.in_place.is_none();
            if let Err(error) = memory::push(&mut plan.parts, part) {
                if allocated {
                    self.engine.release_blocks(run);
                }
                self.release_parts(&plan.parts);
                return Err(error);
            }
        }
        Ok(plan)
    }

    /// Computes the checksums of all parts and writes them.
    #[inline(never)]
    fn write_parts(
        &self,
        parameters: &Parameters,
        plan: &mut WritePlan,
        image: &WriteBuffer<'_>,
    ) -> Result<()> {
        let block = parameters.block_size as usize;
        let granule = parameters.granule as usize;
        for part in plan.parts.iter_mut() {
            let first = (part.index - plan.from) as usize * block;
            let slices = image.slices(first, first + part.run.count as usize * block);
            let count = part.run.count as usize * parameters.granules_per_block() as usize;
            part.checksums = Checksums::with_room(count)?;
            for bytes in slices.iter().flat_map(|slice| slice.chunks(granule)) {
                part.checksums.push(self.engine.device().crc(bytes))?;
            }
            match part.in_place {
                None => self.engine.device().write_blocks(part.run.start, &slices)?,
                Some(_) => self.engine.device().write_blocks_in_place(part.run.start, &slices)?,
            }
        }
        Ok(())
    }

    /// Releases the allocated blocks of a failed write.
    pub(crate) fn release_parts(&self, parts: &[NewRun]) {
        for part in parts.iter().filter(|part| part.in_place.is_none()) {
            self.engine.release_blocks(part.run);
        }
    }
}
