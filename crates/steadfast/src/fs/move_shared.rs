//! Making a volume smaller moves blocks that several extents name only once. The first extent that
//! the walk finds takes the blocks along, and the other extents follow.
//!
//! Invariant: a remembered run lies at or past the limit of the move, where nothing is allocated
//! any more. So an address found there still means the same bytes. Extents that cross the limit are
//! cut in two for this.
//!
//! After a power cut in between, extents that have not followed keep the old blocks. Those blocks
//! are then no longer shared.

use alloc::collections::BTreeMap;

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::error::Result;
use crate::format::extent::decode_run;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::fs::extent_map::{self, Mapped};
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber};
use crate::volume::Volume;

/// Limit of the runs that are remembered at once.
const RUNS_MAX: usize = 1024;

/// Where shared blocks have gone in one walk over all extents.
#[derive(Default)]
pub(super) struct SharedMoves {
    /// By first old block.
    runs: BTreeMap<u64, Moved>,
    /// More runs moved than can be remembered: another walk is needed.
    pub left_out: bool,
}

#[derive(Clone, Copy)]
struct Moved {
    end: u64,
    to: u64,
    birth: Generation,
}

impl SharedMoves {
    /// The first of these blocks that have moved: the first block of the run that moved, and where
    /// it went.
    fn find(&self, run: BlockRun) -> Option<(u64, Moved)> {
        let before = self
            .runs
            .range(..=run.start.0)
            .next_back()
            .filter(|(_, moved)| moved.end > run.start.0);
        let found = before.or_else(|| self.runs.range(run.start.0..run.end()).next());
        found.map(|(start, moved)| (*start, *moved))
    }

    /// The first moved part of an extent, with its new blocks.
    fn moved_part(&self, mapped: &Mapped) -> Result<Option<Mapped>> {
        let run = mapped.extent.run();
        let Some((start, moved)) = self.find(run) else { return Ok(None) };
        let index = |block: u64| mapped.index + (block - run.start.0);
        let first = start.max(run.start.0);
        let mut part = mapped.clip(index(first), index(moved.end.min(run.end())))?;
        part.extent.address = BlockAddress(moved.to + (first - start));
        part.extent.birth = moved.birth;
        Ok(Some(part))
    }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Moves the data of all files in front of block `limit`. Adds to the count of blocks that were
    /// moved, and tells it from time to time.
    pub(crate) fn move_data(
        &self,
        limit: u64,
        moved: &mut u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        loop {
            let mut shared = SharedMoves::default();
            self.walk_data(limit, &mut shared, moved, progress)?;
            if !shared.left_out {
                return Ok(());
            }
        }
    }

    /// Moves the data of all files, except shared blocks that cannot be remembered.
    fn walk_data(
        &self,
        limit: u64,
        shared: &mut SharedMoves,
        moved: &mut u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut from = Key::MIN;
        loop {
            let found = {
                let root = self.engine.working_root();
                self.engine.store().next(&root, &from, &Key::MAX)?
            };
            let Some((key, value)) = found else { return Ok(()) };
            let run = decode_run(&value).filter(|_| key.kind() == Some(Kind::Extent));
            let Some(next) = key.successor() else { return Ok(()) };
            from = next;
            let Some(run) = run.filter(|run| run.end() > limit) else { continue };
            let (inode, index) = (key.inode_number(), key.suffix());
            let step = self
                .engine
                .with_room(|| self.move_extent(inode, index, BlockAddress(limit), shared))?;
            *moved += run.count;
            progress(*moved);
            match step {
                Some(next) => from = Key::extent(inode, next),
                None => from = Key::new(inode, Kind::Extent, u64::MAX),
            }
        }
    }

    /// One step of moving the extent at this index of a file in front of block `limit`, which it
    /// crosses. Returns the index to continue at. Returns `None` if the rest of the file is in
    /// front of the limit.
    pub(super) fn move_extent(
        &self,
        inode: InodeNumber,
        index: u64,
        limit: BlockAddress,
        moves: &mut SharedMoves,
    ) -> Result<Option<u64>> {
        let parameters = self.parameters();
        let (mapped, shared) = {
            let reader = self.engine.reader()?;
            let found =
                extent_map::starting(&reader, &parameters, inode, index, index.saturating_add(1))?;
            let Some(mapped) = found else { return Ok(index.checked_add(1)) };
            let run = mapped.extent.run();
            (
                mapped,
                self.engine.reference_counts().shared_extents(
                    reader.root(),
                    run.start.0,
                    run.end(),
                )?,
            )
        };
        let run = mapped.extent.run();
        if let Some(part) = moves.moved_part(&mapped)? {
            self.follow(inode, &part)?;
            return Ok(Some(index));
        }
        let wanted = |run: BlockRun| run.end() > limit.0 && moves.find(run).is_none();
        if shared.is_empty() {
            return self.move_away(inode, index, &wanted);
        }
        if run.start < limit {
            let at = mapped.index + (limit.0 - run.start.0);
            self.cut(inode, &mapped, at)?;
            return Ok(Some(at));
        }
        if moves.runs.len() + shared.len() > RUNS_MAX {
            moves.left_out = true;
            return Ok(Some(mapped.end()));
        }
        let Some(next) = self.move_away(inode, index, &wanted)? else { return Ok(None) };
        // The new extents of the part that moved: a few at most.
        let reader = self.engine.reader()?;
        let mut found = extent_map::overlap(&reader, &parameters, inode, index, next)?;
        while let Some(new) = found {
            let part = new.clip(index, next)?;
            let old = run.start.0 + (part.index - index);
            for one in &shared {
                let (start, end) =
                    (one.start.max(old), one.end.min(old + u64::from(part.extent.length)));
                if start < end {
                    let to = part.extent.address.0 + (start - old);
                    moves.runs.insert(start, Moved { end, to, birth: part.extent.birth });
                }
            }
            found = extent_map::starting(&reader, &parameters, inode, part.end(), next)?;
        }
        Ok(Some(next))
    }

    /// Replaces the blocks of a file in this range with these.
    fn follow(&self, inode: InodeNumber, part: &Mapped) -> Result<()> {
        let parameters = self.parameters();
        let _guard = self.inode_lock(inode);
        self.update(SpaceClass::Freeing, |tx| {
            let mut attributes = Inode::load_regular(tx, inode)?;
            let file = (inode, &mut attributes);
            extent_map::clear(tx, &parameters, file, part.index, part.end(), 2)?;
            extent_map::insert(tx, &parameters, (inode, &mut attributes), part, true)?;
            attributes.store(tx, inode)
        })
    }

    /// Cuts one extent in two, the second from index `at` of the file on.
    fn cut(&self, inode: InodeNumber, whole: &Mapped, at: u64) -> Result<()> {
        let _guard = self.inode_lock(inode);
        let (front, back) = (whole.clip(whole.index, at)?, whole.clip(at, whole.end())?);
        self.update(SpaceClass::Freeing, |tx| {
            tx.put(Key::extent(inode, front.index), front.extent.encode()?)?;
            tx.put(Key::extent(inode, back.index), back.extent.encode()?)
        })
    }
}
