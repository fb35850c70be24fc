//! Blocks that enter and leave the working state.
//!
//! None of these changes can fail: bitmaps are in memory, and so is room for the ranges to remember
//! ([`Space::reserve_notes`]).

use crate::error::Result;
use crate::format::NodePointer;
use crate::sabotage::{Sabotage, planted};
use crate::space::Space;
use crate::types::{BlockAddress, BlockRun};

/// Limit of the ranges of fresh blocks that are remembered; further blocks wait for a checkpoint
/// like others.
const FRESH_RANGES_MAX: usize = 4096;

impl Space {
    /// Makes room for the ranges of runs that are about to be published or freed, so that those
    /// calls need no memory.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve_notes(&mut self, runs: &[BlockRun]) -> Result<()> {
        self.unpublished.reserve(runs.len())?;
        self.fresh.reserve(runs.len())?;
        // Between the fresh parts of a run there is one more part that is not fresh.
        let parts: usize = runs
            .iter()
            .map(|run| 2 * self.fresh.overlaps(run.start.0, run.end()).count() + 1)
            .sum();
        self.freed_pinned.reserve(parts)?;
        // A range that a reader has pinned until then is logged once more when a checkpoint is
        // done.
        self.logged.reserve(self.freed_pinned.len() + 2 * parts)
    }

    /// Unpublished blocks become part of the working state. Their groups are in memory.
    pub fn publish(&mut self, run: BlockRun, data: bool) {
        self.unpublished.remove(run.start.0, run.end());
        for (index, from, to) in self.parts(run) {
            if let Some(group) = self.groups.get_mut(&index) {
                self.used += group.used.set(from, to, true);
                group.busy.set(from, to, true);
                self.dirty += usize::from(!core::mem::replace(&mut group.dirty, true));
            }
        }
        if data
            && (self.fresh.len() < FRESH_RANGES_MAX
                || self.fresh.intersects(run.start.0 - 1, run.end() + 1))
        {
            self.fresh.insert(run.start.0, run.end());
        }
    }

    /// Data blocks leave the working state. Their groups are in memory; `pinned` are the runs that
    /// readers are using.
    pub fn free_data(&mut self, run: BlockRun, pinned: &[BlockRun]) {
        self.clear_used(run);
        let mut at = run.start.0;
        while let Some((from, to)) = self.fresh.take(at, run.end()) {
            self.free_later(at, from, pinned);
            let part = BlockRun { start: BlockAddress(from), count: to - from };
            match overlaps_any(part, pinned) {
                true => self.free_later(from, to, pinned),
                false => self.mark_busy(part, false),
            }
            at = to;
        }
        self.free_later(at, run.end(), pinned);
    }

    /// Whether a block of a run that the working state uses is in no other state. Its groups are in
    /// memory.
    pub fn is_free_otherwise(&self, run: BlockRun) -> bool {
        self.parts(run).any(|(index, from, to)| {
            self.groups.get(&index).is_some_and(|group| group.base.zeros_in(from, to).is_some())
        })
    }

    /// As [`free_data`](Self::free_data), for blocks of a deleted snapshot that no log record
    /// names: those in no other state can be used at once.
    pub fn free_dead(&mut self, run: BlockRun, pinned: &[BlockRun]) {
        if overlaps_any(run, pinned) {
            return self.free_data(run, pinned);
        }
        self.clear_used(run);
        for (index, from, to) in self.parts(run) {
            let start = index * self.group_blocks;
            let mut at = from;
            while at < to {
                let zeros = self.groups.get(&index).and_then(|group| group.base.zeros_in(at, to));
                let (low, high) = zeros.unwrap_or((to, to));
                // The bitmap of that other state holds these.
                self.almost += low - at;
                let part = BlockRun { start: BlockAddress(start + low), count: high - low };
                self.mark_busy(part, false);
                at = high;
            }
        }
        self.note_freed(run);
    }

    /// `start..end` can be reused after the next checkpoint.
    fn free_later(&mut self, start: u64, end: u64, pinned: &[BlockRun]) {
        if start >= end {
            return;
        }
        let part = BlockRun { start: BlockAddress(start), count: end - start };
        self.almost += part.count;
        self.keep_logged(part);
        if planted(Sabotage::ReuseFreedBlocks) {
            self.mark_busy(part, false);
        }
        if overlaps_any(part, pinned) {
            self.freed_pinned.insert(start, end);
        }
        self.note_freed(part);
    }

    /// Keeps those blocks of a freed run busy that no bitmap holds, because the log may name them.
    /// If memory is short, it keeps the whole run. That is safe: bitmaps hold the other blocks as
    /// long.
    fn keep_logged(&mut self, run: BlockRun) {
        let zeros = |space: &Space, index: u64, at: u64, to: u64| {
            space.groups.get(&index)?.base.zeros_in(at, to)
        };
        // There is always room for one range.
        let mut first = true;
        for (index, from, to) in self.parts(run) {
            let start = index * self.group_blocks;
            let mut at = from;
            while let Some((low, high)) = zeros(self, index, at, to) {
                if !core::mem::take(&mut first) && self.logged.reserve(1).is_err() {
                    return self.logged.insert(start + low, run.end());
                }
                self.logged.insert(start + low, start + high);
                at = high;
            }
        }
    }

    /// A node leaves the working state. `reusable`: it belonged to no other state. Its groups are
    /// in memory.
    pub fn free_node(&mut self, pointer: &NodePointer, reusable: bool) {
        for address in pointer.copies() {
            let run = BlockRun { start: address, count: self.node_blocks };
            self.clear_used(run);
            if reusable {
                self.mark_busy(run, false);
            } else {
                self.almost += run.count;
                self.note_freed(run);
            }
        }
    }

    /// Notes that blocks were freed in the groups of a run.
    pub(super) fn note_freed(&mut self, run: BlockRun) {
        for (index, ..) in self.parts(run) {
            if let Some(word) = self.freed_in.get_mut((index / 64) as usize) {
                *word |= 1 << (index % 64);
            }
        }
    }

    fn clear_used(&mut self, run: BlockRun) {
        for (index, from, to) in self.parts(run) {
            if let Some(group) = self.groups.get_mut(&index) {
                // A damaged image may count fewer used blocks than its bitmaps have.
                let cleared = group.used.set(from, to, false);
                self.used = self.used.saturating_sub(cleared);
                if self.beyond > 0 && index * self.group_blocks + to > self.limit {
                    let below =
                        self.limit.saturating_sub(index * self.group_blocks + from).min(cleared);
                    self.beyond = self.beyond.saturating_sub(cleared - below);
                }
                self.dirty += usize::from(!core::mem::replace(&mut group.dirty, true));
            }
        }
    }
}

pub(super) fn overlaps_any(run: BlockRun, others: &[BlockRun]) -> bool {
    !planted(Sabotage::ReusePinned)
        && others.iter().any(|other| other.start.0 < run.end() && run.start.0 < other.end())
}
