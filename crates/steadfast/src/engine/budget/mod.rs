//! How much room a change must leave. A freeze always finds the nodes that it needs, and files and
//! snapshots can be removed on a full volume.
//!
//! # What removing needs
//! Without a snapshot, the next checkpoint frees the copies that removing makes. So the reserve is
//! enough for any number of removals. Under a snapshot nothing comes back. But nothing is taken
//! twice either:
//! - a node that the newest snapshot holds is copied once; the copy belongs to the live tree alone,
//!   and copies of that come back. So at most one new node is needed for each shared node:
//!   `shared_nodes`;
//! - each copy of such a node, and each run of data that the snapshot holds, gets one entry in the
//!   dead list. Runs of data are no more than their blocks (`shared_data`), and no more than the
//!   extents that fit the nodes of the live tree.
//!
//! [`kept_for_removal`] is the sum, with the dead list's leaves half full
//! and its branches. An operation that is no removal leaves that much room, beside the reserve and
//! [`freeze_cost`](Working::freeze_cost). Taking a snapshot makes the whole tree shared, so it is
//! refused without that room. A removal reduces the sum by what it takes, so after a checkpoint the
//! reserve is there for the next removal. Both counts are upper bounds that are known without
//! reading the tree.
//!
//! # What a removal is checked against
//! Estimates of what the next freeze needs must hold for any tree. So they are far too large for a
//! small one. If the estimates refuse a removal, [`check`](Budget::check) plans the
//! change and the freeze together and counts.

mod data;
pub(crate) mod futile;
pub(crate) mod reclaim;
pub(crate) mod room;

pub(crate) use data::Pieces;
pub(crate) use futile::Shortage;

use lock_api::RwLock;
use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::keyspace::SpaceClass;
use crate::engine::lifecycle::LifecycleCell;
use crate::engine::parameters::LiveParameters;
use crate::engine::reader::View;
use crate::engine::state::Working;
use crate::format::extent::EXTENT_HEADER_LEN;
use crate::format::{
    NodePointer, RESERVE_NODES_MIN, Root, Superblock, dead_item_len, entries_max, item_capacity,
    item_size, value_len_max,
};
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::profile::SNAPSHOTS;
use crate::tree::Store;

/// What a change touches beside its own nodes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct More {
    /// Groups whose bitmap this change is the first to change.
    pub groups: u64,
    /// Entries of the newest snapshot's dead list.
    pub dead: u64,
}

/// What waits for the next freeze; empty directly after one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unfrozen {
    /// Groups whose bitmap has changed.
    pub groups: u64,
    /// Entries of the newest snapshot's dead list.
    pub dead: u64,
}

impl Unfrozen {
    pub fn of(working: &Working) -> Unfrozen {
        Unfrozen {
            groups: working.space.dirty_groups() as u64,
            dead: working.pending_dead.len() as u64,
        }
    }
}

impl Working {
    /// Blocks that the next freeze may need to write the bitmaps of changed groups and the dead
    /// list. It is an estimate for any tree, without reading it.
    pub(crate) fn freeze_cost(&self, superblock: &Superblock, root: &Root, more: More) -> u64 {
        self.freeze_cost_of(superblock, root, Unfrozen::of(self), more)
    }

    /// As [`freeze_cost`](Self::freeze_cost), with `unfrozen` waiting for the freeze.
    pub(crate) fn freeze_cost_of(
        &self,
        superblock: &Superblock,
        root: &Root,
        unfrozen: Unfrozen,
        more: More,
    ) -> u64 {
        let all = self.space.groups();
        let groups = unfrozen.groups.saturating_add(2).min(all);
        let more_groups = more.groups.min(all - groups);
        let height = u64::from(root.height);
        // Each changed group copies its path. Copying frees old nodes, which may change as many
        // groups again. The groups of one batch are near each other in the tree.
        let copies = (2 * groups * height + 2 * more_groups).min(self.nodes.saturating_add(height));
        // A group that was full or empty gets a bitmap, which may split its leaf.
        let splits = 3 * (groups + more_groups) / 2 + 2 * height + 1;
        let dead =
            self.dead_list_cost(superblock, root, unfrozen.dead.saturating_add(more.dead), copies);
        copies.saturating_add(splits).saturating_add(dead).saturating_mul(superblock.node_cost())
    }

    /// Nodes that the dead list may need for `entries` entries and for the old versions of `copies`
    /// copied nodes.
    fn dead_list_cost(
        &self,
        superblock: &Superblock,
        root: &Root,
        entries: u64,
        copies: u64,
    ) -> u64 {
        if self.snapshots.newest.0 == 0 {
            return 0;
        }
        let old_nodes = copies
            .min(self.snapshots.shared_nodes)
            .saturating_mul(u64::from(superblock.metadata_copies));
        let entries = entries.saturating_add(old_nodes);
        dead_nodes(superblock, entries).saturating_add(u64::from(root.height) + 2)
    }

    /// Blocks kept for removals under the newest snapshot.
    pub(crate) fn kept(&self, superblock: &Superblock) -> u64 {
        match self.snapshots.newest.0 {
            0 => 0,
            _ if !SNAPSHOTS => 0,
            _ => {
                let data = self.shared_data.min(self.live_data(superblock));
                kept_for_removal(superblock, self.nodes, self.snapshots.shared_nodes, data)
            }
        }
    }

    /// Blocks of data that the live tree names.
    pub(crate) fn live_data(&self, superblock: &Superblock) -> u64 {
        let nodes = self.nodes.saturating_mul(superblock.node_cost());
        self.space.used().saturating_sub(nodes).saturating_sub(self.snapshots.blocks)
    }

    /// Blocks that can be allocated, including those set aside for nodes.
    pub(crate) fn available(&self, superblock: &Superblock) -> u64 {
        self.space.available() + self.pool.len() as u64 * superblock.node_cost()
    }

    /// Unpublished blocks of writes in progress, without those set aside for nodes.
    pub(crate) fn unpublished_data(&self, superblock: &Superblock) -> u64 {
        self.space.unpublished().saturating_sub(self.pool.len() as u64 * superblock.node_cost())
    }
}

/// Nodes of a dead list with `entries` entries.
fn dead_nodes(superblock: &Superblock, entries: u64) -> u64 {
    if entries == 0 {
        return 0;
    }
    let per_item = entries_max(value_len_max(superblock.node_size as usize));
    let capacity = item_capacity(superblock.node_size as usize);
    // A leaf that splits because of one more item keeps half of them.
    let kept = |size: usize| ((capacity / size).max(1) as u64).div_ceil(2);
    let mut nodes = entries.div_ceil(kept(item_size(dead_item_len(per_item))) * per_item as u64);
    let mut all = nodes;
    let fan_out = kept(item_size(NodePointer::LEN)).max(2);
    while nodes > 1 {
        nodes = nodes.div_ceil(fan_out);
        all = all.saturating_add(nodes);
    }
    all
}

/// Blocks that removing everything can take under a snapshot. The snapshot shares `shared` of
/// the live tree's `nodes` and `data` of its data blocks; see the module.
pub(crate) fn kept_for_removal(superblock: &Superblock, nodes: u64, shared: u64, data: u64) -> u64 {
    let extents =
        (item_capacity(superblock.node_size as usize) / item_size(EXTENT_HEADER_LEN)) as u64;
    let runs = data.min(nodes.saturating_mul(extents));
    let entries = shared.saturating_mul(u64::from(superblock.metadata_copies)).saturating_add(runs);
    shared.saturating_add(dead_nodes(superblock, entries)).saturating_mul(superblock.node_cost())
}

/// The parts of the engine that decide whether there is room for a change.
pub(crate) struct Budget<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    view: &'a RwLock<P::RwLock, View>,
    lifecycle: &'a LifecycleCell<P::Mutex>,
    parameters: &'a LiveParameters,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(crate) fn budget(&self) -> Budget<'_, M, P> {
        let Engine { store, view, lifecycle, parameters, .. } = self;
        Budget { store, view, lifecycle, parameters }
    }
}

impl<M: Medium, P: Platform> Budget<'_, M, P> {
    /// Whether an operation without space may make a checkpoint, which is a transaction point.
    pub(crate) fn may_reclaim(&self) -> bool {
        self.parameters.active_mask(self.lifecycle).contains(TransactionMask::VOLUME_FULL)
    }

    /// Blocks that a change of this class must leave beside those for the freeze: its part of the
    /// reserve, and the room kept for removals.
    pub(crate) fn kept_from_class(&self, working: &Working, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Normal => self
                .store
                .device
                .reserve_blocks()
                .saturating_add(working.kept(&self.store.device.superblock)),
            SpaceClass::Rewrite => self
                .reserve_of_rewrites()
                .saturating_add(working.kept(&self.store.device.superblock)),
            SpaceClass::Freeing => 0,
        }
    }

    /// The part of the reserve that rewrites leave: half of it, and at least what removals always
    /// need. If rewrites cannot reclaim what they take, they leave all of it.
    fn reserve_of_rewrites(&self) -> u64 {
        let reserve = self.store.device.reserve_blocks();
        match self.may_reclaim() {
            true => reserve
                .div_ceil(2)
                .max(RESERVE_NODES_MIN * self.store.device.superblock.node_cost())
                .min(reserve),
            false => reserve,
        }
    }
}
