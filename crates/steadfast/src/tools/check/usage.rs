//! The blocks that the tree uses, compared with the allocation bitmaps.

use alloc::format;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::format::extent::decode_run;
use crate::format::key::{Key, Kind};
use crate::format::{Shared, Superblock};
use crate::space::{Bitmap, decode_group};
use crate::tools::check::reason;
use crate::tools::check::report::{At, Reporter};
use crate::tools::check::shared::References;
use crate::types::{BlockAddress, BlockRun, Generation};

/// Bitmaps by group, only for groups with used blocks.
pub(super) struct Usage<'a> {
    superblock: &'a Superblock,
    /// Blocks that the live tree uses, and blocks found to be held by snapshots.
    found: HashMap<u64, Bitmap>,
    /// Blocks in the dead lists.
    dead: HashMap<u64, Bitmap>,
    dead_lists: Vec<Generation>,
    stored: HashMap<u64, Bitmap>,
    references: References,
}

impl<'a> Usage<'a> {
    pub fn new(superblock: &'a Superblock) -> Self {
        Usage {
            superblock,
            found: HashMap::new(),
            dead: HashMap::new(),
            dead_lists: Vec::new(),
            stored: HashMap::new(),
            references: References::default(),
        }
    }

    /// Notes that `count` blocks from `start` on belong to `owner`.
    pub fn take(
        &mut self,
        start: BlockAddress,
        count: u64,
        owner: &str,
        reporter: &mut Reporter<'_>,
    ) {
        let size = u64::from(self.superblock.group_blocks);
        let end = start.0.saturating_add(count);
        if start.0 < self.superblock.first_block() || end > self.superblock.end_block() {
            reporter.damaged(format!(
                "{owner} uses blocks {}..{end}, which are no data blocks",
                start.0
            ));
            return;
        }
        let mut block = start.0;
        while block < end {
            let stop = end.min((block / size + 1) * size);
            let bitmap = self.found.entry(block / size).or_insert_with(|| Bitmap::new(size));
            let low = block % size;
            if bitmap.set(low, low + stop - block, true) != stop - block {
                reporter.damaged(format!(
                    "{owner} uses blocks {block}..{stop}, of which some are used twice"
                ));
            }
            block = stop;
        }
    }

    /// Notes that the dead list of a snapshot names `run`, which can be allocated.
    pub fn take_dead(
        &mut self,
        run: BlockRun,
        generation: Generation,
        reporter: &mut Reporter<'_>,
    ) {
        if self.dead_lists.last() != Some(&generation) {
            self.dead_lists.push(generation);
        }
        let size = u64::from(self.superblock.group_blocks);
        for (group, from, to) in parts(run, size) {
            let bitmap = self.dead.entry(group).or_insert_with(|| Bitmap::new(size));
            if bitmap.set(from, to, true) != to - from {
                let start = group * size + from;
                let text = format!("blocks from {start} on are in dead lists twice");
                reporter.damaged_at(At::block(BlockAddress(start)), text);
            }
        }
    }

    /// Compares the counts of shared blocks, after the live tree has been visited.
    pub fn compare_references(&self, counted: u64, reporter: &mut Reporter<'_>) {
        self.references.finish(counted, reporter);
    }

    /// The snapshots that have dead lists.
    pub fn dead_generations(&self) -> impl Iterator<Item = Generation> + '_ {
        self.dead_lists.iter().copied()
    }

    /// Blocks in dead lists.
    pub fn dead_blocks(&self) -> u64 {
        self.dead.values().map(Bitmap::count).sum()
    }

    /// A snapshot holds `run`: notes and returns the parts that nothing newer uses.
    pub fn take_held(&mut self, run: BlockRun) -> Vec<(u64, u64)> {
        let size = u64::from(self.superblock.group_blocks);
        let mut new: Vec<(u64, u64)> = Vec::new();
        for (group, from, to) in parts(run, size) {
            let bitmap = self.found.entry(group).or_insert_with(|| Bitmap::new(size));
            let mut at = from;
            while let Some((low, high)) = bitmap.zeros_in(at, to) {
                let (start, end) = (group * size + low, group * size + high);
                match new.last_mut() {
                    Some(last) if last.1 == start => last.1 = end,
                    _ => new.push((start, end)),
                }
                at = high;
            }
            bitmap.set(from, to, true);
        }
        new
    }

    /// Whether any of these blocks has been found.
    pub fn has_found(&self, run: BlockRun) -> bool {
        let size = u64::from(self.superblock.group_blocks);
        parts(run, size).any(|(group, from, to)| {
            let found = self.found.get(&group);
            found.is_some_and(|bitmap| bitmap.zeros_in(from, to) != Some((from, to)))
        })
    }

    /// Processes an item: blocks that it uses, or a stored bitmap.
    pub fn item(&mut self, key: &Key, value: &[u8], reporter: &mut Reporter<'_>) {
        match key.kind() {
            Some(Kind::Extent) => {
                if let Some(run) = decode_run(value) {
                    let owner = format!("inode {}", key.inode_number().0);
                    let (shared, alone) = self.references.take(run, reporter);
                    for run in shared {
                        self.take_held(run);
                    }
                    for run in alone {
                        self.take(run.start, run.count, &owner, reporter);
                    }
                }
            }
            Some(Kind::SharedExtent) => {
                let (first, end) = (self.superblock.first_block(), self.superblock.end_block());
                let contains = |run: BlockRun| run.start.0 >= first && run.end() <= end;
                match Shared::decode(key.suffix(), value, contains) {
                    Ok(shared) => self.references.add(shared, reporter),
                    Err(error) => {
                        reporter.damaged(format!(
                            "shared extent at block {}: {}",
                            key.suffix(),
                            reason(&error)
                        ));
                    }
                }
            }
            Some(Kind::Group) => {
                let mut bitmap = Bitmap::new(u64::from(self.superblock.group_blocks));
                match decode_group(Some(value), &self.allocatable(key.suffix()), &mut bitmap) {
                    Ok(()) => drop(self.stored.insert(key.suffix(), bitmap)),
                    Err(reason) => {
                        reporter.damaged(format!("bitmap of group {}: {reason}", key.suffix()))
                    }
                }
            }
            _ => {}
        }
    }

    fn allocatable(&self, index: u64) -> Bitmap {
        let size = u64::from(self.superblock.group_blocks);
        let start = index.saturating_mul(size);
        let clamp = |block: u64| block.clamp(start, start.saturating_add(size)) - start;
        let mut bitmap = Bitmap::new(size);
        bitmap.set(clamp(self.superblock.first_block()), clamp(self.superblock.end_block()), true);
        bitmap
    }

    /// Compares the blocks of the live tree and of the dead lists with the bitmaps and with the
    /// metaroot's count. Call it before any snapshot is checked.
    pub fn compare(&self, counted: u64, reporter: &mut Reporter<'_>) {
        let size = u64::from(self.superblock.group_blocks);
        let empty = Bitmap::new(size);
        let mut groups: Vec<u64> =
            self.found.keys().chain(self.stored.keys()).chain(self.dead.keys()).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        let mut used = 0;
        for group in groups {
            let mut found = self.found.get(&group).unwrap_or(&empty).clone();
            let dead = self.dead.get(&group).unwrap_or(&empty);
            let both = (0..size).find(|bit| found.get(*bit) && dead.get(*bit));
            if let Some(bit) = both {
                let block = group * size + bit;
                let text = format!("block {block} is in a dead list and in use");
                reporter.damaged_at(At::block(BlockAddress(block)), text);
            }
            found.merge(dead);
            used += found.count();
            let stored = self.stored.get(&group).unwrap_or(&empty);
            let differs = |used: bool| {
                (0..size).filter(|bit| found.get(*bit) == used && stored.get(*bit) != used).count()
            };
            let first = (0..size).find(|bit| found.get(*bit) != stored.get(*bit));
            if let Some(first) = first {
                let (missing, leaked) = (differs(true), differs(false));
                reporter.damaged(format!(
                    "allocation bitmap of group {group}: {missing} used blocks are marked free, {leaked} free blocks \
                     are marked used, the first at block {}",
                    group * size + first
                ));
            }
        }
        reporter.report.used_blocks = used;
        reporter.report.snapshot_blocks = self.dead_blocks();
        if used != counted {
            reporter
                .damaged(format!("the metaroot counts {counted} used blocks, {used} are in use"));
        }
    }
}

/// The groups that a run touches, with the part of the run in each (relative to the group).
fn parts(run: BlockRun, size: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    (run.start.0 / size..run.end().div_ceil(size)).map(move |group| {
        let base = group * size;
        (group, run.start.0.max(base) - base, run.end().min(base + size) - base)
    })
}

/// Data blocks that an item stands for.
pub(super) fn blocks_of(key: &Key, value: &[u8]) -> u64 {
    match key.kind() {
        Some(Kind::Extent) => decode_run(value).map_or(0, |run| run.count),
        _ => 0,
    }
}
