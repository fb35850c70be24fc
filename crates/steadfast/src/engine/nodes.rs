//! The nodes that a change takes and releases: addresses set aside for them, the bitmaps and the
//! memory that it needs, and their entry into the bitmaps afterwards.

use steadfast_media::Medium;

use crate::engine::state::Working;
use crate::error::Result;
use crate::format::DeadEntry;
use crate::memory;
use crate::platform::Platform;
use crate::profile::SNAPSHOTS;
use crate::space::Roots;
use crate::tree::{Plan, Store};
use crate::types::{BlockAddress, BlockRun};

impl Working {
    /// Sets addresses aside until there are `nodes` of them.
    pub(super) fn fill_pool<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        nodes: u64,
    ) -> Result<()> {
        while (self.pool.len() as u64) < nodes {
            self.pool.reserve_addresses(nodes as usize)?;
            let addresses = self.space.allocate_node(store, roots)?;
            self.pool.add(addresses)?;
        }
        Ok(())
    }

    /// Returns the addresses that were set aside. A change that might have needed many leaves many.
    pub(super) fn empty_pool<M: Medium, P: Platform>(&mut self, store: &Store<M, P>) {
        self.trim_pool(store, 0);
    }

    /// As [`empty_pool`](Self::empty_pool), but `nodes` stay set aside.
    pub(super) fn trim_pool<M: Medium, P: Platform>(&mut self, store: &Store<M, P>, nodes: u64) {
        let count = store.device.superblock.node_blocks();
        let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
        while let Some(addresses) = self.pool.pop_beyond(nodes) {
            for start in addresses.into_iter().filter(|address| *address != BlockAddress::NONE) {
                self.space.release(BlockRun { start, count });
            }
        }
    }

    /// Loads the bitmaps of `runs`, with memory to note their changes.
    pub(super) fn prepare_runs<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        runs: &[BlockRun],
    ) -> Result<()> {
        self.space.prepare(store, roots, runs)?;
        self.space.reserve_notes(runs)
    }

    /// Everything about space that can fail in a planned change. It sets aside addresses for the
    /// new nodes. It loads the bitmaps of those, of the nodes that may be released, and of `runs`.
    #[inline(never)]
    pub(super) fn prepare_change<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        plan: &Plan,
        runs: &[BlockRun],
    ) -> Result<()> {
        self.prepare_nodes(store, roots, plan.nodes as usize, Some(plan), runs)?;
        self.prepare_memory(store, roots, plan)
    }

    /// Addresses for `nodes` new nodes, with the bitmaps of those, of the nodes that may be
    /// released, and of `runs`. The nodes that may be released are those of the plan. Without a
    /// plan they are those that the scratch memory has for copying.
    #[inline(never)]
    pub(super) fn prepare_nodes<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        nodes: usize,
        plan: Option<&Plan>,
        runs: &[BlockRun],
    ) -> Result<()> {
        self.fill_pool(store, roots, nodes as u64)?;
        // After the pool, because the search for its addresses may evict groups from memory.
        let count = store.device.superblock.node_blocks();
        let Working { scratch, pool, space, .. } = self;
        let (copies, needed) = (&scratch.copies, &mut scratch.runs);
        needed.clear();
        let mut need = |start| memory::push(needed, BlockRun { start, count });
        match plan {
            Some(plan) => {
                let visited = plan.visited.iter();
                visited.flat_map(|visited| visited.pointer.copies()).try_for_each(&mut need)?;
            }
            None => copies.blocks().try_for_each(&mut need)?,
        }
        pool.next(nodes).try_for_each(need)?;
        memory::extend(needed, runs)?;
        space.prepare(store, roots, needed)?;
        space.reserve_notes(runs)
    }

    /// Memory for a planned change. It is for its nodes, their places in the cache, the path to a
    /// key, and the lists of nodes taken and released.
    fn prepare_memory<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        plan: &Plan,
    ) -> Result<()> {
        let nodes = plan.nodes as usize;
        self.pool.reserve(nodes, plan.released)?;
        if nodes > 0 {
            self.prepare_new_nodes(store, nodes)?;
        }
        if SNAPSHOTS && self.snapshots.newest.0 > 0 {
            let copies = usize::from(store.device.superblock.metadata_copies);
            self.pending_dead.reserve(plan.dead_entries + plan.released * copies)?;
        }
        self.scratch.reserve(roots.working.height)?;
        store.reserve(nodes + plan.visited.len())
    }

    /// Memory for the bytes of new nodes.
    pub(super) fn prepare_new_nodes<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        nodes: usize,
    ) -> Result<()> {
        store.evict_for(nodes);
        self.pool.reserve_nodes(nodes, store.device.superblock.node_size as usize)
    }

    /// Enters the nodes that a change took and released into the bitmaps, which are in memory.
    /// Released nodes that a snapshot holds go to its dead list.
    #[inline(never)]
    pub(super) fn enter_nodes<M: Medium, P: Platform>(&mut self, store: &Store<M, P>) {
        let (taken, mut released) = self.pool.take_lists();
        let count = store.device.superblock.node_blocks();
        let run = |address: BlockAddress| BlockRun { start: address, count };
        released.retain(|pointer| {
            let held = self.belongs_to_snapshot(pointer.generation);
            if held {
                self.snapshots.shared_nodes = self.snapshots.shared_nodes.saturating_sub(1);
                for start in pointer.copies() {
                    self.add_dead(DeadEntry { run: run(start), birth: pointer.generation });
                }
            }
            !held
        });
        for start in taken.iter().flatten().filter(|address| **address != BlockAddress::NONE) {
            self.space.publish(run(*start), false);
        }
        for pointer in &released {
            // A node of the working generation was never part of any other state.
            let reusable = pointer.generation == self.generation;
            if reusable {
                store.forget(pointer.addresses[0]);
            }
            self.space.free_node(pointer, reusable);
        }
        self.pool.return_lists(taken, released);
    }
}
