//! Making a range of a file read as zeros in one batch: all of it or, without space, nothing.

use alloc::vec::Vec;
use core::ops::Range;

use steadfast_media::Medium;

use crate::engine::keyspace::{EXTENT_CHANGES_MAX, SpaceClass};
use crate::error::Result;
use crate::format::extent::{Checksums, EXTENT_UNWRITTEN_BLOCKS_MAX};
use crate::format::inode::Inode;
use crate::fs::extent_map::{self, Mapped};
use crate::fs::parameters::Parameters;
use crate::fs::publish::{self, NewRun, Parts, WritePlan};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber};
use crate::volume::Volume;

/// Limit of the old extents that one batch replaces.
const OLD_EXTENTS_MAX: usize = 48;

/// What the whole blocks of a zeroed range become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// A hole.
    Hole,
    /// Allocated, unwritten.
    Unwritten,
}

/// A block that is zeroed only in part.
struct Edge {
    index: u64,
    zeroed: Range<usize>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes the bytes `offset..end` of a file without inline data read as zeros, and makes the
    /// file at least `size` bytes long. `false`: the range is in too many pieces for one batch, and
    /// nothing was done. The caller holds the inode's data lock.
    ///
    /// # Errors
    /// `NoSpace`, `CorruptData` (of a block that keeps a part), `Medium`; nothing has changed then.
    pub(crate) fn zero_at_once(
        &self,
        inode: InodeNumber,
        offset: u64,
        end: u64,
        whole: Whole,
        size: u64,
    ) -> Result<bool> {
        let parameters = self.parameters();
        let block = parameters.block();
        let old_size = Inode::load_regular(&self.engine.reader()?, inode)?.size;
        // Nothing past the end of the file must be kept, so a range that reaches the end takes
        // the whole last block.
        let reaches = end + u64::from(planted(Sabotage::HoleTakesLastByte)) >= old_size;
        let end = if reaches { end.next_multiple_of(block) } else { end };
        let (mut from, mut to) = (parameters.block_of(offset), parameters.blocks_for(end));
        let mut edges = Vec::new();
        for index in [from, to - 1] {
            let start = index * block;
            let zeroed =
                (offset.max(start) - start) as usize..(end.min(start + block) - start) as usize;
            let known = edges.last().is_some_and(|edge: &Edge| edge.index == index);
            if zeroed.len() as u64 == block || known {
                continue;
            }
            let mapped =
                extent_map::overlap(&self.engine.reader()?, &parameters, inode, index, index + 1)?;
            if mapped.is_some_and(|mapped| !mapped.extent.unwritten) {
                memory::push(&mut edges, Edge { index, zeroed })?;
            } else if whole == Whole::Hole && index == from {
                // It already reads as zeros and stays unchanged.
                from += 1;
            } else if whole == Whole::Hole && index + 1 == to {
                to -= 1;
            }
        }
        let to = to.max(from);
        let Some(old) = self.old_pieces(&parameters, inode, from, to)? else { return Ok(false) };
        let mut plan =
            WritePlan { from, end: to, parts: Parts::default(), size, may_join: true, times: true };
        let done =
            self.zero_parts(&parameters, inode, &edges, &old, whole, &mut plan).and_then(|fits| {
                let class = match plan.parts.is_empty() {
                    true => {
                        let split = old.first().and_then(|first| first.split_by(from, to));
                        self.engine.class_of_hole(split)?
                    }
                    false => SpaceClass::Normal,
                };
                if fits {
                    self.update(class, |tx| publish::publish(tx, &parameters, inode, &plan))?;
                }
                Ok(fits)
            });
        if !matches!(done, Ok(true)) {
            self.release_parts(&plan.parts);
        }
        done
    }

    /// The extents in a range; `None` if there are too many.
    fn old_pieces(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        from: u64,
        to: u64,
    ) -> Result<Option<Vec<Mapped>>> {
        let reader = self.engine.reader()?;
        let mut old = Vec::new();
        let mut found = extent_map::overlap(&reader, parameters, inode, from, to)?;
        while let Some(mapped) = found {
            if old.len() == OLD_EXTENTS_MAX {
                return Ok(None);
            }
            let next = mapped.end();
            memory::push(&mut old, mapped)?;
            found = extent_map::starting(&reader, parameters, inode, next, to)?;
        }
        Ok(Some(old))
    }

    /// Allocates blocks for all parts of the plan and writes those that keep data. `false`: there
    /// are too many. Allocated blocks are in the plan in any case.
    fn zero_parts(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        edges: &[Edge],
        old: &[Mapped],
        whole: Whole,
        plan: &mut WritePlan,
    ) -> Result<bool> {
        let room = EXTENT_CHANGES_MAX.saturating_sub(old.len() + 2);
        let mut goal = old.first().map(|mapped| mapped.extent.address);
        let mut at = plan.from;
        while at < plan.end {
            let next_edge = edges.iter().find(|edge| edge.index >= at);
            let part = match next_edge {
                Some(edge) if edge.index == at => self.zero_edge(parameters, inode, edge, goal)?,
                _ if whole == Whole::Hole => {
                    at = next_edge.map_or(plan.end, |edge| edge.index);
                    continue;
                }
                _ => self.unwritten_part(
                    at,
                    next_edge.map_or(plan.end, |edge| edge.index),
                    old,
                    goal,
                )?,
            };
            at += part.run.count;
            goal = Some(BlockAddress(part.run.end()));
            let allocated = part.in_place.is_none().then_some(part.run);
            if let Err(error) = memory::push(&mut plan.parts, part) {
                allocated.into_iter().for_each(|run| self.engine.release_blocks(run));
                return Err(error);
            }
            if plan.parts.len() > room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A new block with the old bytes of a block that is zeroed in part.
    fn zero_edge(
        &self,
        parameters: &Parameters,
        inode: InodeNumber,
        edge: &Edge,
        goal: Option<BlockAddress>,
    ) -> Result<NewRun> {
        let mut bytes = memory::zeroed(parameters.block_size as usize)?;
        self.read_data(inode, edge.index * parameters.block(), &mut bytes)?;
        if let Some(zeroed) = bytes.get_mut(edge.zeroed.clone()) {
            zeroed.fill(0);
        }
        let mut checksums = Checksums::default();
        for granule in bytes.chunks(parameters.granule as usize) {
            checksums.push(self.engine.device().crc(granule))?;
        }
        let run = self.allocate_blocks(1, 1, goal, SpaceClass::Normal)?;
        if let Err(error) = self.engine.device().write_blocks(run.start, &[&bytes]) {
            self.engine.release_blocks(run);
            return Err(error);
        }
        Ok(NewRun { index: edge.index, run, in_place: None, checksums })
    }

    /// The first unwritten blocks of `at..end`: existing or newly allocated ones.
    fn unwritten_part(
        &self,
        at: u64,
        end: u64,
        old: &[Mapped],
        goal: Option<BlockAddress>,
    ) -> Result<NewRun> {
        let next = old.iter().find(|mapped| mapped.extent.unwritten && mapped.end() > at);
        match next {
            Some(mapped) if mapped.index <= at => {
                let kept = mapped.clip(at, end)?.extent;
                Ok(NewRun {
                    index: at,
                    run: kept.run(),
                    in_place: Some(kept.birth),
                    checksums: Checksums::default(),
                })
            }
            next => {
                let end = next.map_or(end, |mapped| mapped.index.min(end));
                let want = (end - at).min(u64::from(EXTENT_UNWRITTEN_BLOCKS_MAX));
                let run = self.allocate_blocks(want, want, goal, SpaceClass::Normal)?;
                Ok(NewRun { index: at, run, in_place: None, checksums: Checksums::default() })
            }
        }
    }
}
