//! Which blocks a batch takes and releases, and how references to shared blocks change.
//!
//! Blocks are counted by the extents that name them: one extent, one reference. Most blocks have
//! one reference, and only the bit in the allocation bitmap records it. Blocks with more have a
//! [`Kind::SharedExtent`] key with the count. The counts follow from the extents that a batch
//! removes and puts. So operation and replay derive them in the same way, and no log record holds
//! them. Blocks that a batch only moves from one key to another keep their count and are not looked
//! up.
//!
//! A block whose bit is set is named by the live tree, or is in a dead list. A block in a dead list
//! is never named again, because only extents of the live tree are cloned. So a set bit without a
//! key means one reference.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::spare::{CountedRange, SpareRanges};
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::extent::{decode_birth, decode_run};
use crate::format::key::{Key, Kind};
use crate::format::{DeadEntry, Mutation, Root, Shared};
use crate::memory;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::sort::sort_by_key;
use crate::space::Roots;
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun, InodeNumber};

/// Blocks that a batch takes or releases.
#[derive(Default)]
pub(super) struct Blocks {
    /// Runs that are new in the live tree, then runs that it and everything else release.
    pub runs: Vec<BlockRun>,
    /// How many of them are new.
    published: usize,
    /// Released by the live tree, and held by the newest snapshot.
    pub dead: Vec<DeadEntry>,
    /// Changes of the keys of shared extents.
    pub shared: Vec<Mutation>,
    /// Change of the number of those keys.
    pub shared_keys: i64,
}

impl Blocks {
    /// New in the live tree.
    pub fn published(&self) -> &[BlockRun] {
        &self.runs[..self.published]
    }

    /// Released by the live tree and by everything else.
    pub fn freed(&self) -> &[BlockRun] {
        &self.runs[self.published..]
    }
}

/// How many extents name each block.
pub(crate) struct ReferenceCounts<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(crate) fn reference_counts(&self) -> ReferenceCounts<'_, M, P> {
        ReferenceCounts { store: &self.store }
    }
}

impl<M: Medium, P: Platform> ReferenceCounts<'_, M, P> {
    /// See the module. Expects the bitmaps of new blocks in memory; changes nothing.
    #[inline(never)]
    pub(super) fn changed_blocks(
        &self,
        working: &mut Working,
        roots: &Roots,
        mutations: &[Mutation],
    ) -> Result<Blocks> {
        let is_extent = |mutation: &&Mutation| mutation.key.kind() == Some(Kind::Extent);
        if !mutations.iter().any(|mutation| is_extent(&mutation)) {
            return Ok(Blocks::default());
        }
        let root = &roots.working;
        let damaged = Error::CorruptMetadata {
            address: root.pointer.addresses[0],
            reason: "extent out of range",
        };
        // An operation makes valid extents only, so a bad new one comes from the log.
        let damaged_log = Error::CorruptLog {
            address: self.store.device.superblock.log.start,
            reason: "extent out of range",
        };
        let valid = |value: &[u8]| decode_run(value).filter(|run| self.store.device.contains(*run));
        // Where the number of references rises or falls, and which removed extents a snapshot may
        // hold.
        let (runs, mut spare) = working.spare.ranges();
        let mut held: Vec<DeadEntry> = Vec::new();
        let mut step = |run: BlockRun, by: i64| {
            memory::extend(&mut spare.steps, &[(run.start.0, by), (run.end(), -by)])
        };
        for mutation in mutations.iter().filter(is_extent) {
            let decode = |value: &[u8]| valid(value).zip(decode_birth(value));
            if let Some(old) = self.store.get_with(root, &mutation.key, decode)? {
                let (run, birth) = old.ok_or(damaged)?;
                step(run, -1)?;
                if working.belongs_to_snapshot(birth) {
                    memory::push(&mut held, DeadEntry { run, birth })?;
                }
            }
            if let Some(value) = &mutation.value {
                step(valid(value).ok_or(damaged_log)?, 1)?;
            }
        }
        let SpareRanges { mut steps, mut changes, mut references, mut freed } = spare;
        ranges_of(&mut steps, &mut changes)?;
        let mut blocks = Blocks { runs, ..Blocks::default() };
        let mut shared = SharedChange::default();
        for change in &changes {
            references.clear();
            self.count(working, roots, *change, &mut references)?;
            for before in &references {
                let after = CountedRange {
                    count: before.count.saturating_add(change.count).max(0),
                    ..*before
                };
                let run = run_of(before.start, before.end);
                match (before.count, after.count) {
                    (0, 0) => {}
                    (0, _) => memory::push(&mut blocks.runs, run)?,
                    (_, 0) => release(run, &held, &mut freed, &mut blocks.dead)?,
                    _ => {}
                }
                if before.count > 1 || after.count > 1 {
                    // A record of the log can share blocks for the first time.
                    if !SNAPSHOTS {
                        return Err(NO_SNAPSHOTS);
                    }
                    self.change_shared(root, &mut shared, after)?;
                }
            }
        }
        if SNAPSHOTS {
            blocks.shared_keys = shared.finish(&mut blocks.shared)?;
        }
        join_neighbours(&mut blocks.runs);
        blocks.published = blocks.runs.len();
        memory::append(&mut blocks.runs, &mut freed)?;
        working.spare.keep_ranges(SpareRanges { steps, changes, references, freed });
        Ok(blocks)
    }

    /// Number of references of the blocks of a range. A block without a key whose number falls has
    /// one reference.
    fn count(
        &self,
        working: &mut Working,
        roots: &Roots,
        range: CountedRange,
        found: &mut Vec<CountedRange>,
    ) -> Result<()> {
        let mut at = range.start;
        if SNAPSHOTS && working.snapshots.shared_extents > 0 {
            let keys = self.shared_extents(&roots.working, range.start, range.end)?;
            for Shared { start, end, count } in keys {
                let (start, end) = (start.max(range.start), end.min(range.end));
                self.unshared(
                    working,
                    roots,
                    CountedRange { start: at, end: start, ..range },
                    found,
                )?;
                memory::push(found, CountedRange { start, end, count: i64::from(count) })?;
                at = end;
            }
        }
        self.unshared(working, roots, CountedRange { start: at, ..range }, found)
    }

    /// As [`count`](Self::count), for ranges without a key.
    fn unshared(
        &self,
        working: &mut Working,
        roots: &Roots,
        range: CountedRange,
        found: &mut Vec<CountedRange>,
    ) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        if range.count < 0 {
            return memory::push(found, CountedRange { count: 1, ..range });
        }
        let run = run_of(range.start, range.end);
        working.space.prepare(self.store, roots, &[run])?;
        if working.space.is_unused(run) {
            return memory::push(found, CountedRange { count: 0, ..range });
        }
        for (start, end, used) in working.space.used_parts(run)? {
            memory::push(found, CountedRange { start, end, count: i64::from(used) })?;
        }
        Ok(())
    }

    /// The shared extents that overlap `start..end`, in order.
    pub(crate) fn shared_extents(&self, root: &Root, start: u64, end: u64) -> Result<Vec<Shared>> {
        let mut found = Vec::new();
        let (first, _) = Key::kind_range(InodeNumber::SYSTEM, Kind::SharedExtent);
        let key = |block: u64| Key::shared_extent(BlockAddress(block));
        let decode = |key: Key, value: &[u8]| {
            Shared::decode(key.suffix(), value, |run| self.store.device.contains(run))
        };
        if let Some((at, value)) = self.store.previous(root, &first, &key(start))? {
            let before = decode(at, &value)?;
            if before.end > start {
                memory::push(&mut found, before)?;
            }
        }
        let mut from = start.saturating_add(1);
        while from < end {
            let Some((at, value)) = self.store.next(root, &key(from), &key(end - 1))? else {
                break;
            };
            let next = decode(at, &value)?;
            from = next.start.saturating_add(1);
            memory::push(&mut found, next)?;
        }
        Ok(found)
    }

    /// Whether one of these blocks is named by several extents of this tree.
    pub(crate) fn is_shared(&self, root: &Root, run: BlockRun) -> Result<bool> {
        Ok(!self.shared_extents(root, run.start.0, run.end())?.is_empty())
    }

    /// Sets the number of references of the blocks of `after`.
    fn change_shared(
        &self,
        root: &Root,
        shared: &mut SharedChange,
        after: CountedRange,
    ) -> Result<()> {
        for key in self.shared_extents(root, after.start, after.end)? {
            // A later part of the batch finds in the tree a key that an earlier part has already
            // replaced.
            if let Err(at) = shared.before.binary_search_by_key(&key.start, |known| known.start) {
                memory::insert(&mut shared.before, at, key)?;
                let at = shared.after.partition_point(|known| known.start < key.start);
                memory::insert(&mut shared.after, at, key)?;
            }
        }
        shared.set(after)
    }
}

/// The shared extents that a batch touches, in order: before and after it.
#[derive(Default)]
struct SharedChange {
    before: Vec<Shared>,
    after: Vec<Shared>,
}

impl SharedChange {
    fn set(&mut self, range: CountedRange) -> Result<()> {
        let more = i64::from(range.count > 1 && planted(Sabotage::SharedCountOffByOne));
        let count = u32::try_from(range.count.max(0) + more).map_err(|_| Error::TooManyLinks)?;
        let first = self.after.partition_point(|key| key.end <= range.start);
        let past = first + self.after[first..].partition_point(|key| key.start < range.end);
        let overlaps = &self.after[first..past];
        // The remainders of the first and the last of them, and the new one in between.
        let head = overlaps.first().filter(|key| key.start < range.start);
        let tail = overlaps.last().filter(|key| key.end > range.end);
        let parts = [
            head.map(|key| Shared { end: range.start, ..*key }),
            (count > 1).then_some(Shared { start: range.start, end: range.end, count }),
            tail.map(|key| Shared { start: range.end, ..*key }),
        ];
        self.after.try_reserve(parts.len()).map_err(|_| Error::OutOfMemory)?;
        self.after.drain(first..past);
        for part in parts.into_iter().rev().flatten() {
            self.after.insert(first, part);
        }
        if count > 1 {
            let new = first + usize::from(parts[0].is_some());
            self.join(new);
            if let Some(before) = new.checked_sub(1) {
                self.join(before);
            }
        }
        Ok(())
    }

    /// Joins a key and the one after it if they can be one.
    fn join(&mut self, index: usize) {
        let (Some(key), Some(next)) = (self.after.get(index), self.after.get(index + 1)) else {
            return;
        };
        if key.joins(next) {
            self.after[index].end = next.end;
            self.after.remove(index + 1);
        }
    }

    /// Emits the mutations for the change. Returns by how much the number of keys changes.
    fn finish(self, mutations: &mut Vec<Mutation>) -> Result<i64> {
        let key = |shared: &Shared| Key::shared_extent(BlockAddress(shared.start));
        let find = |list: &[Shared], shared: &Shared| {
            list.binary_search_by_key(&shared.start, |known| known.start).ok().map(|at| list[at])
        };
        for shared in &self.after {
            if find(&self.before, shared) != Some(*shared) {
                memory::push(
                    mutations,
                    Mutation { key: key(shared), value: Some(shared.encode()?) },
                )?;
            }
        }
        for shared in self.before.iter().filter(|shared| find(&self.after, shared).is_none()) {
            memory::push(mutations, Mutation { key: key(shared), value: None })?;
        }
        Ok(self.after.len() as i64 - self.before.len() as i64)
    }
}

/// Adds the ranges between steps in which the sum is not zero. Sorts the steps.
fn ranges_of(steps: &mut [(u64, i64)], ranges: &mut Vec<CountedRange>) -> Result<()> {
    sort_by_key(steps, |(at, _)| *at);
    let (mut start, mut count) = (0, 0);
    for same in steps.chunk_by(|a, b| a.0 == b.0) {
        let end = same[0].0;
        match ranges.last_mut() {
            Some(last) if last.end == start && last.count == count => last.end = end,
            _ if count != 0 => memory::push(ranges, CountedRange { start, end, count })?,
            _ => {}
        }
        start = end;
        count += same.iter().map(|(_, by)| by).sum::<i64>();
    }
    Ok(())
}

/// Splits blocks without references into free blocks and blocks that the newest snapshot holds.
fn release(
    run: BlockRun,
    held: &[DeadEntry],
    freed: &mut Vec<BlockRun>,
    dead: &mut Vec<DeadEntry>,
) -> Result<()> {
    if !SNAPSHOTS || held.is_empty() {
        memory::push(freed, run)?;
        join_neighbours(freed);
        return Ok(());
    }
    let mut rest = crate::space::RangeSet::default();
    rest.reserve(held.len() + 1)?;
    rest.insert(run.start.0, run.end());
    for entry in held {
        while let Some((from, to)) = rest.take(entry.run.start.0, entry.run.end()) {
            memory::push(dead, DeadEntry { run: run_of(from, to), birth: entry.birth })?;
        }
    }
    for (from, to) in rest.iter() {
        memory::push(freed, run_of(from, to))?;
    }
    join_neighbours(freed);
    Ok(())
}

fn join_neighbours(runs: &mut Vec<BlockRun>) {
    runs.dedup_by(|next, run| {
        let joins = run.end() == next.start.0;
        if joins {
            run.count += next.count;
        }
        joins
    });
}

fn run_of(start: u64, end: u64) -> BlockRun {
    BlockRun { start: BlockAddress(start), count: end - start }
}
