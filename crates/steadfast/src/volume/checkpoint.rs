//! Checkpoints: the working state becomes frozen under the writer's lock, is written without it, and is then the durable
//! state.

use steadfast_media::Medium;

use super::Volume;
use super::state::{Frozen, Working};
use crate::error::{Error, Result};
use crate::fs::memory;
use crate::key::Key;
use crate::layout::Metaroot;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::{Plan, PlannedChange, Root, SealedNode};
use crate::types::Generation;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes the working state the frozen one. It is at a transaction point: nothing is pending, or it becomes one with
    /// this checkpoint, which the caller then finishes before it lets go of the commit lock: what no record has leaves out
    /// a number of the log, and a mark before the checkpoint is durable would continue nothing. No other state is frozen.
    ///
    /// # Errors
    /// Nodes and bitmaps that cannot be read. Nothing has happened then but that changed bitmaps are in the tree.
    pub(super) fn freeze(&self, working: &mut Working) -> Result<()> {
        debug_assert!(working.frozen.is_none());
        // Each of the two changes what the other writes, in ever fewer nodes: a node is copied once a generation.
        while self.flush_groups(working)? || self.flush_dead(working)? {}
        let mut root = self.view.write();
        let room = self.store.room_to_seal()?;
        working.space.reserve_freeze()?;
        let sealed = self.store.seal(&mut root, room);
        // Dirty nodes are in memory, so this is never seen.
        let nodes = sealed.map_err(|error| self.fail("a checkpoint could not be prepared", error))?;
        let unmarked = !working.pending.is_empty();
        if unmarked {
            working.pending.clear();
            working.log.skip();
        }
        let (data_cursor, node_cursor) = working.space.cursors();
        let metaroot = Metaroot {
            generation: working.generation,
            root: root.pointer,
            height: root.height,
            next_inode: working.next_inode,
            inodes: working.inodes,
            used_blocks: working.space.used(),
            nodes: working.nodes,
            log: working.log.position(),
            mask: self.mask(),
            timer_ms: self.timer_ms(),
            data_cursor,
            node_cursor,
            snapshots: working.snapshots,
        };
        working.frozen = Some(Frozen { metaroot, nodes, unmarked });
        working.generation = Generation(working.generation.0 + 1);
        working.parameters_changed = false;
        working.space.freeze();
        working.log.freeze();
        Ok(())
    }

    /// Puts the bitmaps of changed groups into the tree; `true` when there were any.
    pub(super) fn flush_groups(&self, working: &mut Working) -> Result<bool> {
        let roots = self.roots(working);
        let value_len = Some(1 + self.store.superblock.group_blocks as usize / 8);
        let groups = working.space.dirty_group_indexes()?;
        let changes =
            memory::collect(groups.iter().map(|index| PlannedChange { key: Key::group(*index), value_len }))?;
        if changes.is_empty() {
            return Ok(false);
        }
        let plan = self.store.plan(&roots.working, working.generation, &changes)?;
        let plan = Plan { confined: Some(groups), ..plan };
        self.prepare_change(working, &roots, &plan, &[])?;
        let mut values = working.space.take_dirty_groups()?;
        // Removals come last: merging then cannot make a leaf fuller than planned.
        values.sort_unstable_by_key(|(key, value)| (value.is_none(), *key));
        self.change_tree(working, plan, |tree| {
            for (key, value) in &values {
                match value {
                    Some(value) => tree.put(key, value)?,
                    None => drop(tree.remove(key)?),
                }
            }
            Ok(())
        })?;
        self.settle(working);
        Ok(true)
    }

    /// Writes the frozen state, if there is one, and makes it the durable one.
    ///
    /// # Errors
    /// The medium's; the volume is read-only then.
    pub(super) fn finish_checkpoint(&self) -> Result<()> {
        let _one_at_a_time = self.checkpoint.lock();
        let (metaroot, nodes) = {
            let working = self.working.lock();
            let Some(frozen) = &working.frozen else { return Ok(()) };
            let share =
                |sealed: &SealedNode| SealedNode { pointer: sealed.pointer, node: sealed.node.clone() };
            (frozen.metaroot, memory::collect(frozen.nodes.iter().map(share))?)
        };
        self.write_checkpoint(&metaroot, &nodes).map_err(|error| match error {
            // Before anything that counts was written; it is written again by whoever needs it next.
            Error::OutOfMemory => error,
            error => self.fail("a checkpoint could not be written", error),
        })?;
        self.thaw(metaroot, &nodes);
        Ok(())
    }

    fn write_checkpoint(&self, metaroot: &Metaroot, nodes: &[SealedNode]) -> Result<()> {
        let store = &self.store;
        store.write_nodes(nodes)?;
        if !planted(Sabotage::SkipFlushBeforeMetaroot) {
            store.flush()?;
        }
        metaroot.write(&store.medium, &store.superblock_now(), &store.platform)?;
        if planted(Sabotage::SkipFlushAfterMetaroot) { Ok(()) } else { store.flush() }
    }

    fn thaw(&self, metaroot: Metaroot, nodes: &[SealedNode]) {
        let mut working = self.working.lock();
        for sealed in nodes {
            self.store.set_clean(sealed.pointer.addresses[0]);
        }
        working.frozen = None;
        working.durable = metaroot;
        working.log.thaw(&self.store);
        self.tally.lock().checkpoints += 1;
        let pins = self.pins.lock();
        working.space.thaw(&self.store, &metaroot.root(), &pins);
    }

    /// Writes dirty nodes out, without a checkpoint, when they take more than their share of the cache. An operation does
    /// it before it begins, so that one that is refused for it has changed nothing.
    ///
    /// # Errors
    /// Nodes and bitmaps that cannot be read; the medium's, with which the volume is read-only.
    pub(super) fn relieve_memory(&self) -> Result<()> {
        let usage = self.store.cache_use();
        let crowded = usage.pinned > usage.capacity / 2;
        if !crowded && !self.wants_flush(&self.working.lock()) {
            return Ok(());
        }
        self.finish_checkpoint()?;
        self.write_out(&mut self.working.lock())
    }

    /// Whether allocation bitmaps or dead lists take so much memory that they should go into the tree.
    fn wants_flush(&self, working: &Working) -> bool {
        working.space.wants_flush() || working.dying.len() > self.dying_max()
    }

    fn write_out(&self, working: &mut Working) -> Result<()> {
        if self.wants_flush(working) {
            self.flush_groups(working)?;
            while self.flush_dead(working)? {}
        }
        let mut root: lock_api::RwLockWriteGuard<'_, P::RwLock, Root> = self.view.write();
        let room = self.store.room_to_seal()?;
        let nodes = self.store.seal(&mut root, room)?;
        // Without memory the nodes stay as they are, to be written by whoever needs it next.
        let written = self.store.write_nodes(&nodes);
        if written == Err(Error::OutOfMemory) {
            nodes.iter().for_each(|sealed| self.store.set_dirty(sealed.pointer.addresses[0]));
            return written;
        }
        written.map_err(|error| self.fail("metadata could not be written out", error))?;
        for sealed in &nodes {
            self.store.set_clean(sealed.pointer.addresses[0]);
        }
        Ok(())
    }
}
