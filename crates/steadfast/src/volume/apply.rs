//! Applying a batch to the working state: the one place where the tree changes.
//!
//! Everything that can fail (reading nodes and bitmaps, running out of space) is done first, so a failure leaves the
//! state as it was. What fails after that is damage in the middle of a change; the volume then goes read-only.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::Volume;
use super::state::Working;
use crate::error::{Error, Result};
use crate::extent::decode_run;
use crate::key::Kind;
use crate::keyspace::{BATCH_MUTATIONS_MAX, Mutation, SpaceClass};
use crate::log::RecordBuilder;
use crate::platform::Platform;
use crate::space::{RangeSet, Roots};
use crate::tree::{PlannedChange, Root, TreeWriter};
use crate::types::{BlockAddress, BlockRun, InodeNumber};

/// How a batch comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An operation; it goes into the next log record.
    Operation(SpaceClass),
    /// A log record that is replayed.
    Replay,
}

/// Blocks that change hands in a batch.
struct Blocks {
    published: Vec<BlockRun>,
    freed: Vec<BlockRun>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    pub(super) fn roots(&self, working: &Working) -> Roots {
        Roots { working: *self.view.read(), frozen: working.frozen_root(), durable: working.durable.root() }
    }

    /// Blocks of all copies of one node.
    fn node_cost(&self) -> u64 {
        self.store.superblock.node_blocks() * u64::from(self.store.superblock.metadata_copies)
    }

    /// Blocks that the next freeze may need to write the bitmaps of changed groups, when `more` groups will have changed
    /// beside those that have.
    fn freeze_cost(&self, working: &Working, root: &Root, more: u64) -> u64 {
        let all = working.space.groups();
        let groups = (working.space.dirty_groups() as u64 + 2).min(all);
        let more = more.min(all - groups);
        let height = u64::from(root.height);
        // Each changed group copies its path; copying frees old nodes, which may change as many groups again. Those of
        // one batch are near each other in the tree.
        let copies = (2 * groups * height + 2 * more).min(working.nodes.saturating_add(height));
        // A group that was full or empty gets a bitmap, which may split its leaf.
        let splits = 3 * (groups + more) / 2 + 2 * height + 1;
        copies.saturating_add(splits).saturating_mul(self.node_cost())
    }

    /// Blocks that can be allocated, counting those set aside for nodes.
    fn available(&self, working: &Working) -> u64 {
        working.space.available() + working.pool.len() as u64 * self.node_cost()
    }

    /// Blocks of file data that can be reserved now: what is free less the reserve.
    pub(super) fn available_for_data(&self, working: &Working) -> u64 {
        let root = *self.view.read();
        let kept = self.store.superblock.reserve_blocks + self.freeze_cost(working, &root, 0);
        self.available(working).saturating_sub(kept).min(working.space.available_for_data())
    }

    /// Applies mutations as a whole.
    pub(super) fn apply(
        &self,
        working: &mut Working,
        mut mutations: Vec<Mutation>,
        origin: Origin,
    ) -> Result<()> {
        if mutations.is_empty() {
            return Ok(());
        }
        // Removals come last: merging then cannot make a leaf fuller than planned.
        mutations.sort_unstable_by_key(|mutation| (mutation.value.is_none(), mutation.key));
        let root = self.roots(working).working;
        let blocks = self.changed_blocks(&root, &mutations)?;
        let inodes = self.changed_inodes(&root, &mutations)?;
        let runs: Vec<BlockRun> = blocks.published.iter().chain(&blocks.freed).copied().collect();

        // A record is many batches in one. Nobody sees what it leaves in between, and planned as one it could ask for more
        // nodes than the batches did, on a volume that has no more.
        let step = if origin == Origin::Replay { BATCH_MUTATIONS_MAX } else { mutations.len() };
        let mut steps = mutations.chunks(step).peekable();
        while let Some(part) = steps.next() {
            let last = steps.peek().is_none();
            self.change_keys(working, part, if last { &runs } else { &[] }, origin)?;
            if !last {
                self.settle(working)?;
            }
        }

        let pinned = self.pins.lock();
        for run in &blocks.freed {
            working.space.free_data(*run, &pinned);
        }
        drop(pinned);
        for run in &blocks.published {
            working.space.publish(*run, true);
        }
        self.settle(working)?;

        working.inodes = working.inodes.saturating_add_signed(inodes);
        for mutation in &mutations {
            self.note(working, mutation, origin);
        }
        working.sequence += 1;
        Ok(())
    }

    /// Puts and removes keys in the tree. Afterwards the groups of `runs` are in memory.
    fn change_keys(
        &self,
        working: &mut Working,
        mutations: &[Mutation],
        runs: &[BlockRun],
        origin: Origin,
    ) -> Result<()> {
        let roots = self.roots(working);
        let value_len_max = self.store.superblock.value_len_max();
        let changes: Vec<PlannedChange> = mutations
            .iter()
            .map(|mutation| PlannedChange {
                key: mutation.key,
                value_len: mutation.value.as_ref().map(Vec::len),
            })
            .collect();
        if changes.iter().any(|change| change.value_len.is_some_and(|length| length > value_len_max)) {
            // Only a record of the log can have one.
            let address = self.store.superblock.log.start;
            return Err(Error::CorruptMetadata { address, reason: "value longer than a node" });
        }
        let nodes = self.store.plan(&roots.working, working.generation, &changes)?;
        if let Origin::Operation(class) = origin {
            let reserve = match class {
                SpaceClass::Normal => self.store.superblock.reserve_blocks,
                SpaceClass::Freeing => 0,
            };
            let more = working.space.clean_groups(runs);
            let needed = nodes * self.node_cost() + self.freeze_cost(working, &roots.working, more) + reserve;
            if self.available(working) < needed {
                return Err(Error::NoSpace);
            }
        }
        self.fill_pool(working, &roots, nodes)?;
        // After the pool: looking for its addresses may take groups out of memory.
        working.space.prepare(&self.store, &roots, runs)?;

        let changed = self.change_tree(working, |tree| {
            for mutation in mutations {
                match &mutation.value {
                    Some(value) => tree.put(&mutation.key, value)?,
                    None => drop(tree.remove(&mutation.key)?),
                }
            }
            Ok(())
        });
        changed.map_err(|error| self.fail("a change of metadata could not be completed", error))
    }

    /// Counters and the next log record follow a mutation.
    fn note(&self, working: &mut Working, mutation: &Mutation, origin: Origin) {
        let key = mutation.key;
        match key.kind() {
            Some(Kind::Inode) => {
                working.next_inode = working.next_inode.max(key.inode_number().0.saturating_add(1))
            }
            Some(Kind::Orphan) => self.wake_reclaim(),
            _ => {}
        }
        if let Origin::Operation(_) = origin {
            let size = RecordBuilder::size_of(mutation.value.as_ref().map(Vec::len));
            working.pending.add(key, size, self.record_limit());
        }
    }

    /// Largest payload of one log record: a quarter of the log, so that one record never fills it.
    pub(super) fn record_limit(&self) -> usize {
        let log = self.store.superblock.log.count * u64::from(self.store.superblock.block_size);
        (log / 4).saturating_sub(crate::log::RECORD_HEADER as u64) as usize
    }

    /// Which blocks the mutations of extents take up and let go. Blocks that only move between keys do neither.
    fn changed_blocks(&self, root: &Root, mutations: &[Mutation]) -> Result<Blocks> {
        let damaged =
            Error::CorruptMetadata { address: root.pointer.addresses[0], reason: "extent out of range" };
        let valid = |value: &[u8]| decode_run(value).filter(|run| self.store.contains(*run));
        let mut freed = RangeSet::default();
        for mutation in mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent)) {
            if let Some(old) = self.store.get_with(root, &mutation.key, valid)? {
                let run = old.ok_or(damaged)?;
                freed.insert(run.start.0, run.end());
            }
        }
        let mut published = Vec::new();
        for mutation in mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent)) {
            let Some(value) = &mutation.value else { continue };
            let run = valid(value).ok_or(damaged)?;
            let mut new = RangeSet::default();
            new.insert(run.start.0, run.end());
            for (from, to) in freed.remove(run.start.0, run.end()) {
                new.remove(from, to);
            }
            published.extend(runs_of(&new));
        }
        Ok(Blocks { published, freed: runs_of(&freed).collect() })
    }

    /// By how much the number of inodes changes.
    fn changed_inodes(&self, root: &Root, mutations: &[Mutation]) -> Result<i64> {
        let mut change = 0;
        for mutation in mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Inode)) {
            let before = self.store.get_with(root, &mutation.key, |_| ())?.is_some();
            change += i64::from(mutation.value.is_some()) - i64::from(before);
        }
        Ok(change)
    }

    /// Sets addresses aside until there are `nodes` of them.
    pub(super) fn fill_pool(&self, working: &mut Working, roots: &Roots, nodes: u64) -> Result<()> {
        while (working.pool.len() as u64) < nodes {
            let addresses = working.space.reserve_node(&self.store, roots)?;
            working.pool.add(addresses);
        }
        Ok(())
    }

    /// Gives the addresses that were set aside back: a change that might have needed many leaves many.
    pub(super) fn empty_pool(&self, working: &mut Working) {
        let count = self.store.superblock.node_blocks();
        for address in working.pool.drain().into_iter().flatten() {
            if address != BlockAddress::NONE {
                working.space.release(BlockRun { start: address, count });
            }
        }
    }

    /// Runs changes on the working tree while no reader looks at it.
    pub(super) fn change_tree<T>(
        &self,
        working: &mut Working,
        change: impl FnOnce(&mut TreeWriter<'_, M, P>) -> Result<T>,
    ) -> Result<T> {
        let mut root = self.view.write();
        change(&mut TreeWriter {
            store: &self.store,
            root: &mut root,
            generation: working.generation,
            pool: &mut working.pool,
            nodes: &mut working.nodes,
        })
    }

    /// Enters the nodes that a change took and released into the bitmaps.
    pub(super) fn settle(&self, working: &mut Working) -> Result<()> {
        let (taken, released) = working.pool.settle();
        let count = self.store.superblock.node_blocks();
        let run = |address: BlockAddress| BlockRun { start: address, count };
        let copies = |addresses: [BlockAddress; 2]| {
            addresses.into_iter().filter(|address| *address != BlockAddress::NONE).map(run)
        };
        let mut runs: Vec<BlockRun> = taken.iter().flat_map(|addresses| copies(*addresses)).collect();
        let published = runs.len();
        runs.extend(released.iter().flat_map(|pointer| copies(pointer.addresses)));
        let roots = self.roots(working);
        let prepared = working.space.prepare(&self.store, &roots, &runs);
        prepared.map_err(|error| self.fail("an allocation bitmap could not be read", error))?;
        for run in &runs[..published] {
            working.space.publish(*run, false);
        }
        for pointer in &released {
            // A node of the working generation was never part of any other state.
            let reusable = pointer.generation == working.generation;
            if reusable {
                self.store.forget(pointer.addresses[0]);
            }
            working.space.free_node(pointer, reusable);
        }
        Ok(())
    }

    /// A fresh inode number.
    pub(super) fn next_inode(&self, working: &mut Working) -> InodeNumber {
        let inode = InodeNumber(working.next_inode);
        working.next_inode += 1;
        inode
    }
}

fn runs_of(set: &RangeSet) -> impl Iterator<Item = BlockRun> + '_ {
    set.iter().map(|(from, to)| BlockRun { start: BlockAddress(from), count: to - from })
}
