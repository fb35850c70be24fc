//! Free space.
//!
//! A block is free when no state that may still be needed uses it. Those states are the durable one (newest metaroot),
//! the one that a checkpoint is writing (frozen), and the working one. Each has its own bitmaps, in its own tree, so
//! nothing has to be remembered about blocks that become reusable at the next checkpoint: they are used in the durable
//! state and not in the working one ("almost free"). Beside that a block is busy while it is
//! - *reserved*: handed out, not yet part of any state;
//! - *held*: freed since the last freeze after a log mark may have named it, so a replay of the log may need it;
//! - *pinned* by a reader when it was freed.
//!
//! A block that was allocated and freed between two marks (*fresh*) is free again at once.
//!
//! Bitmaps are loaded a group at a time; what is known of full groups is one bit each. Nothing here is a scan in the
//! foreground: the search goes on from where it stopped, past groups that are known to be full.

mod group;
mod ranges;

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::layout::Superblock;
use crate::platform::Platform;
use crate::tree::{NodePointer, Root, Store};
use crate::types::{BlockAddress, BlockRun};
pub use group::Bitmap;
use group::Group;
pub use group::decode as decode_group;
pub use ranges::RangeSet;

/// Ranges of fresh blocks that are remembered; blocks beyond them wait for a checkpoint like others.
const FRESH_RANGES_MAX: usize = 4096;
/// Groups that are looked at for a run of the wished length before a shorter one is taken.
const GROUPS_FOR_LENGTH: usize = 8;
/// A run of this length is good enough at once.
const RUN_GOOD: u64 = 32;
/// Groups for which "known to be full" is remembered.
const FULL_HINTS_MAX: u64 = 1 << 23;

/// The trees whose blocks must not be reused.
#[derive(Debug, Clone, Copy)]
pub struct Roots {
    /// The state that operations see.
    pub working: Root,
    /// The state that a checkpoint is writing.
    pub frozen: Option<Root>,
    /// The state of the newest metaroot.
    pub durable: Root,
}

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Data,
    Node,
}

/// See the module.
pub struct Space {
    group_blocks: u64,
    first: u64,
    end: u64,
    /// Data stays below: where a node has several blocks, fragments of data must not use up the last runs.
    data_end: u64,
    node_blocks: u64,
    copies: u8,
    groups: HashMap<u64, Group>,
    groups_max: usize,
    full: Vec<u64>,
    data_cursor: u64,
    node_cursor: u64,
    used: u64,
    almost: u64,
    almost_frozen: u64,
    reserved: RangeSet,
    fresh: RangeSet,
    held: RangeSet,
    held_frozen: RangeSet,
    freed_pinned: RangeSet,
    /// Groups in which something was freed since the freeze, and before it.
    freed_in: BTreeSet<u64>,
    freed_in_frozen: BTreeSet<u64>,
    dirty: usize,
}

impl Space {
    /// Space of a volume whose working state uses `used` blocks.
    pub fn new(superblock: &Superblock, used: u64, cursors: (u64, u64), memory: usize) -> Space {
        let group_blocks = u64::from(superblock.group_blocks);
        let groups = superblock.blocks.div_ceil(group_blocks);
        let data_end = if superblock.node_blocks() > 1 {
            superblock.end_block() - superblock.reserve_blocks.min(superblock.usable_blocks() / 4)
        } else {
            superblock.end_block()
        };
        Space {
            group_blocks,
            first: superblock.first_block(),
            end: superblock.end_block(),
            data_end,
            node_blocks: superblock.node_blocks(),
            copies: superblock.metadata_copies,
            groups: HashMap::new(),
            groups_max: (memory / (3 * group_blocks as usize / 8 + 64)).max(4),
            full: vec![0; groups.min(FULL_HINTS_MAX).div_ceil(64) as usize],
            data_cursor: cursors.0,
            node_cursor: cursors.1,
            used,
            almost: 0,
            almost_frozen: 0,
            reserved: RangeSet::default(),
            fresh: RangeSet::default(),
            held: RangeSet::default(),
            held_frozen: RangeSet::default(),
            freed_pinned: RangeSet::default(),
            freed_in: BTreeSet::new(),
            freed_in_frozen: BTreeSet::new(),
            dirty: 0,
        }
    }

    /// Blocks used by the working state.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Freed blocks that become reusable at the next durable checkpoint.
    pub fn almost_free(&self) -> u64 {
        self.almost
    }

    /// Blocks that can be allocated now.
    pub fn available(&self) -> u64 {
        (self.end - self.first).saturating_sub(self.used + self.almost + self.reserved.total())
    }

    /// Blocks of data that can be allocated now, at most.
    pub fn available_for_data(&self) -> u64 {
        self.available().saturating_sub(self.end - self.data_end)
    }

    /// Where the next data and node allocations begin to look.
    pub fn cursors(&self) -> (u64, u64) {
        (self.data_cursor, self.node_cursor)
    }

    /// Groups whose bitmap has changed since it was last put into the tree.
    pub fn dirty_groups(&self) -> usize {
        self.dirty
    }

    /// Groups of the volume.
    pub fn groups(&self) -> u64 {
        self.end.div_ceil(self.group_blocks).max(1)
    }

    /// Groups of these runs whose bitmap has not changed since it was last put into the tree.
    pub fn clean_groups(&self, runs: &[BlockRun]) -> u64 {
        let mut indexes: Vec<u64> = runs.iter().flat_map(|run| self.parts(*run)).map(|part| part.0).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let dirty = |index: &u64| self.groups.get(index).is_some_and(|group| group.dirty);
        indexes.iter().filter(|index| !dirty(index)).count() as u64
    }

    fn allocatable(&self, index: u64) -> Bitmap {
        let start = index * self.group_blocks;
        let clamp = |block: u64| block.clamp(start, start + self.group_blocks) - start;
        let mut bitmap = Bitmap::new(self.group_blocks);
        bitmap.set(clamp(self.first), clamp(self.end), true);
        bitmap
    }

    /// Reads the bitmaps of a group unless they are in memory.
    fn load<M: Medium, P: Platform>(&mut self, store: &Store<M, P>, roots: &Roots, index: u64) -> Result<()> {
        if self.groups.contains_key(&index) {
            return Ok(());
        }
        self.evict();
        let allocatable = self.allocatable(index);
        let used = read_group(store, &roots.working, index, &allocatable)?;
        let mut base = read_group(store, &roots.durable, index, &allocatable)?;
        if let Some(frozen) = &roots.frozen {
            base.merge(&read_group(store, frozen, index, &allocatable)?);
        }
        let busy = self.busy(index, &used, &base);
        self.groups.insert(index, Group { used, base, busy, dirty: false });
        Ok(())
    }

    /// Everything that must not be allocated in a group.
    fn busy(&self, index: u64, used: &Bitmap, base: &Bitmap) -> Bitmap {
        let start = index * self.group_blocks;
        let end = start + self.group_blocks;
        let mut busy = used.clone();
        busy.merge(base);
        busy.set(0, self.first.clamp(start, end) - start, true);
        busy.set(self.end.clamp(start, end) - start, self.group_blocks, true);
        for set in [&self.reserved, &self.held, &self.held_frozen] {
            for (from, to) in set.overlaps(start, end) {
                busy.set(from - start, to - start, true);
            }
        }
        busy
    }

    /// Forgets clean groups while there are too many.
    fn evict(&mut self) {
        if self.groups.len() >= self.groups_max {
            let clean: Vec<u64> =
                self.groups.iter().filter(|(_, group)| !group.dirty).map(|(index, _)| *index).collect();
            let surplus = self.groups.len() + 1 - self.groups_max * 3 / 4;
            for index in clean.into_iter().take(surplus) {
                self.groups.remove(&index);
            }
        }
    }

    /// Whether so many groups have changed that they should be put into the tree to free memory.
    pub fn wants_flush(&self) -> bool {
        self.groups.len() > self.groups_max && self.dirty_groups() > self.groups_max / 2
    }

    /// Reserves a run of up to `want` blocks for data, near `goal`.
    pub fn reserve_data<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        want: u64,
        goal: Option<BlockAddress>,
    ) -> Result<BlockRun> {
        let from = goal.map_or(self.data_cursor, |goal| goal.0);
        let run = self.allocate(store, roots, Purpose::Data, want, from)?;
        self.data_cursor = run.end();
        Ok(run)
    }

    /// Reserves the blocks of all copies of a new node, the copies far apart.
    pub fn reserve_node<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
    ) -> Result<[BlockAddress; 2]> {
        let first = self.allocate(store, roots, Purpose::Node, self.node_blocks, self.node_cursor)?;
        self.node_cursor = first.end();
        let mut addresses = [first.start, BlockAddress::NONE];
        if self.copies > 1 {
            let span = self.end - self.first;
            let opposite = self.first + (first.start.0 - self.first + span / 2) % span;
            match self.allocate(store, roots, Purpose::Node, self.node_blocks, opposite) {
                Ok(second) => addresses[1] = second.start,
                Err(error) => {
                    self.release(first);
                    return Err(error);
                }
            }
        }
        Ok(addresses)
    }

    fn allocate<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        purpose: Purpose,
        want: u64,
        from: u64,
    ) -> Result<BlockRun> {
        let end = if purpose == Purpose::Data { self.data_end } else { self.end };
        if end <= self.first {
            return Err(Error::NoSpace);
        }
        let from = if (self.first..end).contains(&from) { from } else { self.first };
        let groups = end.div_ceil(self.group_blocks);
        let first_group = from / self.group_blocks;
        let mut best = BlockRun::default();
        let mut looked = 0;
        // The first group comes again at the end, for what lies before `from`.
        let mut step = 0;
        while step <= groups {
            let index = (first_group + step) % groups;
            if self.known_full(index) {
                step += self.full_groups_from(index, groups - index.min(groups - 1)).max(1);
                continue;
            }
            self.load(store, roots, index)?;
            let start = index * self.group_blocks;
            let mut at = if step == 0 { from - start } else { 0 };
            let Some(group) = self.groups.get(&index) else { return Err(Error::NoSpace) };
            while let Some((low, high)) = group.busy.zeros(at) {
                at = high;
                let count = high.min(end.saturating_sub(start)).saturating_sub(low).min(want);
                if count > best.count {
                    best = BlockRun { start: BlockAddress(start + low), count };
                }
                if count == want {
                    break;
                }
            }
            if group.is_full() {
                self.set_full(index, true);
            }
            looked += 1;
            let enough = match purpose {
                Purpose::Node => best.count == want,
                Purpose::Data => {
                    best.count >= want.min(RUN_GOOD) || (best.count > 0 && looked >= GROUPS_FOR_LENGTH)
                }
            };
            if enough {
                break;
            }
            step += 1;
        }
        if best.count == 0 || (purpose == Purpose::Node && best.count < want) {
            return Err(Error::NoSpace);
        }
        // The group of the best run may have been forgotten meanwhile; nothing in it has changed.
        self.load(store, roots, best.start.0 / self.group_blocks)?;
        self.mark_busy(best, true);
        self.reserved.insert(best.start.0, best.end());
        Ok(best)
    }

    fn known_full(&self, index: u64) -> bool {
        self.full.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// How many groups from `index` on, at most `limit`, are known to be full.
    fn full_groups_from(&self, index: u64, limit: u64) -> u64 {
        let mut count = 0;
        while count < limit && self.known_full(index + count) {
            let at = index + count;
            let whole_word = at.is_multiple_of(64) && self.full.get((at / 64) as usize) == Some(&u64::MAX);
            count += if whole_word { 64 } else { 1 };
        }
        count.min(limit)
    }

    fn set_full(&mut self, index: u64, full: bool) {
        if let Some(word) = self.full.get_mut((index / 64) as usize) {
            let bit = 1 << (index % 64);
            *word = if full { *word | bit } else { *word & !bit };
        }
    }

    /// The groups that a run touches, with the part of the run in each (relative to the group).
    fn parts(&self, run: BlockRun) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
        let size = self.group_blocks;
        let (start, end) = (run.start.0, run.end());
        (start / size..end.div_ceil(size)).map(move |index| {
            let base = index * size;
            (index, start.max(base) - base, end.min(base + size) - base)
        })
    }

    fn mark_busy(&mut self, run: BlockRun, busy: bool) {
        for (index, from, to) in self.parts(run) {
            if let Some(group) = self.groups.get_mut(&index) {
                group.busy.set(from, to, busy);
            }
            if !busy {
                self.set_full(index, false);
            }
        }
    }

    /// Gives back reserved blocks.
    pub fn release(&mut self, run: BlockRun) {
        for (from, to) in self.reserved.remove(run.start.0, run.end()) {
            self.mark_busy(BlockRun { start: BlockAddress(from), count: to - from }, false);
        }
    }

    /// Loads the groups of runs that are about to be published or freed, so that those calls cannot fail.
    pub fn prepare<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        runs: &[BlockRun],
    ) -> Result<()> {
        let indexes: BTreeSet<u64> =
            runs.iter().flat_map(|run| self.parts(*run)).map(|part| part.0).collect();
        // Loading may evict clean groups, so those that are already here go last and are loaded again if need be.
        for _ in 0..2 {
            for index in &indexes {
                self.load_keeping(store, roots, *index, &indexes)?;
            }
        }
        Ok(())
    }

    fn load_keeping<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        index: u64,
        keep: &BTreeSet<u64>,
    ) -> Result<()> {
        if self.groups.contains_key(&index) {
            return Ok(());
        }
        let max = core::mem::replace(&mut self.groups_max, usize::MAX);
        let loaded = self.load(store, roots, index);
        self.groups_max = max;
        let surplus = self.groups.len().saturating_sub(max.max(keep.len() + 1));
        let idle: Vec<u64> = self
            .groups
            .iter()
            .filter(|(index, group)| !group.dirty && !keep.contains(*index))
            .map(|(index, _)| *index)
            .take(surplus)
            .collect();
        for index in idle {
            self.groups.remove(&index);
        }
        loaded
    }

    /// Reserved blocks become part of the working state. Their groups are loaded.
    pub fn publish(&mut self, run: BlockRun, data: bool) {
        self.reserved.remove(run.start.0, run.end());
        for (index, from, to) in self.parts(run) {
            if let Some(group) = self.groups.get_mut(&index) {
                self.used += group.used.set(from, to, true);
                group.busy.set(from, to, true);
                self.dirty += usize::from(!core::mem::replace(&mut group.dirty, true));
            }
        }
        if data
            && (self.fresh.len() < FRESH_RANGES_MAX || self.fresh.intersects(run.start.0 - 1, run.end() + 1))
        {
            self.fresh.insert(run.start.0, run.end());
        }
    }

    /// Blocks of data leave the working state. Their groups are loaded; `pinned` are the runs that readers are using.
    pub fn free_data(&mut self, run: BlockRun, pinned: &[BlockRun]) {
        self.clear_used(run);
        let mut waiting = RangeSet::default();
        waiting.insert(run.start.0, run.end());
        for (from, to) in self.fresh.remove(run.start.0, run.end()) {
            let part = BlockRun { start: BlockAddress(from), count: to - from };
            if !overlaps_any(part, pinned) {
                waiting.remove(from, to);
                self.mark_busy(part, false);
            }
        }
        for (from, to) in waiting.iter() {
            let part = BlockRun { start: BlockAddress(from), count: to - from };
            self.almost += part.count;
            self.hold(part);
            if overlaps_any(part, pinned) {
                self.freed_pinned.insert(from, to);
            }
            self.freed_in.extend(self.parts(part).map(|(index, ..)| index));
        }
    }

    /// Keeps those blocks of a freed run that no bitmap keeps: the log may name them.
    fn hold(&mut self, run: BlockRun) {
        for (index, from, to) in self.parts(run) {
            let Some(group) = self.groups.get(&index) else { continue };
            let mut at = from;
            while let Some((low, high)) = group.base.zeros(at).filter(|(low, _)| *low < to) {
                let start = index * self.group_blocks;
                self.held.insert(start + low, start + high.min(to));
                at = high;
            }
        }
    }

    /// A node leaves the working state. `reusable`: it belonged to no other state. Its groups are loaded.
    pub fn free_node(&mut self, pointer: &NodePointer, reusable: bool) {
        for address in pointer.copies() {
            let run = BlockRun { start: address, count: self.node_blocks };
            self.clear_used(run);
            if reusable {
                self.mark_busy(run, false);
            } else {
                self.almost += run.count;
                self.freed_in.extend(self.parts(run).map(|(index, ..)| index));
            }
        }
    }

    fn clear_used(&mut self, run: BlockRun) {
        for (index, from, to) in self.parts(run) {
            if let Some(group) = self.groups.get_mut(&index) {
                // What an image counts as used may be less than its bitmaps say.
                self.used = self.used.saturating_sub(group.used.set(from, to, false));
                self.dirty += usize::from(!core::mem::replace(&mut group.dirty, true));
            }
        }
    }

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
            if let Some(group) = self.groups.get_mut(&index) {
                group.dirty = false;
                taken.push((Key::group(index), group::encode(&group.used, &allocatable)));
            }
        }
        self.dirty = 0;
        taken
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
    pub fn thaw<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        durable: &Root,
        pinned: &[BlockRun],
    ) -> Result<()> {
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
            let base = read_group(store, durable, index, &self.allocatable(index))?;
            let Some(mut group) = self.groups.remove(&index) else { continue };
            group.busy = self.busy(index, &group.used, &base);
            group.base = base;
            self.groups.insert(index, group);
        }
        for index in core::mem::take(&mut self.freed_in_frozen) {
            self.set_full(index, false);
        }
        Ok(())
    }
}

fn overlaps_any(run: BlockRun, others: &[BlockRun]) -> bool {
    others.iter().any(|other| other.start.0 < run.end() && run.start.0 < other.end())
}

fn read_group<M: Medium, P: Platform>(
    store: &Store<M, P>,
    root: &Root,
    index: u64,
    allocatable: &Bitmap,
) -> Result<Bitmap> {
    let corrupt = |reason| Error::CorruptMetadata { address: root.pointer.addresses[0], reason };
    let decoded = store.get_with(root, &Key::group(index), |value| decode_group(Some(value), allocatable))?;
    decoded.unwrap_or_else(|| decode_group(None, allocatable)).map_err(corrupt)
}
