//! How much room a change must leave: a freeze always finds the nodes that it needs, and what holds space can be removed
//! on a full volume.

use steadfast_media::Medium;

use super::Volume;
use super::state::Working;
use crate::keyspace::SpaceClass;
use crate::platform::Platform;
use crate::tree::Root;

/// What a change will have touched, beside its own nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct More {
    /// Groups whose bitmap changes and has not changed yet.
    pub groups: u64,
    /// Entries of the newest snapshot's dead list.
    pub dead: u64,
}

/// Bytes of a leaf that one entry of a dead list takes, with its share of the item, where nodes are smallest.
const DEAD_ENTRY_BYTES: u64 = 26;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Blocks of all copies of one node.
    pub(super) fn node_cost(&self) -> u64 {
        self.store.superblock.node_blocks() * u64::from(self.store.superblock.metadata_copies)
    }

    /// Blocks that the next freeze may need to write the bitmaps of changed groups and the dead list.
    pub(super) fn freeze_cost(&self, working: &Working, root: &Root, more: More) -> u64 {
        let all = working.space.groups();
        let groups = (working.space.dirty_groups() as u64 + 2).min(all);
        let more_groups = more.groups.min(all - groups);
        let height = u64::from(root.height);
        // Each changed group copies its path; copying frees old nodes, which may change as many groups again. Those of
        // one batch are near each other in the tree.
        let copies = (2 * groups * height + 2 * more_groups).min(working.nodes.saturating_add(height));
        // A group that was full or empty gets a bitmap, which may split its leaf.
        let splits = 3 * (groups + more_groups) / 2 + 2 * height + 1;
        let dead = self.dead_list_cost(working, root, more.dead, copies);
        copies.saturating_add(splits).saturating_add(dead).saturating_mul(self.node_cost())
    }

    /// Nodes that the dead list may need when `more` entries and those for `copies` nodes come to what there is.
    fn dead_list_cost(&self, working: &Working, root: &Root, more: u64, copies: u64) -> u64 {
        let shared = working.snapshots.shared_nodes;
        let dying = working.dying.len() as u64;
        if working.snapshots.newest.0 == 0 || (shared == 0 && dying == 0 && more == 0) {
            return 0;
        }
        self.dead_list_nodes(root, dying.saturating_add(more), copies, shared)
    }

    /// Nodes for a dead list of so many `entries` and those for `copies` nodes, `shared` of which a snapshot holds.
    fn dead_list_nodes(&self, root: &Root, entries: u64, copies: u64, shared: u64) -> u64 {
        let height = u64::from(root.height);
        let old_nodes = copies.saturating_add(height).min(shared);
        let entries = entries
            .saturating_add(old_nodes.saturating_mul(u64::from(self.store.superblock.metadata_copies)));
        // New leaves are half full at least. What the last round plans is more than it uses.
        let half = u64::from(self.store.superblock.node_size) / 2;
        entries.saturating_mul(DEAD_ENTRY_BYTES).div_ceil(half).saturating_add(4 * height + 16)
    }

    /// Blocks that a change must leave beside those for the freeze.
    pub(super) fn reserve_for(&self, working: &Working, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Normal => {
                let kept = self.kept_for_removal(working.snapshots.shared_nodes);
                self.store.superblock.reserve_blocks.saturating_add(kept)
            }
            SpaceClass::Freeing => 0,
        }
    }

    /// Blocks kept so that everything can be removed, in any order, while a snapshot holds it and nothing comes back: a
    /// copy of every node that the tree has in common with the snapshot, and dead lists of what is in them.
    pub(super) fn kept_for_removal(&self, shared_nodes: u64) -> u64 {
        shared_nodes.saturating_add(shared_nodes / 4).saturating_mul(self.node_cost())
    }

    /// Blocks that the first freeze after the first snapshot may need beyond what it needs without one: its dead list.
    /// Where there is a snapshot already, [`freeze_cost`](Self::freeze_cost) has it.
    pub(super) fn first_dead_list_cost(&self, working: &Working, root: &Root) -> u64 {
        if working.snapshots.newest.0 != 0 && working.snapshots.shared_nodes != 0 {
            return 0;
        }
        self.dead_list_nodes(root, 0, working.nodes, working.nodes).saturating_mul(self.node_cost())
    }

    /// Blocks that can be allocated, counting those set aside for nodes.
    pub(super) fn available(&self, working: &Working) -> u64 {
        working.space.available() + working.pool.len() as u64 * self.node_cost()
    }

    /// Blocks of file data that can be reserved now: what is free less the reserve.
    pub(super) fn available_for_data(&self, working: &Working) -> u64 {
        let root = *self.view.read();
        let reserve = self.reserve_for(working, SpaceClass::Normal);
        let kept = reserve.saturating_add(self.freeze_cost(working, &root, More::default()));
        self.available(working).saturating_sub(kept).min(working.space.available_for_data())
    }
}
