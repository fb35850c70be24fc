//! Effects of commit records, replays and checkpoints on free space.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::Root;
use crate::format::key::Key;
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::sort::sort;
use crate::space::used_blocks::overlaps_any;
use crate::space::{RangeSet, Space, allocation_group, read_group};
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun};

impl Space {
    /// A commit record is about to name everything published so far, so nothing is fresh any more.
    pub fn note_sealed(&mut self) {
        self.fresh.clear();
    }

    /// Blocks that an intent log names must not be reused while it is replayed.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn keep_for_replay(&mut self, runs: &RangeSet) -> Result<()> {
        if planted(Sabotage::ReplayOverLog) {
            return Ok(());
        }
        self.unpublished.reserve_exact(runs.len())?;
        for (start, end) in runs.iter() {
            self.unpublished.insert(start, end);
            self.mark_busy(BlockRun { start: BlockAddress(start), count: end - start }, true);
        }
        Ok(())
    }

    /// The log is replayed. Blocks that were kept for it and are not part of the state are
    /// free, and so are node addresses that were set aside.
    pub fn end_replay(&mut self) {
        self.unpublished.clear();
        // A kept block may still be part of a state: a split or joined extent names blocks that
        // the checkpointed state uses. So the bitmaps decide what is free, not the list.
        self.fill_busy_all();
        self.full.fill(0);
        self.fresh.clear();
    }

    /// Groups whose bitmap must be put into the tree.
    pub fn dirty_group_indexes(&self) -> Result<Vec<u64>> {
        let dirty = self.groups.iter().filter(|(_, group)| group.dirty);
        let mut indexes = memory::collect(dirty.map(|(index, _)| *index))?;
        sort(&mut indexes);
        Ok(indexes)
    }

    /// Keys and values of the changed groups (`None`: remove the key). The groups count as
    /// unchanged from now on.
    ///
    /// Putting them into the tree changes groups again. Each round copies only nodes that no
    /// earlier round has copied, so this ends.
    ///
    /// # Errors
    /// `OutOfMemory`; all of them still count as changed then.
    pub fn take_dirty_groups(&mut self) -> Result<Vec<(Key, Option<Vec<u8>>)>> {
        let indexes = self.dirty_group_indexes()?;
        let mut taken = Vec::new();
        for index in &indexes {
            let allocatable = self.allocatable(*index)?;
            if let Some(group) = self.groups.get(index) {
                let value = match self.spelled_out == Some(*index) {
                    true => allocation_group::encode_bitmap(&group.used),
                    false => allocation_group::encode(&group.used, &allocatable),
                };
                memory::push(&mut taken, (Key::group(*index), value?))?;
            }
        }
        for group in self.groups.values_mut() {
            group.dirty = false;
        }
        self.dirty = 0;
        if planted(Sabotage::ForgetBitmap) { Ok(Vec::new()) } else { Ok(taken) }
    }

    /// Makes room for the ranges of [`freeze`](Self::freeze) and of the
    /// [`release_checkpointed`](Self::release_checkpointed) after it.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve_freeze(&mut self) -> Result<()> {
        // The two lists are swapped.
        self.logged_frozen.reserve(self.freed_pinned.len())
    }

    /// The working state becomes the frozen one: its blocks may not be reused before the checkpoint
    /// after this one.
    pub fn freeze(&mut self) {
        for group in self.groups.values_mut() {
            group.base.merge(&group.used);
        }
        debug_assert!(self.logged_frozen.len() == 0);
        core::mem::swap(&mut self.logged_frozen, &mut self.logged);
        self.almost_frozen = self.almost;
        for (frozen, freed) in self.freed_in_frozen.iter_mut().zip(&mut self.freed_in) {
            *frozen |= core::mem::take(freed);
        }
        self.fresh.clear();
    }

    /// The frozen state has become the checkpointed one: blocks freed before the freeze can be
    /// reused.
    ///
    /// An unreadable bitmap causes no failure here. It is read again when it is needed. If its
    /// group must stay in memory, the blocks freed in it wait for the next checkpoint.
    pub fn release_checkpointed<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        checkpointed: &Root,
        pinned: &[BlockRun],
    ) {
        self.logged_frozen.clear();
        self.almost = self.almost.saturating_sub(self.almost_frozen);
        self.almost_frozen = 0;
        // A reader may still be using blocks that were freed meanwhile: those wait for the next
        // checkpoint.
        let mut freed_pinned = core::mem::take(&mut self.freed_pinned);
        freed_pinned.retain(|from, to| {
            let part = BlockRun { start: BlockAddress(from), count: to - from };
            let waits = overlaps_any(part, pinned);
            if waits {
                let already: u64 = self.logged.overlaps(from, to).map(|(from, to)| to - from).sum();
                self.almost += part.count - already;
                self.logged.insert(from, to);
                self.note_freed(part);
            }
            waits
        });
        self.freed_pinned = freed_pinned;
        let mut groups = core::mem::take(&mut self.groups);
        groups.retain(|index, group| {
            let base = self
                .allocatable(*index)
                .and_then(|allocatable| read_group(store, checkpointed, *index, &allocatable));
            match base {
                Ok(base) => group.base = base,
                Err(_) if !group.dirty => return false,
                // It holds the blocks of the frozen state and of the previous one: more than
                // needed, never less.
                Err(_) => {}
            }
            // Without memory for the copy nothing is discarded; a discard is advice.
            let before =
                store.device.medium.wants_discards().then(|| group.busy.copy().ok()).flatten();
            self.fill_busy(*index, group);
            if let Some(mut freed) = before {
                // From here on they may be overwritten at any time, so a discard loses nothing
                // more.
                freed.subtract(&group.busy);
                let start = *index * self.group_blocks;
                let mut at = 0;
                while let Some((from, to)) = freed.ones(at) {
                    self.discards.add(start + from, start + to);
                    at = to;
                }
            }
            true
        });
        self.groups = groups;
        for (full, freed) in self.full.iter_mut().zip(&mut self.freed_in_frozen) {
            *full &= !core::mem::take(freed);
        }
    }
}
