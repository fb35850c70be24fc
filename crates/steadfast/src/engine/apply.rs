//! Applying a batch to the working state: the one place where the tree changes.
//!
//! Everything that can fail (reading nodes and bitmaps, running out of space) is done first, so a
//! failure leaves the state as it was. After that, only a bug in the core or a damaged image can
//! cause a failure; the volume then goes read-only.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::More;
use crate::engine::budget::room::Wanted;
use crate::engine::keyspace::{BATCH_MUTATIONS_MAX, SpaceClass};
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::{Key, Kind};
use crate::format::{Mutation, payload};
use crate::memory;
use crate::platform::Platform;
use crate::sort::sort_by_key;
use crate::space::Roots;
use crate::tree::{FoundKey, Plan, PlannedChange, Store, TreeWriter};
use crate::types::{BlockAddress, BlockRun};

/// Where a batch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// An operation; it goes into the next log record.
    Operation(SpaceClass),
    /// A log record that is replayed.
    Replay,
}

/// Changes of keys, with what they do to blocks of data.
#[derive(Clone, Copy)]
struct Batch<'a> {
    mutations: &'a [Mutation],
    /// Runs whose bits change.
    runs: &'a [BlockRun],
    /// Runs that go to the newest snapshot's dead list.
    dead: usize,
    origin: Origin,
}

/// Why a volume has failed in the middle of a change.
const HALF_CHANGED: &str = "a change of metadata could not be completed";

/// A step of a replay changes no more keys than one in this many nodes of the cache.
const REPLAY_STEP_SHARE: usize = 16;

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(super) fn roots(&self, working: &Working) -> Roots {
        Roots {
            working: self.view.read().root,
            frozen: working.frozen_root(),
            checkpointed: working.checkpointed.root(),
        }
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
        for mutation in &mutations {
            check_recorded(&self.store, &mutation.key, mutation.value.as_ref().map(Vec::len))?;
        }
        let roots = self.roots(working);
        let mut blocks = self.reference_counts().changed_blocks(working, &roots, &mutations)?;
        memory::append(&mut mutations, &mut blocks.shared)?;
        // Removals come last: merging then cannot make a leaf fuller than planned.
        sort_by_key(&mut mutations, |mutation| (mutation.value.is_none(), mutation.key));

        let dead = blocks.dead.len();
        let inodes = match origin {
            Origin::Operation(_) => {
                let batch = Batch { mutations: &mutations, runs: &blocks.runs, dead, origin };
                self.change_keys(working, &roots, batch)?
            }
            Origin::Replay => self.change_keys_in_steps(working, &mutations, &blocks.runs, dead)?,
        };

        let pinned = self.pins.lock();
        let early = origin != Origin::Replay && self.store.device.wants_discards_early();
        for run in blocks.freed() {
            working.space.free_data(*run, &pinned);
            if early {
                working.space.discard_early(*run, &pinned);
            }
        }
        drop(pinned);
        for entry in &blocks.dead {
            working.shared_data = working.shared_data.saturating_sub(entry.run.count);
            working.add_dead(*entry);
        }
        for run in blocks.published() {
            working.space.publish(*run, true);
        }
        working.enter_nodes(&self.store);

        working.inodes = working.inodes.saturating_add_signed(inodes);
        let counts = &mut working.snapshots;
        counts.shared_extents = counts.shared_extents.saturating_add_signed(blocks.shared_keys);
        let record_limit = record_limit(&self.store);
        for mutation in mutations.iter().filter(|mutation| is_recorded(&mutation.key)) {
            self.note(working, mutation, origin, record_limit);
        }
        working.sequence += 1;
        if let Some(observer) = &self.observer
            && origin != Origin::Replay
        {
            observer(working.sequence);
        }
        working.spare.keep(mutations);
        working.spare.keep_runs(blocks.runs);
        Ok(())
    }

    /// As [`change_keys`](Self::change_keys), for a log record: it holds many batches, and the
    /// volume may have no more room than those took. No reader sees the states in between. Removals
    /// go first; otherwise the old and the new entries would exist together for a moment. Short
    /// steps also help because a longer plan sets aside more beyond what it uses. With a small
    /// cache they are shorter: the nodes of a plan are in memory together. Between two steps nodes
    /// that would fill the cache are written out.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn change_keys_in_steps(
        &self,
        working: &mut Working,
        mutations: &[Mutation],
        runs: &[BlockRun],
        dead: usize,
    ) -> Result<i64> {
        let mut inodes = 0;
        let capacity = self.store.cache_use().capacity;
        let step_max = (capacity / REPLAY_STEP_SHARE).clamp(1, BATCH_MUTATIONS_MAX);
        let removals = mutations.partition_point(|mutation| mutation.value.is_some());
        let (puts, removals) = mutations.split_at(removals);
        for part in [removals, puts] {
            let (mut rest, mut step) = (part, step_max);
            while !rest.is_empty() {
                let (now, later) = rest.split_at(step.min(rest.len()));
                let batch = Batch { mutations: now, runs: &[], dead: 0, origin: Origin::Replay };
                let roots = self.roots(working);
                match self.change_keys(working, &roots, batch) {
                    Ok(change) => {
                        inodes += change;
                        rest = later;
                    }
                    Err(Error::NoSpace) if now.len() > 1 => step = now.len() / 2,
                    Err(error) => return Err(error),
                }
                working.enter_nodes(&self.store);
                self.throttle_replay(working)?;
            }
        }
        let roots = self.roots(working);
        working.prepare_runs(&self.store, &roots, runs)?;
        working.pending_dead.reserve(dead)?;
        Ok(inodes)
    }

    /// Puts and removes keys in the tree, and returns by how much the number of inodes changes.
    /// Afterwards the groups of its runs are in memory, and so are the groups of every node that
    /// the tree took or released.
    fn change_keys(&self, working: &mut Working, roots: &Roots, batch: Batch<'_>) -> Result<i64> {
        if let Some(change) = self.change_leaves(working, roots, batch)? {
            return Ok(change);
        }
        let plan = self.plan(working, roots, batch)?;
        working.prepare_change(&self.store, roots, &plan, batch.runs)?;
        self.change_tree(working, plan, |tree| {
            let mut inodes = 0;
            for mutation in batch.mutations {
                let there = match &mutation.value {
                    Some(value) => tree.put(&mutation.key, value)?,
                    None => tree.remove(&mutation.key)?,
                };
                inodes += change_of_inodes(mutation, there);
            }
            Ok(inodes)
        })
    }

    /// The plan of these changes, if the volume has room for them.
    #[inline(never)]
    fn plan(
        &self,
        working: &mut Working,
        roots: &Roots,
        Batch { mutations, runs, dead, origin }: Batch<'_>,
    ) -> Result<Plan> {
        let changes = memory::collect(mutations.iter().map(planned))?;
        match origin {
            Origin::Replay => self.store.plan(&roots.working, working.generation, &changes),
            Origin::Operation(class) => self.budget().check(
                working,
                roots,
                &Wanted { changes: &changes, runs, dead, class },
            ),
        }
    }

    /// As [`change_keys`](Self::change_keys), for changes that stay inside leaves: these need no
    /// plan. `None` if one does not, or if the estimates do not show that there is room.
    #[inline(never)]
    fn change_leaves(
        &self,
        working: &mut Working,
        roots: &Roots,
        batch: Batch<'_>,
    ) -> Result<Option<i64>> {
        let changes = batch.mutations.iter().map(planned);
        let (root, generation) = (&roots.working, working.generation);
        let ready = match self.store.find_leaves(root, generation, changes, &mut working.scratch) {
            Ok(true) => self.prepare_leaves(working, roots, &batch),
            other => other,
        };
        if !matches!(ready, Ok(true)) {
            working.scratch.copies.clear();
            return ready.map(|_| None);
        }
        // Excludes readers.
        let mut view = self.view.write();
        let Working { scratch, pool, .. } = working;
        let (found, copies) = (&scratch.found, &mut scratch.copies);
        self.store
            .make_copies(copies, &mut view.root, generation, pool)
            .map_err(|error| self.lifecycle.fail_with(HALF_CHANGED, error))?;
        let mut inodes = 0;
        // Puts come in key order: those of new keys have moved the next ones of their leaf.
        let (mut last, mut moved) = (BlockAddress::NONE, 0);
        for (mutation, FoundKey { leaf, index }) in batch.mutations.iter().zip(found) {
            let leaf = copies.address(*leaf);
            if leaf != last {
                (last, moved) = (leaf, 0);
            }
            let there = self
                .store
                .change_leaf(leaf, index + moved, &mutation.key, mutation.value.as_deref())
                .map_err(|error| self.lifecycle.fail_with(HALF_CHANGED, error))?;
            moved += usize::from(!there);
            inodes += change_of_inodes(mutation, there);
        }
        copies.clear();
        drop(view);
        Ok(Some(inodes))
    }

    /// Everything about space that can fail in a change inside leaves. `false` if the estimates do
    /// not show that there is room.
    #[inline(never)]
    fn prepare_leaves(
        &self,
        working: &mut Working,
        roots: &Roots,
        Batch { runs, dead, origin, .. }: &Batch<'_>,
    ) -> Result<bool> {
        let nodes = working.scratch.copies.len();
        let copies = usize::from(self.store.device.superblock.metadata_copies);
        let shared = (nodes as u64).min(working.snapshots.shared_nodes) as usize;
        if let Origin::Operation(class) = *origin {
            let dead = (dead + shared * copies) as u64;
            let more = More { groups: working.space.clean_groups(runs)?, dead };
            if !self.budget().has_room(working, roots, nodes as u64, more, class)? {
                return Ok(false);
            }
        }
        if nodes == 0 {
            working.prepare_runs(&self.store, roots, runs)?;
            working.pending_dead.reserve(*dead)?;
            return Ok(true);
        }
        working.prepare_nodes(&self.store, roots, nodes, None, runs)?;
        working.pending_dead.reserve(dead + nodes * copies)?;
        working.pool.reserve(nodes, nodes)?;
        working.prepare_new_nodes(&self.store, nodes)?;
        self.store.reserve(nodes)?;
        Ok(true)
    }

    /// Updates the counters and the next log record after a mutation.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    fn note(&self, working: &mut Working, mutation: &Mutation, origin: Origin, limit: usize) {
        let key = mutation.key;
        match key.kind() {
            Some(Kind::Inode) => {
                working.next_inode = working.next_inode.max(key.inode_number().0.saturating_add(1))
            }
            Some(Kind::Orphan) => self.background.wake_reclaim(),
            _ => {}
        }
        if let Origin::Operation(_) = origin {
            let size = payload::size_of(mutation.value.as_ref().map(Vec::len));
            working.pending.add(key, size, limit);
            let sequence = working.sequence + 1;
            if let Some(changed) = &mut working.changed {
                changed.note(sequence, key);
            }
        }
    }

    /// Runs changes that were planned and [prepared](Working::prepare_change) on the working tree,
    /// with readers excluded.
    ///
    /// # Errors
    /// None on a sound volume. After an error the volume is read-only.
    // Its variables must not stay on the stack of the caller.
    #[inline(never)]
    pub(super) fn change_tree<T>(
        &self,
        working: &mut Working,
        plan: Plan,
        change: impl FnOnce(&mut TreeWriter<'_, M, P>) -> Result<T>,
    ) -> Result<T> {
        let Plan { mut visited, confined, .. } = plan;
        self.store.keep(&visited)?;
        // The cache is their only owner now, so they are changed in place.
        visited.iter_mut().for_each(|visited| visited.node = None);
        let count = self.store.device.superblock.node_blocks();
        let space = &working.space;
        let run = |start: BlockAddress| BlockRun { start, count };
        let changed = change(&mut TreeWriter {
            store: &self.store,
            root: &mut self.view.write().root,
            generation: working.generation,
            pool: &mut working.pool,
            nodes: &mut working.nodes,
            scratch: &mut working.scratch,
            shrunk: false,
            // A neighbour's pointer comes from the medium and was not followed before.
            releasable: &|pointer| {
                let counted =
                    |run| confined.as_ref().is_none_or(|groups| space.is_dirty_or_in(run, groups));
                let mut runs = pointer.copies().map(run);
                runs.all(|run| {
                    self.store.device.contains(run) && space.is_loaded(run) && counted(run)
                })
            },
        });
        self.store.let_go(&visited);
        changed.map_err(|error| self.lifecycle.fail_with(HALF_CHANGED, error))
    }
}

/// What a mutation needs of the tree.
fn planned(mutation: &Mutation) -> PlannedChange {
    PlannedChange { key: mutation.key, value_len: mutation.value.as_ref().map(Vec::len) }
}

/// Change of the number of inodes; `there`: the key was in the tree.
fn change_of_inodes(mutation: &Mutation, there: bool) -> i64 {
    match mutation.key.kind() {
        Some(Kind::Inode) => i64::from(mutation.value.is_some()) - i64::from(there),
        _ => 0,
    }
}

/// Whether a key can be in a log record. Other keys follow from the recorded ones, and applying
/// those produces them again.
pub(super) fn is_recorded(key: &Key) -> bool {
    !matches!(key.kind(), Some(Kind::Group | Kind::SharedExtent | Kind::DeadList | Kind::Snapshot))
}

/// Whether a record may hold this mutation.
pub(super) fn check_recorded<M: Medium, P: Platform>(
    store: &Store<M, P>,
    key: &Key,
    value_len: Option<usize>,
) -> Result<()> {
    let damaged = |reason| Error::CorruptLog { address: store.device.superblock.log.start, reason };
    if !is_recorded(key) {
        return Err(damaged("log record with a key that is in none"));
    }
    if value_len.is_some_and(|length| length > store.device.superblock.value_len_max()) {
        return Err(damaged("value longer than a node"));
    }
    Ok(())
}

/// Largest payload of one log record: a quarter of the log, so that one record never fills it.
/// And half of the memory for nodes: a record is in memory as a whole when it is replayed.
pub(super) fn record_limit<M: Medium, P: Platform>(store: &Store<M, P>) -> usize {
    let superblock = &store.device.superblock;
    let log = superblock.log.count * u64::from(superblock.block_size);
    let nodes = store.node_memory() as u64;
    (log / crate::log::RECORD_SHARE)
        .min(nodes / 2)
        .saturating_sub(crate::format::RECORD_HEADER as u64) as usize
}
