//! Whether there is room for a change and for the freeze after it.
//!
//! Estimates are immediate and hold for any tree. A removal that they refuse may still fit, so it
//! is counted. The change is planned together with the bitmaps and the dead list that the freeze
//! puts. What they touch is added until nothing new is touched. The plan is then bound to what was
//! counted ([`Plan::confined`]).

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::budget::{Budget, More, Unfrozen, kept_for_removal};
use crate::engine::keyspace::SpaceClass;
use crate::engine::snapshots::dead::dead_list_puts;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::DeadEntry;
use crate::format::key::Key;
use crate::memory;
use crate::platform::Platform;
use crate::sort::{sort, sort_by_key};
use crate::space::Roots;
use crate::tree::{Plan, PlannedChange};
use crate::types::{BlockAddress, BlockRun, Generation};

/// Nodes beyond the plan for a removal: a leaf that it merges may have less room than planned for
/// what the freeze puts.
const MERGED_LEAF_NODES: u64 = 3;

/// A change that needs room.
pub(crate) struct Wanted<'a> {
    /// Puts, in key order, followed by removals.
    pub changes: &'a [PlannedChange],
    /// Runs of data whose bits change.
    pub runs: &'a [BlockRun],
    /// Runs of data that go to the newest snapshot's dead list.
    pub dead: usize,
    /// The space that it may use.
    pub class: SpaceClass,
}

impl<M: Medium, P: Platform> Budget<'_, M, P> {
    /// The plan for a change, if there is room for it, for the freeze after it, and for what its
    /// class must leave.
    ///
    /// # Errors
    /// `NoSpace`; nodes and bitmaps that cannot be read. Nothing has changed.
    pub(crate) fn check(
        &self,
        working: &mut Working,
        roots: &Roots,
        wanted: &Wanted<'_>,
    ) -> Result<Plan> {
        let mut plan = self.store.plan(&roots.working, working.generation, wanted.changes)?;
        plan.dead_entries = wanted.dead;
        let released = plan.nodes.min(working.snapshots.shared_nodes);
        let dead =
            wanted.dead as u64 + released * u64::from(self.store.device.superblock.metadata_copies);
        let more = More { groups: working.space.clean_groups(wanted.runs)?, dead };
        if self.has_room(working, roots, plan.nodes, more, wanted.class)? {
            return Ok(plan);
        }
        if wanted.class != SpaceClass::Freeing {
            working.needs_later = self.needs_after_checkpoint(working, roots, wanted, &plan).ok();
            return Err(Error::NoSpace);
        }
        plan.confined = Some(self.count_budget(working, roots, wanted)?);
        Ok(plan)
    }

    /// Whether the estimates show room for a change that takes `nodes` nodes, for the freeze after
    /// it, and for what its class must leave.
    pub(crate) fn has_room(
        &self,
        working: &mut Working,
        roots: &Roots,
        nodes: u64,
        more: More,
        class: SpaceClass,
    ) -> Result<bool> {
        let needed = nodes.saturating_mul(self.store.device.superblock.node_cost());
        let needed = needed.saturating_add(working.freeze_cost(
            &self.store.device.superblock,
            &roots.working,
            more,
        ));
        let left = self.left_by_change(working, class);
        self.has_budget(working, roots, needed.saturating_add(left))
    }

    /// Blocks that a change of this class must leave. The estimates do not cover every tree, so
    /// close to the end a removal too must leave the reserve.
    fn left_by_change(&self, working: &Working, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Freeing => self.store.device.reserve_blocks(),
            class => self.kept_from_class(working, class),
        }
    }

    /// Blocks that a change needs after a checkpoint, with those for the freeze after it, as far as
    /// can be counted. At that time no group is changed, and every node on the path is of an
    /// earlier generation.
    #[inline(never)]
    fn needs_after_checkpoint(
        &self,
        working: &Working,
        roots: &Roots,
        wanted: &Wanted<'_>,
        plan: &Plan,
    ) -> Result<u64> {
        let own =
            plan.visited.iter().filter(|visited| visited.pointer.generation == working.generation);
        let nodes = plan.nodes.saturating_add(own.count() as u64);
        let copies = u64::from(self.store.device.superblock.metadata_copies);
        let dead = wanted.dead as u64 + nodes.min(working.snapshots.shared_nodes) * copies;
        let more = More { groups: working.space.groups_of(wanted.runs)?.len() as u64, dead };
        let freeze = working.freeze_cost_of(
            &self.store.device.superblock,
            &roots.working,
            Unfrozen::default(),
            more,
        );
        Ok(nodes.saturating_mul(self.store.device.superblock.node_cost()).saturating_add(freeze))
    }

    /// Checks that the room that a snapshot must keep is there now.
    pub(crate) fn check_for_snapshot(
        &self,
        working: &mut Working,
        roots: &Roots,
        nodes: u64,
    ) -> Result<()> {
        // The freeze may still make some nodes.
        let all =
            working.nodes.saturating_add(nodes).saturating_add(u64::from(roots.working.height));
        let freeze = working.freeze_cost(
            &self.store.device.superblock,
            &roots.working,
            More { groups: 4, dead: 2 * nodes },
        );
        let needed = (nodes * self.store.device.superblock.node_cost())
            .saturating_add(kept_for_removal(
                &self.store.device.superblock,
                all,
                all,
                working.live_data(&self.store.device.superblock),
            ))
            .saturating_add(self.store.device.reserve_blocks())
            .saturating_add(2 * freeze);
        if self.has_budget(working, roots, needed)? { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Whether `blocks` blocks are available for nodes. The blocks of one node must be contiguous,
    /// which a count of free blocks cannot tell. So nodes of several blocks are set aside here, and
    /// data can no longer take blocks between theirs.
    pub(crate) fn has_budget(
        &self,
        working: &mut Working,
        roots: &Roots,
        blocks: u64,
    ) -> Result<bool> {
        if working.available(&self.store.device.superblock) < blocks {
            return Ok(false);
        }
        if self.store.device.superblock.node_blocks() == 1 {
            return Ok(true);
        }
        match working.fill_pool(
            self.store,
            roots,
            blocks.div_ceil(self.store.device.superblock.node_cost()),
        ) {
            Ok(()) => Ok(true),
            Err(Error::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets aside the nodes that a removal and the freeze after it can need; see the module.
    /// Returns the groups whose bitmaps were counted, in order.
    #[inline(never)]
    fn count_budget(
        &self,
        working: &mut Working,
        roots: &Roots,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<u64>> {
        let copies = u64::from(self.store.device.superblock.metadata_copies);
        let count = self.store.device.superblock.node_blocks();
        let removals =
            wanted.changes.iter().filter(|change| change.value_len.is_none()).count() as u64;
        // A removal merges at most one neighbour a level, which was not visited before.
        let merged = removals.saturating_mul(u64::from(roots.working.height));
        let slack = if removals > 0 { MERGED_LEAF_NODES } else { 0 };
        let mut groups = working.space.dirty_group_indexes()?;
        add_new(&mut groups, &working.space.groups_of(wanted.runs)?)?;
        let mut of_snapshot = 0;
        loop {
            let shared = working.snapshots.shared_nodes;
            let old_nodes = if shared > 0 { (merged + of_snapshot).min(shared) } else { 0 };
            let entries = ((working.pending_dead.len() + wanted.dead) as u64)
                .saturating_add(old_nodes * copies);
            let changes = self.with_freeze(working, roots, wanted.changes, &groups, entries)?;
            let plan = self.store.plan(&roots.working, working.generation, &changes)?;
            let nodes = plan.nodes + slack;
            if working.available(&self.store.device.superblock)
                < nodes.saturating_mul(self.store.device.superblock.node_cost())
            {
                return Err(Error::NoSpace);
            }
            working.fill_pool(self.store, roots, nodes)?;
            let touched = plan.visited.iter().flat_map(|visited| visited.pointer.copies());
            let touched = touched.chain(working.pool.next(nodes as usize));
            let runs = memory::collect(touched.map(|start| BlockRun { start, count }))?;
            let known = groups.len();
            add_new(&mut groups, &working.space.groups_of(&runs)?)?;
            let old = |generation: Generation| {
                generation != working.generation && working.belongs_to_snapshot(generation)
            };
            let now_of_snapshot =
                plan.visited.iter().filter(|visited| old(visited.pointer.generation)).count()
                    as u64;
            if groups.len() == known && now_of_snapshot <= of_snapshot {
                return Ok(groups);
            }
            of_snapshot = of_snapshot.max(now_of_snapshot);
        }
    }

    /// A change together with what the freeze after it puts: the bitmaps of `groups`, and a dead
    /// list longer by `entries`.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn with_freeze(
        &self,
        working: &Working,
        roots: &Roots,
        changes: &[PlannedChange],
        groups: &[u64],
        entries: u64,
    ) -> Result<Vec<PlannedChange>> {
        let mut all = memory::copy(changes)?;
        let value_len = Some(1 + self.store.device.superblock.group_blocks as usize / 8);
        for index in groups {
            memory::push(&mut all, PlannedChange { key: Key::group(*index), value_len })?;
        }
        if entries > 0 && working.snapshots.newest.0 > 0 {
            let entry = DeadEntry {
                run: BlockRun { start: BlockAddress(0), count: 1 },
                birth: working.snapshots.newest,
            };
            let entries = memory::filled(entry, usize::try_from(entries).unwrap_or(usize::MAX))?;
            for (key, value) in
                dead_list_puts(self.store, &roots.working, working.snapshots.newest, &entries)?
            {
                memory::push(&mut all, PlannedChange { key, value_len: Some(value.len()) })?;
            }
        }
        sort_by_key(&mut all, |change| (change.value_len.is_none(), change.key));
        Ok(all)
    }
}

/// Adds numbers to an ordered list, each once.
// Its variables must not stay on the stack of the caller.
#[inline(never)]
fn add_new(list: &mut Vec<u64>, more: &[u64]) -> Result<()> {
    memory::extend(list, more)?;
    sort(list);
    list.dedup();
    Ok(())
}
