//! Moving the blocks of files without changing the files, for making a volume smaller and for
//! defragmenting.
//!
//! A move copies blocks with the checksums that they have, bad ones included. Data that was
//! unreadable before stays unreadable, and never reads as something else. A move is one batch,
//! which only commits if the file still has exactly the extents that were copied. Times and size
//! stay. Each step is bounded in bytes and in keys.
//!
//! Blocks that several extents name would be there once more for the one that moves. Defragmenting
//! leaves them where they are: moving takes more room than it saves seeks, and people clone files
//! to save room. Making a volume smaller moves them once ([`super::move_shared`]).

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::{Keyspace, KeyspaceRead, SpaceClass};
use crate::error::{Error, Result};
use crate::format::extent::{Checksums, Extent, written_blocks_max};
use crate::format::inode::{FLAG_INLINE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map::{self, Mapped};
use crate::fs::publish::extents_needed;
use crate::fs::tx::Tx;
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, InodeNumber};
use crate::volume::Volume;

/// Limit of the bytes moved in one step.
const STEP_BYTES: u64 = 1 << 20;
/// Limit of the extents that one step replaces, and of those that it makes.
const STEP_EXTENTS: usize = 24;

/// How the data of a file lies on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragmentation {
    /// Blocks in extents.
    pub blocks: u64,
    /// Extents: one key each. A long run is in several extents, because their length is limited.
    pub extents: u64,
    /// Runs of blocks that follow each other in the file and on the volume; 1 is the optimum.
    pub runs: u64,
}

/// Where defragmenting a file continues. Start with the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DefragmentCursor {
    /// Index of the next block within the file.
    pub block: u64,
    /// Where the preceding blocks end on the volume; 0: unknown.
    pub goal: u64,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Fragmentation of the data of a regular file. Reads every extent.
    ///
    /// # Errors
    /// `IsADirectory`, `NotARegularFile`, `Stale`, and those of reading.
    pub fn fragmentation(&self, inode: InodeNumber) -> Result<Fragmentation> {
        let parameters = self.parameters();
        let mut found = Fragmentation::default();
        let (mut at, mut end) = (0, None);
        loop {
            let reader = self.engine.reader()?;
            Inode::load_regular(&reader, inode)?;
            let Some(mapped) = extent_map::starting(&reader, &parameters, inode, at, u64::MAX)?
            else {
                return Ok(found);
            };
            let run = mapped.extent.run();
            found.blocks = found.blocks.saturating_add(run.count);
            found.extents += 1;
            found.runs += u64::from(end != Some((mapped.index, run.start.0)));
            end = Some((mapped.end(), run.end()));
            at = mapped.end();
        }
    }

    /// One bounded step of making the blocks of a regular file contiguous; the file can be in use.
    /// Returns where to continue, `None` at the end of the file. Space that a step frees is
    /// reusable after the next checkpoint.
    ///
    /// # Errors
    /// `IsADirectory`, `NotARegularFile`, `Stale`, `ReadOnly`, `Poisoned`, `Held`, and the
    /// medium's. Without room for contiguous blocks they stay where they are.
    pub fn defragment_step(
        &self,
        inode: InodeNumber,
        cursor: DefragmentCursor,
    ) -> Result<Option<DefragmentCursor>> {
        self.engine.ensure_writable()?;
        self.engine.lifecycle.check_not_held()?;
        let _guard = self.inode_lock(inode);
        let attributes = Inode::load_regular(&self.engine.reader()?, inode)?;
        if attributes.has(FLAG_INLINE) {
            return Ok(None);
        }
        let goal = match cursor.goal {
            0 => self.place_for(attributes.blocks)?,
            goal => Some(BlockAddress(goal)),
        };
        let old = self.neighbours(inode, cursor.block, &|_| true)?;
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(None) };
        let next = last.end();
        let before = breaks(cursor.goal, old.iter().map(|mapped| mapped.extent.run()));
        let shared = self
            .engine
            .reference_counts()
            .is_shared(self.engine.reader()?.root(), first.extent.run())?;
        let moved = if before == 0 || first.extent.unwritten || shared {
            None
        } else {
            let fewer = |new: &[BlockRun]| breaks(cursor.goal, new.iter().copied()) < before;
            match self.move_extents(inode, &old, None, goal, SpaceClass::Normal, &fewer) {
                Err(Error::NoSpace) => None,
                moved => moved?,
            }
        };
        let goal = moved.unwrap_or(BlockAddress(last.extent.run().end())).0;
        Ok(Some(DefragmentCursor { block: next, goal }))
    }

    /// The start of a free run for this many blocks, or of the longest run found near the place for
    /// new data.
    fn place_for(&self, blocks: u64) -> Result<Option<BlockAddress>> {
        match self.allocate_blocks(blocks.max(1), 1, None, SpaceClass::Normal) {
            Ok(run) => {
                self.engine.release_blocks(run);
                Ok(Some(run.start))
            }
            Err(Error::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Extents of a file from block `from` on, as many as one step can move. They are written
    /// extents that follow each other without a hole, or one extent that is unwritten or shared.
    /// Only extents for which `wanted` is true.
    fn neighbours(
        &self,
        inode: InodeNumber,
        from: u64,
        wanted: &dyn Fn(BlockRun) -> bool,
    ) -> Result<Vec<Mapped>> {
        let parameters = self.parameters();
        let reader = self.engine.reader()?;
        let wanted = |mapped: &Mapped| wanted(mapped.extent.run());
        let mut old: Vec<Mapped> = Vec::new();
        let (mut at, mut blocks) = (from, 0);
        while let Some(mapped) = extent_map::starting(&reader, &parameters, inode, at, u64::MAX)? {
            blocks += u64::from(mapped.extent.length);
            let alone = mapped.extent.unwritten
                || self.engine.reference_counts().is_shared(reader.root(), mapped.extent.run())?;
            let follows = old.last().is_none_or(|last| last.end() == mapped.index && !alone);
            let full = old.len() == STEP_EXTENTS || blocks * parameters.block() > STEP_BYTES;
            if !old.is_empty() && (!follows || full || !wanted(&mapped)) {
                break;
            }
            at = mapped.end();
            if wanted(&mapped) {
                memory::push(&mut old, mapped)?;
            } else {
                blocks = 0;
            }
            if alone && !old.is_empty() {
                break;
            }
        }
        Ok(old)
    }

    /// Moves extents whose blocks are `wanted` elsewhere, a few at a time from block `from` of the
    /// file on; for making a volume smaller. Returns the block of the file to continue at.
    pub(crate) fn move_away(
        &self,
        inode: InodeNumber,
        from: u64,
        wanted: &dyn Fn(BlockRun) -> bool,
    ) -> Result<Option<u64>> {
        let _guard = self.inode_lock(inode);
        let mut old = self.neighbours(inode, from, wanted)?;
        let mut rest = None;
        // With little room, little moves at a time.
        loop {
            let Some(last) = old.last() else { return Ok(None) };
            let next = last.end();
            match self
                .move_extents(inode, &old, rest.as_ref(), None, SpaceClass::Freeing, &|_| true)
            {
                Err(Error::NoSpace) if old.len() > 1 => old.truncate(old.len() / 2),
                Err(Error::NoSpace) if last.extent.length > 1 => {
                    let half = last.index + u64::from(last.extent.length / 2);
                    let end = rest.as_ref().map_or(last.end(), Mapped::end);
                    let whole = extent_map::overlap(
                        &self.engine.reader()?,
                        &self.parameters(),
                        inode,
                        last.index,
                        end,
                    )?;
                    let whole = whole.ok_or(Error::Busy)?;
                    rest = Some(whole.clip(half, end)?);
                    old = memory::collect([whole.clip(whole.index, half)?])?;
                }
                moved => return moved.map(|_| Some(next)),
            }
        }
    }

    /// Moves extents that follow each other to new blocks, if `accept` agrees to those. Returns
    /// where the new blocks end. `rest`: the part of the last extent after the moved part. The
    /// caller holds the inode's lock.
    fn move_extents(
        &self,
        inode: InodeNumber,
        old: &[Mapped],
        rest: Option<&Mapped>,
        goal: Option<BlockAddress>,
        class: SpaceClass,
        accept: &dyn Fn(&[BlockRun]) -> bool,
    ) -> Result<Option<BlockAddress>> {
        let Some(first) = old.first() else { return Ok(None) };
        let blocks: u64 = old.iter().map(|mapped| u64::from(mapped.extent.length)).sum();
        let runs = self.allocate_runs(blocks, goal, class)?;
        let give_back =
            |runs: &[BlockRun]| runs.iter().for_each(|run| self.engine.release_blocks(*run));
        let parameters = self.parameters();
        let extent_max = written_blocks_max(
            parameters.block_size,
            parameters.granule,
            self.engine.reader()?.value_len_max(),
        );
        let pieces: usize = runs.iter().map(|run| extents_needed(run.count, extent_max)).sum();
        if pieces > STEP_EXTENTS || !accept(&runs) {
            give_back(&runs);
            return if pieces > STEP_EXTENTS { Err(Error::NoSpace) } else { Ok(None) };
        }
        let copied = if first.extent.unwritten { Ok(()) } else { self.copy_blocks(old, &runs) };
        let moved = copied.and_then(|()| {
            self.update(class, |tx| {
                let mut attributes = Inode::load_regular(tx, inode)?;
                let checksums = take_out(tx, inode, &mut attributes, old, rest)?;
                let file = (inode, &mut attributes);
                let new = New {
                    runs: &runs,
                    checksums: &checksums,
                    unwritten: first.extent.unwritten,
                    extent_max,
                };
                put_in(tx, file, first.index, &new)?;
                attributes.store(tx, inode)
            })
        });
        match moved {
            Ok(()) => Ok(runs.last().map(|run| BlockAddress(run.end()))),
            Err(error) => {
                give_back(&runs);
                Err(error)
            }
        }
    }

    /// Allocates `blocks` blocks, in a few runs.
    fn allocate_runs(
        &self,
        blocks: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<Vec<BlockRun>> {
        let mut runs: Vec<BlockRun> = Vec::new();
        let (mut left, mut goal) = (blocks, goal);
        while left > 0 {
            let allocated = match class {
                SpaceClass::Normal | SpaceClass::Rewrite => {
                    self.allocate_blocks(left, left, goal, class)
                }
                SpaceClass::Freeing => self.engine.allocate_for_move(left, goal),
            };
            let pushed = allocated.and_then(|run| {
                memory::push(&mut runs, run).inspect_err(|_| self.engine.release_blocks(run))?;
                Ok(run)
            });
            let run = match pushed {
                Ok(run) if runs.len() <= STEP_EXTENTS => run,
                failed => {
                    runs.iter().for_each(|run| self.engine.release_blocks(*run));
                    return Err(failed.err().unwrap_or(Error::NoSpace));
                }
            };
            left -= run.count;
            goal = Some(BlockAddress(run.end()));
        }
        Ok(runs)
    }

    /// Copies the blocks of extents unchanged to `runs`, which have the same total length.
    fn copy_blocks(&self, old: &[Mapped], runs: &[BlockRun]) -> Result<()> {
        let block = self.engine.superblock().block_size as usize;
        let blocks: u64 = runs.iter().map(|run| run.count).sum();
        let mut sources = Vec::new();
        for mapped in old {
            memory::push(&mut sources, mapped.extent.run())?;
        }
        let _pins = self.engine.pin(Short::of(&sources)?);
        let mut buffer = memory::zeroed(blocks as usize * block)?;
        let mut rest = &mut buffer[..];
        for run in sources {
            let (part, after) = rest.split_at_mut(run.count as usize * block);
            self.engine.device().read_blocks(run.start, part)?;
            rest = after;
        }
        let mut rest = &buffer[..];
        for run in runs {
            let (part, after) = rest.split_at(run.count as usize * block);
            self.engine.device().write_blocks(run.start, &[part])?;
            rest = after;
        }
        Ok(())
    }
}

/// How often the next block of the file is not the next block on the volume. The blocks before
/// these runs end at `goal` (0: unknown).
fn breaks(goal: u64, runs: impl Iterator<Item = BlockRun>) -> usize {
    let mut previous = (goal != 0).then_some(goal);
    runs.filter(|run| previous.replace(run.end()).is_some_and(|end| end != run.start.0)).count()
}

/// Removes exactly these extents from a file, except the `rest` of the last one. Returns their
/// checksums.
///
/// # Errors
/// `Busy` if the file no longer has them.
fn take_out<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    attributes: &mut Inode,
    old: &[Mapped],
    rest: Option<&Mapped>,
) -> Result<Vec<u32>> {
    let mut checksums = Vec::new();
    for (at, mapped) in old.iter().enumerate() {
        let key = Key::new(inode, Kind::Extent, mapped.index);
        let mut whole = mapped.extent.slice(0, mapped.extent.length)?;
        if let Some(rest) = rest.filter(|_| at + 1 == old.len()) {
            whole.join(&rest.extent)?;
            tx.put(Key::new(inode, Kind::Extent, rest.index), rest.extent.encode()?)?;
        }
        let same = match tx.get(&key)? {
            Some(found) => found == whole.encode()?,
            None => false,
        };
        if !same {
            return Err(Error::Busy);
        }
        tx.delete(&key)?;
        attributes.blocks = attributes.blocks.saturating_sub(u64::from(mapped.extent.length));
        checksums.try_reserve(mapped.extent.checksums.len()).map_err(|_| Error::OutOfMemory)?;
        checksums.extend_from_slice(&mapped.extent.checksums);
    }
    Ok(checksums)
}

/// The replacement for the removed extents.
struct New<'a> {
    runs: &'a [BlockRun],
    checksums: &'a [u32],
    unwritten: bool,
    extent_max: u32,
}

/// Puts `new` into a file from block `index` on, where it has a hole.
fn put_in<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    file: (InodeNumber, &mut Inode),
    index: u64,
    new: &New<'_>,
) -> Result<()> {
    let (inode, attributes) = file;
    let birth = tx.keyspace().generation();
    let blocks: u64 = new.runs.iter().map(|run| run.count).sum();
    let per_block = new.checksums.len() / usize::try_from(blocks.max(1)).unwrap_or(usize::MAX);
    let mut done = 0;
    for run in new.runs {
        let mut at = run.start.0;
        while at < run.end() {
            let length = match new.unwritten {
                true => run.end() - at,
                false => (run.end() - at).min(u64::from(new.extent_max)),
            };
            let mut extent =
                Extent::new_unwritten(BlockRun { start: BlockAddress(at), count: length }, birth)?;
            if !new.unwritten {
                let part = new
                    .checksums
                    .get(done as usize * per_block..(done + length) as usize * per_block);
                extent.checksums =
                    Checksums::of(part.ok_or(Error::InvalidArgument("checksums missing"))?)?;
                extent.unwritten = false;
            }
            attributes.blocks = attributes.blocks.saturating_add(length);
            tx.put(Key::extent(inode, index + done), extent.encode()?)?;
            at += length;
            done += length;
        }
    }
    Ok(())
}
