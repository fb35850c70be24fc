//! Checkpoints: the working state becomes frozen under the writer's lock. It is
//! [written](crate::engine::checkpoint::steps) without that lock, and is then the checkpointed
//! state.

mod steps;
mod throttle;

use core::cmp::Reverse;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::{Frozen, Working};
use crate::error::Result;
use crate::format::Metaroot;
use crate::format::key::Key;
use crate::memory;
use crate::platform::Platform;
use crate::sort::sort_by_key;
use crate::tree::{Plan, PlannedChange};
use crate::types::Generation;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes the working state the frozen one. No other state is frozen.
    ///
    /// The working state must be at a transaction point: nothing is pending. Otherwise the caller
    /// finishes the checkpoint before it releases the commit lock. The freeze then skips a log
    /// sequence number for the pending changes, so a commit record that is written before the
    /// checkpoint is durable would not continue the log.
    ///
    /// # Errors
    /// `Poisoned`: the working state of a volume that failed may be half of something. Nodes and
    /// bitmaps that cannot be read; then nothing has changed, except that changed bitmaps are in
    /// the tree.
    pub(crate) fn freeze(&self, working: &mut Working) -> Result<()> {
        debug_assert!(working.frozen.is_none());
        self.lifecycle.check_not_failed()?;
        // Each of the two may copy nodes, which changes the other. A node is copied only once in a
        // generation, so the loop ends.
        while self.put_bitmaps_into_tree(working)? || self.put_dead_into_tree(working)? {}
        let mut view = self.view.write();
        let mut room = self.store.room_to_seal()?;
        working.space.reserve_freeze()?;
        // Nodes that were sealed to be written out and have not changed since belong to this
        // checkpoint.
        let left = working.leaving.drain(..);
        left.filter_map(|pointer| self.store.sealed(&pointer)).for_each(|sealed| room.push(sealed));
        let sealed = self.store.seal(&mut view.root, room);
        // Dirty nodes are in memory, so this error cannot occur.
        let mut nodes = sealed.map_err(|error| {
            self.lifecycle.fail_with("a checkpoint could not be prepared", error)
        })?;
        // They are taken from the end, so neighbours on the medium go in one request.
        sort_by_key(&mut nodes, |sealed| Reverse(sealed.pointer.addresses[0]));
        let uncommitted = !working.pending.is_empty();
        if uncommitted {
            working.pending.clear();
            working.log.skip();
        }
        let (data_cursor, node_cursor) = working.space.cursors();
        let metaroot = Metaroot {
            generation: working.generation,
            root: view.root.pointer,
            height: view.root.height,
            next_inode: working.next_inode,
            inodes: working.inodes,
            used_blocks: working.space.used(),
            nodes: working.nodes,
            log: working.log.position(),
            mask: self.parameters.mask(),
            timer_ms: self.parameters.timer_ms(),
            data_cursor,
            node_cursor,
            snapshots: working.snapshots,
        };
        let (all, log_used, available) =
            (nodes.len(), working.log.used(), working.space.available());
        working.frozen = Some(Frozen { metaroot, nodes, all, log_used, available, uncommitted });
        working.generation = Generation(working.generation.0 + 1);
        working.parameters_changed = false;
        working.space.freeze();
        working.log.cover();
        Ok(())
    }

    /// Puts the bitmaps of changed groups into the tree; `true` when there were any.
    pub(crate) fn put_bitmaps_into_tree(&self, working: &mut Working) -> Result<bool> {
        let roots = self.roots(working);
        let value_len = Some(1 + self.store.device.superblock.group_blocks as usize / 8);
        let groups = working.space.dirty_group_indexes()?;
        let changes = memory::collect(
            groups.iter().map(|index| PlannedChange { key: Key::group(*index), value_len }),
        )?;
        if changes.is_empty() {
            return Ok(false);
        }
        let plan = self.store.plan(&roots.working, working.generation, &changes)?;
        let plan = Plan { confined: Some(groups), ..plan };
        working.prepare_change(&self.store, &roots, &plan, &[])?;
        let mut values = working.space.take_dirty_groups()?;
        // Removals come last: merging then cannot make a leaf fuller than planned.
        sort_by_key(&mut values, |(key, value)| (value.is_none(), *key));
        self.change_tree(working, plan, |tree| {
            for (key, value) in &values {
                match value {
                    Some(value) => drop(tree.put(key, value)?),
                    None => drop(tree.remove(key)?),
                }
            }
            Ok(())
        })?;
        working.enter_nodes(&self.store);
        Ok(true)
    }
}
