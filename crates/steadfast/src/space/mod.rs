//! Free space.
//!
//! A block is free if no state that may still be needed uses it. Those states are the checkpointed
//! one (newest metaroot), the one that a checkpoint is writing (frozen), and the working one. Each
//! has its own bitmaps, in its own tree. A block that is used in the checkpointed state and not in
//! the working one is *almost free*: the next checkpoint makes it free. The bitmaps tell which
//! blocks these are, so no list has them. In addition, a block is busy while it is
//! - *unpublished*: allocated, and part of no state yet;
//! - *logged*: freed since the last freeze after a commit record may have named it, so a replay of
//!   the log may need it;
//! - *pinned* by a reader when it was freed.
//!
//! A block that was allocated and freed between two commit records (*fresh*) is free again at once.
//!
//! Bitmaps are loaded one group at a time. A full group is remembered by one bit. Nothing here
//! scans in the foreground: the search continues where it stopped and skips groups that are known
//! to be full.

mod allocation_group;
mod discards;
mod first;
mod ranges;
mod resize;
mod search;
mod states;
mod survey;
mod used_blocks;

use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{Root, Superblock};
use crate::memory;
use crate::platform::Platform;
use crate::sort::sort;
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun};
use allocation_group::AllocationGroup;
pub use allocation_group::Bitmap;
pub use allocation_group::decode as decode_group;
use discards::Discards;
pub use first::first_groups;
pub use ranges::RangeSet;
pub(crate) use survey::Survey;

/// The ranges of blocks that wait to be discarded take this part of the memory for groups.
const DISCARDS_SHARE: usize = 8;
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
    pub checkpointed: Root,
}

/// See the module.
pub struct Space {
    group_blocks: u64,
    first: u64,
    end: u64,
    /// Nothing is allocated from here on. It equals `end`, unless the volume is becoming smaller.
    limit: u64,
    /// Blocks at or beyond `limit` that the working state uses.
    beyond: u64,
    /// A group that is written as a bitmap even if it is full, because the meaning of "full" is
    /// about to change.
    spelled_out: Option<u64>,
    /// Data stays below this block. If a node has several blocks, fragments of data must not use up
    /// the last runs.
    data_end: u64,
    node_blocks: u64,
    copies: u8,
    groups: HashMap<u64, AllocationGroup>,
    groups_max: usize,
    full: Vec<u64>,
    data_cursor: u64,
    node_cursor: u64,
    used: u64,
    almost: u64,
    almost_frozen: u64,
    unpublished: RangeSet,
    fresh: RangeSet,
    logged: RangeSet,
    logged_frozen: RangeSet,
    freed_pinned: RangeSet,
    /// Groups in which blocks were freed since the freeze, and before it: one bit each, as in
    /// `full`.
    freed_in: Vec<u64>,
    freed_in_frozen: Vec<u64>,
    dirty: usize,
    discards: Discards,
}

impl Space {
    /// Space of a volume whose working state uses `used` blocks.
    pub fn new(
        superblock: &Superblock,
        used: u64,
        cursors: (u64, u64),
        memory: usize,
    ) -> Result<Space> {
        let group_blocks = u64::from(superblock.group_blocks);
        let groups = superblock.blocks.div_ceil(group_blocks);
        let hints = groups.min(FULL_HINTS_MAX).div_ceil(64) as usize;
        let data_end =
            resize::data_end(superblock, superblock.first_block(), superblock.end_block());
        Ok(Space {
            group_blocks,
            first: superblock.first_block(),
            end: superblock.end_block(),
            limit: superblock.end_block(),
            beyond: 0,
            spelled_out: None,
            data_end,
            node_blocks: superblock.node_blocks(),
            copies: superblock.metadata_copies,
            groups: HashMap::new(),
            groups_max: (memory / (3 * group_blocks as usize / 8 + 64)).max(4),
            full: memory::filled(0, hints)?,
            data_cursor: cursors.0,
            node_cursor: cursors.1,
            used,
            almost: 0,
            almost_frozen: 0,
            unpublished: RangeSet::default(),
            fresh: RangeSet::default(),
            logged: RangeSet::default(),
            logged_frozen: RangeSet::default(),
            freed_pinned: RangeSet::default(),
            freed_in: memory::filled(0, hints)?,
            freed_in_frozen: memory::filled(0, hints)?,
            dirty: 0,
            discards: Discards::new(memory / DISCARDS_SHARE / size_of::<(u64, u64)>()),
        })
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
        (self.limit - self.first + self.beyond)
            .saturating_sub(self.used + self.almost + self.unpublished.total())
    }

    /// Upper bound of the data blocks that can be allocated now.
    pub fn available_for_data(&self) -> u64 {
        self.available().saturating_sub(self.limit - self.data_end)
    }

    /// A run of at most `blocks` free blocks that was not discarded yet; it counts as discarded
    /// when this returns. The caller discards it before it releases the writer's lock.
    pub fn next_discard(&mut self, blocks: u64) -> Option<BlockRun> {
        self.discards.next(blocks)
    }

    /// Where the next data and node allocations begin to search.
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

    /// Forgets which groups are known to be full: another state has become the working one.
    pub fn forget_full(&mut self) {
        self.full.fill(0);
    }

    /// The groups of these runs, in order.
    ///
    /// # Errors
    /// `OutOfMemory`.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    pub fn groups_of(&self, runs: &[BlockRun]) -> Result<Vec<u64>> {
        let mut indexes =
            memory::collect(runs.iter().flat_map(|run| self.parts(*run)).map(|part| part.0))?;
        sort(&mut indexes);
        indexes.dedup();
        Ok(indexes)
    }

    /// Whether the groups of a run have changed since they were last put into the tree, or are in
    /// the ordered list `others`.
    pub fn is_dirty_or_in(&self, run: BlockRun, others: &[u64]) -> bool {
        let dirty = |index: &u64| self.groups.get(index).is_some_and(|group| group.dirty);
        self.parts(run).all(|(index, ..)| dirty(&index) || others.binary_search(&index).is_ok())
    }

    /// Groups of these runs whose bitmap has not changed since it was last put into the tree.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn clean_groups(&self, runs: &[BlockRun]) -> Result<u64> {
        let dirty = |index: &u64| self.groups.get(index).is_some_and(|group| group.dirty);
        if runs.iter().flat_map(|run| self.parts(*run)).all(|part| dirty(&part.0)) {
            return Ok(0);
        }
        Ok(self.groups_of(runs)?.iter().filter(|index| !dirty(index)).count() as u64)
    }

    fn allocatable(&self, index: u64) -> Result<Bitmap> {
        let start = index * self.group_blocks;
        let clamp = |block: u64| block.clamp(start, start + self.group_blocks) - start;
        let mut bitmap = Bitmap::zeroed(self.group_blocks)?;
        bitmap.set(clamp(self.first), clamp(self.end), true);
        Ok(bitmap)
    }

    /// Reads the bitmaps of a group unless they are in memory.
    fn load<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        index: u64,
    ) -> Result<()> {
        if self.groups.contains_key(&index) {
            return Ok(());
        }
        self.groups.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.evict();
        let group = self.read(store, roots, index)?;
        self.groups.insert(index, group);
        Ok(())
    }

    /// Reads the bitmaps of a group from the trees.
    fn read<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        roots: &Roots,
        index: u64,
    ) -> Result<AllocationGroup> {
        let allocatable = self.allocatable(index)?;
        let used = read_group(store, &roots.working, index, &allocatable)?;
        let mut base = read_group(store, &roots.checkpointed, index, &allocatable)?;
        if let Some(frozen) = &roots.frozen {
            base.merge(&read_group(store, frozen, index, &allocatable)?);
        }
        // It is no longer needed and has the right size.
        let mut group = AllocationGroup { used, base, busy: allocatable, dirty: false };
        self.fill_busy(index, &mut group);
        Ok(group)
    }

    /// Marks everything in a group that must not be allocated.
    fn fill_busy(&self, index: u64, group: &mut AllocationGroup) {
        let start = index * self.group_blocks;
        let end = start + self.group_blocks;
        let busy = &mut group.busy;
        busy.set(0, self.group_blocks, false);
        busy.merge(&group.used);
        busy.merge(&group.base);
        busy.set(0, self.first.clamp(start, end) - start, true);
        busy.set(self.limit.clamp(start, end) - start, self.group_blocks, true);
        for set in [&self.unpublished, &self.logged, &self.logged_frozen] {
            for (from, to) in set.overlaps(start, end) {
                busy.set(from - start, to - start, true);
            }
        }
    }

    /// [`fill_busy`](Self::fill_busy) for every group in memory.
    fn fill_busy_all(&mut self) {
        let mut groups = core::mem::take(&mut self.groups);
        for (index, group) in &mut groups {
            self.fill_busy(*index, group);
        }
        self.groups = groups;
    }

    /// Evicts clean groups while there are too many.
    fn evict(&mut self) {
        if self.groups.len() >= self.groups_max {
            let surplus = self.groups.len() + 1 - self.groups_max * 3 / 4;
            self.forget_idle(surplus, |_| true);
        }
    }

    /// Evicts up to `surplus` of the clean groups for which `idle` is true.
    fn forget_idle(&mut self, mut surplus: usize, idle: impl Fn(u64) -> bool) {
        self.groups.retain(|index, group| {
            let goes = surplus > 0 && !group.dirty && idle(*index);
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Whether so many bitmaps have changed that they should go into the tree, to free memory.
    pub fn has_many_dirty_groups(&self) -> bool {
        self.groups.len() > self.groups_max && self.dirty_groups() > self.groups_max / 2
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

    /// The parts of a run, whose groups are in memory, and whether the working state uses them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn used_parts(&self, run: BlockRun) -> Result<Vec<(u64, u64, bool)>> {
        let mut found: Vec<(u64, u64, bool)> = Vec::new();
        let mut add = |start: u64, end: u64, used: bool| {
            match found.last_mut() {
                Some(last) if last.1 == start && last.2 == used => last.1 = end,
                _ if start < end => memory::push(&mut found, (start, end, used))?,
                _ => {}
            }
            Ok::<(), Error>(())
        };
        for (index, from, to) in self.parts(run) {
            let base = index * self.group_blocks;
            let Some(group) = self.groups.get(&index) else { continue };
            let mut at = from;
            while at < to {
                let (low, high) = group.used.zeros_in(at, to).unwrap_or((to, to));
                add(base + at, base + low, true)?;
                add(base + low, base + high, false)?;
                at = high;
            }
        }
        Ok(found)
    }

    /// Whether the working state uses no block of a run. Its groups are in memory.
    pub fn is_unused(&self, run: BlockRun) -> bool {
        self.parts(run).all(|(index, from, to)| {
            self.groups.get(&index).is_some_and(|group| group.used.count_in(from, to) == 0)
        })
    }

    /// Releases unpublished blocks.
    pub fn release(&mut self, run: BlockRun) {
        while let Some((from, to)) = self.unpublished.take(run.start.0, run.end()) {
            self.mark_busy(BlockRun { start: BlockAddress(from), count: to - from }, false);
        }
    }

    /// Whether the groups of a run are in memory.
    pub fn is_loaded(&self, run: BlockRun) -> bool {
        self.parts(run).all(|(index, ..)| self.groups.contains_key(&index))
    }

    /// Loads the groups of runs that are about to be published or freed, so that those calls cannot
    /// fail.
    pub fn prepare<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        runs: &[BlockRun],
    ) -> Result<()> {
        if runs.iter().all(|run| self.is_loaded(*run)) {
            return Ok(());
        }
        let indexes = self.groups_of(runs)?;
        // Loading may evict clean groups. So the groups already in memory go last and are loaded
        // again if necessary.
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
        keep: &[u64],
    ) -> Result<()> {
        if self.groups.contains_key(&index) {
            return Ok(());
        }
        let max = core::mem::replace(&mut self.groups_max, usize::MAX);
        let loaded = self.load(store, roots, index);
        self.groups_max = max;
        let surplus = self.groups.len().saturating_sub(max.max(keep.len() + 1));
        if surplus > 0 {
            self.forget_idle(surplus, |index| keep.binary_search(&index).is_err());
        }
        loaded
    }
}

fn read_group<M: Medium, P: Platform>(
    store: &Store<M, P>,
    root: &Root,
    index: u64,
    allocatable: &Bitmap,
) -> Result<Bitmap> {
    let corrupt = |reason| Error::CorruptMetadata { address: root.pointer.addresses[0], reason };
    let mut used = Bitmap::zeroed(allocatable.len())?;
    let decode = |value: &[u8]| decode_group(Some(value), allocatable, &mut used);
    store.get_with(root, &Key::group(index), decode)?.unwrap_or(Ok(())).map_err(corrupt)?;
    Ok(used)
}
