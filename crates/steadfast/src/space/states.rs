//! What marks, replays and checkpoints mean for free space.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::{Space, group, overlaps_any, read_group};
use crate::key::Key;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::{Root, Store};
use crate::types::{BlockAddress, BlockRun};

impl Space {
    /// A log mark is about to name everything published so far: none of it is fresh any more.
    pub fn mark(&mut self) {
        self.fresh.clear();
    }

    /// Blocks that an intent log names must not be taken for anything else while it is replayed.
    pub fn reserve_for_replay(&mut self, run: BlockRun) {
        self.reserved.insert(run.start.0, run.end());
        self.mark_busy(run, true);
    }

    /// The log is replayed: what was kept for it and is not part of the state is free, and so are node addresses that
    /// were set aside.
    pub fn end_replay(&mut self) {
        self.reserved.clear();
        // What was kept may be part of a state all the same (an extent that was split or joined names blocks that the
        // durable state uses), so the bitmaps say what is free, not the list.
        let indexes: Vec<u64> = self.groups.keys().copied().collect();
        for index in indexes {
            let Some(mut group) = self.groups.remove(&index) else { continue };
            group.busy = self.busy(index, &group.used, &group.base);
            self.groups.insert(index, group);
        }
        self.full.fill(0);
        self.fresh.clear();
    }

    /// Groups whose bitmap has to be put into the tree.
    pub fn dirty_group_indexes(&self) -> Vec<u64> {
        let mut indexes: Vec<u64> =
            self.groups.iter().filter(|(_, group)| group.dirty).map(|(index, _)| *index).collect();
        indexes.sort_unstable();
        indexes
    }

    /// Keys and values of the changed groups (`None`: remove the key), which count as unchanged from now on.
    ///
    /// Putting them into the tree changes groups again, but each round copies only nodes that no earlier round has copied,
    /// so that this ends.
    pub fn take_dirty_groups(&mut self) -> Vec<(Key, Option<Vec<u8>>)> {
        let mut taken = Vec::new();
        for index in self.dirty_group_indexes() {
            let allocatable = self.allocatable(index);
            let spelled_out = self.spelled_out == Some(index);
            if let Some(group) = self.groups.get_mut(&index) {
                group.dirty = false;
                let value = match spelled_out {
                    true => group::encode_bitmap(&group.used),
                    false => group::encode(&group.used, &allocatable),
                };
                taken.push((Key::group(index), value));
            }
        }
        self.dirty = 0;
        if planted(Sabotage::ForgetBitmap) { Vec::new() } else { taken }
    }

    /// The working state becomes the frozen one: its blocks may not be reused before the checkpoint after this one.
    pub fn freeze(&mut self) {
        for group in self.groups.values_mut() {
            group.base.merge(&group.used);
        }
        self.held_frozen = core::mem::take(&mut self.held);
        self.almost_frozen = self.almost;
        self.freed_in_frozen.append(&mut self.freed_in);
        self.fresh.clear();
    }

    /// The frozen state has become the durable one: what was freed before the freeze can be reused.
    ///
    /// A bitmap that cannot be read fails nothing: it is read again when it is needed, and where the group has to stay in
    /// memory what was freed in it waits for the next checkpoint.
    pub fn thaw<M: Medium, P: Platform>(&mut self, store: &Store<M, P>, durable: &Root, pinned: &[BlockRun]) {
        self.held_frozen.clear();
        self.almost = self.almost.saturating_sub(self.almost_frozen);
        self.almost_frozen = 0;
        // A reader may still be using blocks that were freed under it: those wait for the next checkpoint.
        let freed_pinned = core::mem::take(&mut self.freed_pinned);
        for (from, to) in freed_pinned.iter() {
            let part = BlockRun { start: BlockAddress(from), count: to - from };
            if overlaps_any(part, pinned) {
                let already: u64 = self.held.overlaps(from, to).iter().map(|(from, to)| to - from).sum();
                self.almost += part.count - already;
                self.held.insert(from, to);
                self.freed_pinned.insert(from, to);
                self.freed_in.extend(self.parts(part).map(|(index, ..)| index));
            }
        }
        let indexes: Vec<u64> = self.groups.keys().copied().collect();
        for index in indexes {
            let base = read_group(store, durable, index, &self.allocatable(index));
            let Some(mut group) = self.groups.remove(&index) else { continue };
            match base {
                Ok(base) => group.base = base,
                Err(_) if !group.dirty => continue,
                // It holds the blocks of the frozen state and of the one before: more than needed, never less.
                Err(_) => {}
            }
            group.busy = self.busy(index, &group.used, &group.base);
            self.groups.insert(index, group);
        }
        for index in core::mem::take(&mut self.freed_in_frozen) {
            self.set_full(index, false);
        }
    }
}
