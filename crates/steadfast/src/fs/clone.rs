//! Clones: a range of a file gets the blocks of another file, and both share them (FICLONERANGE).
//!
//! Extents are copied with their births and checksums, a few in each batch. Neither file can change
//! the other's bytes afterwards. Written blocks are never overwritten; unwritten blocks, which are,
//! become holes of the copy.

use alloc::vec::Vec;

use lock_api::MutexGuard;
use steadfast_media::Medium;

use crate::engine::keyspace::{Keyspace, KeyspaceRead, SpaceClass};
use crate::error::{Error, Result};
use crate::format::inode::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_TAIL_STALE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map::{self, Mapped};
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::mask::TransactionMask;
use crate::memory;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Limit of the extents that one batch shares.
const STEP_EXTENTS: usize = 8;
/// Limit of the keys of old extents that one batch changes.
const STEP_CLEARED: usize = 16;

/// Source and target positions, in blocks.
#[derive(Debug, Clone, Copy)]
struct Range {
    from: InodeNumber,
    from_at: u64,
    from_end: u64,
    to: InodeNumber,
    to_at: u64,
    /// The range reaches the end of the source, whose last block may have stale bytes after the
    /// end.
    tail: bool,
    /// Minimum size of the target afterwards, bytes.
    size: u64,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes `length` bytes of `to`, from `to_offset` on, equal to those of `from`, from
    /// `from_offset` on, by sharing their blocks. `length` 0 means up to the end of the source.
    /// Returns the number of bytes.
    ///
    /// Offsets and length are multiples of the block size. But the range may end at the source's
    /// end if that is not before the target's end. Files that are stored in the tree are copied. A
    /// long range is done in steps, in order.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that is not aligned, ends past the source's end, or
    /// overlaps; `NotPermitted` (flags of the target), `NoSpace`, `FileTooLarge`, `IsADirectory`,
    /// `NotARegularFile`, `Stale`, `Medium`.
    /// Blocks shared before the error stay shared.
    pub fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        if !SNAPSHOTS {
            return Err(NO_SNAPSHOTS);
        }
        self.engine.ensure_writable()?;
        let length = {
            let _guards = self.two_inode_locks(from, to);
            self.clone_locked((from, from_offset), (to, to_offset), length)?
        };
        self.engine.event(TransactionMask::WRITE)?;
        Ok(length)
    }

    /// The data locks of two inodes, in the same order for all callers.
    fn two_inode_locks(
        &self,
        a: InodeNumber,
        b: InodeNumber,
    ) -> [Option<MutexGuard<'_, P::Mutex, ()>>; 2] {
        let (low, high) =
            if self.inode_lock_index(a) <= self.inode_lock_index(b) { (a, b) } else { (b, a) };
        let first = self.inode_lock(low);
        let two = self.inode_lock_index(low) != self.inode_lock_index(high);
        [Some(first), two.then(|| self.inode_lock(high))]
    }

    fn clone_locked(
        &self,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        length: u64,
    ) -> Result<u64> {
        let parameters = self.parameters();
        let (source, target) = {
            let reader = self.engine.reader()?;
            (Inode::load_regular(&reader, from.0)?, Inode::load_regular(&reader, to.0)?)
        };
        target.file_flags().check_change()?;
        let length = match length {
            0 => source.size.saturating_sub(from.1),
            length => length,
        };
        let end = from.1.checked_add(length).filter(|end| *end <= source.size);
        let end = end.ok_or(Error::InvalidArgument("the range ends past the end of the source"))?;
        let to_end =
            to.1.checked_add(length)
                .filter(|end| *end <= FILE_SIZE_MAX)
                .ok_or(Error::FileTooLarge)?;
        let whole = |bytes: u64| bytes.is_multiple_of(parameters.block());
        if !whole(from.1)
            || !whole(to.1)
            || !(whole(end) || (end == source.size && to_end >= target.size))
        {
            return Err(Error::InvalidArgument("the range does not begin and end with blocks"));
        }
        if from.0 == to.0 && from.1 < to_end && to.1 < end {
            return Err(Error::InvalidArgument("the ranges overlap"));
        }
        let (_, result) = self.share_blocks(&source, from, to, end);
        result.map(|()| length)
    }

    /// Shares as much as possible of the `length` bytes of a copy, from its beginning on. Returns
    /// the number of bytes shared, even with an error. It is 0 if the beginning must be copied: it
    /// is no whole block, or it is stored in the tree and can stay there.
    pub(super) fn share_front(
        &self,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        length: u64,
    ) -> (u64, Result<()>) {
        let _guards = self.two_inode_locks(from.0, to.0);
        match self.shareable(from, to, length) {
            Ok(Some((source, end))) => {
                let (done, result) = self.share_blocks(&source, from, to, end);
                (done, result.map(|()| self.note_access(from.0, &source)))
            }
            Ok(None) => (0, Ok(())),
            Err(error) => (0, Err(error)),
        }
    }

    /// The source, and the end of the bytes that can be shared, of the `length` bytes from the
    /// beginning on.
    fn shareable(
        &self,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        length: u64,
    ) -> Result<Option<(Inode, u64)>> {
        self.engine.ensure_writable()?;
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        let (source, target) =
            (Inode::load_regular(&reader, from.0)?, Inode::load_regular(&reader, to.0)?);
        let end = from.1.saturating_add(length).min(source.size);
        let bytes = end.saturating_sub(from.1);
        let whole = |bytes: u64| bytes.is_multiple_of(parameters.block());
        let at_end = end == source.size && to.1.saturating_add(bytes) >= target.size;
        let end = if at_end { end } else { end - end % parameters.block() };
        let inline_max = parameters.inline_max.min(reader.value_len_max()) as u64;
        let small = source.has(FLAG_INLINE) && bytes <= inline_max;
        Ok((whole(from.1) && whole(to.1) && end > from.1 && !small).then_some((source, end)))
    }

    /// Shares the blocks from `from` to byte `end` of the source. The caller has checked that this
    /// is possible and holds the locks. Returns the number of bytes done.
    fn share_blocks(
        &self,
        source: &Inode,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        end: u64,
    ) -> (u64, Result<()>) {
        let parameters = self.parameters();
        let length = end.saturating_sub(from.1);
        if length == 0 {
            return (0, Ok(()));
        }
        // Its checksums may be those of other bytes, which another file brings here.
        self.engine.kept_block.lock().forget();
        let first = parameters.block_of(from.1);
        let mut range = Range {
            from: from.0,
            from_at: first,
            from_end: parameters.blocks_for(end),
            to: to.0,
            to_at: parameters.block_of(to.1),
            tail: !end.is_multiple_of(parameters.block()),
            size: to.1.saturating_add(length),
        };
        let mut share_all = || {
            self.spill(to.0)?;
            let blocks = range.to_at..parameters.blocks_for(range.size);
            self.prepare_write(to.0, range.size, Some(blocks))?;
            if source.has(FLAG_INLINE) && from.0 != to.0 {
                let done = self.copy_inline(&parameters, from, to, end)?;
                range.from_at += done;
                range.to_at += done;
            }
            while range.from_at < range.from_end {
                let done = self.update(SpaceClass::Normal, |tx| share(tx, &parameters, &range))?;
                range.from_at += done;
                range.to_at += done;
            }
            Ok(())
        };
        let result = share_all();
        (((range.from_at - first) * parameters.block()).min(length), result)
    }

    /// Writes the part of a range that the source stores in the tree. Returns the number of blocks
    /// written.
    fn copy_inline(
        &self,
        parameters: &Parameters,
        from: (InodeNumber, u64),
        to: (InodeNumber, u64),
        end: u64,
    ) -> Result<u64> {
        let value = self.engine.reader()?.get(&Key::new(from.0, Kind::Inline, 0))?;
        let value = value.unwrap_or_default();
        let start = usize::try_from(from.1).unwrap_or(usize::MAX).min(value.len());
        let stop = usize::try_from(end).unwrap_or(usize::MAX).min(value.len());
        let Some(data) = value.get(start..stop).filter(|data| !data.is_empty()) else {
            return Ok(0);
        };
        let mut whole = memory::copy(data)?;
        // The rest of the last block is in the range too and reads as zeros, or lies past the end
        // of the target.
        let padded =
            (data.len() as u64).next_multiple_of(parameters.block()).min(end - from.1) as usize;
        whole
            .try_reserve_exact(padded.saturating_sub(data.len()))
            .map_err(|_| Error::OutOfMemory)?;
        whole.resize(padded.max(data.len()), 0);
        self.write_locked(to.0, to.1, &whole)?;
        Ok(parameters.blocks_for(whole.len() as u64))
    }
}

/// One step: shares the first extents of the range, and stores the target. Returns the number of
/// blocks done.
fn share<K: Keyspace>(tx: &mut Tx<'_, K>, parameters: &Parameters, range: &Range) -> Result<u64> {
    let mut parts: Vec<Mapped> = Vec::new();
    let mut end = range.from_end;
    let mut found = extent_map::overlap(tx, parameters, range.from, range.from_at, range.from_end)?;
    while let Some(mapped) = found {
        if parts.len() == STEP_EXTENTS {
            end = mapped.index;
            break;
        }
        let part = mapped.clip(range.from_at, range.from_end)?;
        let next = part.end();
        memory::push(&mut parts, part)?;
        found = extent_map::starting(tx, parameters, range.from, next, range.from_end)?;
    }
    let stale = Inode::load_regular(tx, range.from)?.has(FLAG_TAIL_STALE);
    let mut target = Inode::load_regular(tx, range.to)?;
    let to_end = range.to_at + (end - range.from_at);
    let done = extent_map::clear(
        tx,
        parameters,
        (range.to, &mut target),
        range.to_at,
        to_end,
        STEP_CLEARED,
    )?;
    let blocks = done - range.to_at;
    for part in parts.iter().filter(|part| !part.extent.unwritten) {
        if part.index >= range.from_at + blocks {
            break;
        }
        let mut copy = part.clip(range.from_at, range.from_at + blocks)?;
        copy.index = range.to_at + (copy.index - range.from_at);
        extent_map::insert(tx, parameters, (range.to, &mut target), &copy, true)?;
    }
    let last = range.from_at + blocks == range.from_end;
    let tail = parameters.block_of(target.size);
    if (range.to_at..done).contains(&tail) {
        target.set(FLAG_TAIL_STALE, false);
    }
    let reached = done.saturating_mul(parameters.block()).min(range.size);
    if reached >= target.size {
        target.size = reached;
        target.set(
            FLAG_TAIL_STALE,
            last && range.tail && stale && !planted(Sabotage::CloneForgetsStaleTail),
        );
    }
    target.touch(tx.now());
    target.store(tx, range.to)?;
    Ok(blocks)
}
