//! How much file data a volume can still accept: what statfs promises, and the basis of its
//! promises.
//!
//! # What is promised
//! The promised bytes can be written into one new file, in requests of any size. With blocks of 128
//! bytes a request must have at least 16 blocks. The free space must be in runs of 16 blocks on
//! average or longer. Beside the data there is room for
//! - the reserve, the room kept for removals under a snapshot, and changes that make the volume no
//!   fuller;
//! - the checkpoint that frees blocks, with no changed group: a writer without space makes a
//!   checkpoint, after which no group is changed. If the mask has no `volume full`, or the
//!   volume is held, nothing comes back. Freed blocks do not count then, and groups that are or
//!   will be changed do;
//! - the last request: the nodes on its path, and the groups of its blocks ([`Pieces`]);
//! - the nodes that map the data ([`nodes_for_data`](Budget::nodes_for_data)), half full, as they
//!   are after an insertion that is not at the end of the tree.
//!
//! All of it is known without reading the tree. It is a lower bound. It can be exceeded by up to
//! half of the nodes that map the data, and by the room estimated for the freeze.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::{Budget, More, Unfrozen};
use crate::engine::keyspace::{EXTENT_CHANGES_MAX, SpaceClass};
use crate::engine::state::Working;
use crate::error::Result;
use crate::format::extent::{EXTENT_HEADER_LEN, written_blocks_max};
use crate::format::{NodePointer, Root, item_capacity, item_size};
use crate::platform::Platform;

/// Nodes that one request adds to the tree beside copies of those on its path: leaves of two
/// extents, and of a name.
const STEP_SPLITS: u64 = 8;

/// The pieces in which data comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    /// Groups in which the blocks of one request lie.
    groups: u64,
    /// Blocks of an extent, on average.
    blocks: u32,
}

impl Pieces {
    /// A file that is written from front to back into fragmented free space. The search examines
    /// eight groups for a long run.
    pub const LONG: Pieces = Pieces { groups: 8, blocks: 16 };
    /// An upper bound for rewrites: they lie in few groups, and the changed groups are known.
    pub const REWRITE: Pieces = Pieces { groups: 0, blocks: 16 };
    /// Scattered single blocks, as a page cache writes them out: as many runs in one request as fit
    /// a batch.
    pub const SINGLE: Pieces = Pieces { groups: EXTENT_CHANGES_MAX as u64, blocks: 1 };
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Bytes of file data that the volume can surely still accept now, in any pieces.
    ///
    /// Freed blocks count if a checkpoint may be made for them. It may not while the volume is
    /// held, or without `volume full` in the mask. A larger write may succeed, too: only the write
    /// itself decides.
    pub(crate) fn available_bytes(&self) -> Result<u64> {
        self.lifecycle.check_not_closed()?;
        self.lifecycle.check_shown()?;
        self.replay_overlay()?;
        let blocks =
            self.budget().data_budget(&self.working.lock(), SpaceClass::Normal, Pieces::SINGLE);
        Ok(blocks.saturating_mul(u64::from(self.store.device.superblock.block_size)))
    }
}

impl<M: Medium, P: Platform> Budget<'_, M, P> {
    /// Blocks of data for which there is room; see the module.
    pub(crate) fn data_budget(&self, working: &Working, class: SpaceClass, pieces: Pieces) -> u64 {
        let room = self.budget_after_checkpoint(working, class, pieces.groups);
        let fits = |blocks: u64| {
            let nodes = self.nodes_for_data(working, blocks, pieces.blocks);
            blocks.saturating_add(nodes.saturating_mul(self.store.device.superblock.node_cost()))
                <= room
        };
        // More data needs more nodes, so bisection finds the largest amount that fits.
        let (mut surely, mut beyond) = (0, room.saturating_add(1));
        while beyond - surely > 1 {
            let middle = surely + (beyond - surely) / 2;
            if fits(middle) {
                surely = middle;
            } else {
                beyond = middle;
            }
        }
        surely
    }

    /// Blocks that data and the nodes that map it can take: after a checkpoint, if one may be made.
    fn budget_after_checkpoint(&self, working: &Working, class: SpaceClass, groups: u64) -> u64 {
        let root = self.view.read().root;
        let reclaims = self.may_reclaim();
        let (freed, unfrozen) = match reclaims {
            true => (working.space.almost_free(), Unfrozen::default()),
            false => (0, Unfrozen::of(working)),
        };
        let free = working.available(&self.store.device.superblock).saturating_add(freed);
        let ahead =
            if reclaims { 0 } else { free / u64::from(self.store.device.superblock.group_blocks) };
        let more = More { groups: groups.saturating_add(ahead), dead: 0 };
        let freeze = working.freeze_cost_of(&self.store.device.superblock, &root, unfrozen, more);
        let kept = self
            .kept_from_class(working, class)
            .saturating_add(self.kept_for_changes(&root, class));
        free.saturating_sub(kept.saturating_add(freeze).saturating_add(self.way_cost(&root)))
    }

    /// Blocks of the nodes that one request may add to the tree or copy.
    fn way_cost(&self, root: &Root) -> u64 {
        (2 * u64::from(root.height) + STEP_SPLITS)
            .saturating_mul(self.store.device.superblock.node_cost())
    }

    /// Blocks that new data leaves to changes that make the volume no fuller, rewrites above all.
    /// It is what one of them needs, and at most a 64th of the volume.
    pub(crate) fn kept_for_changes(&self, root: &Root, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Normal => {
                self.way_cost(root).min(self.store.device.superblock_now().usable_blocks() / 64)
            }
            SpaceClass::Rewrite | SpaceClass::Freeing => 0,
        }
    }

    /// Blocks that data must leave: for the freeze, the reserve, and the room kept for removals.
    pub(crate) fn kept_from_data(&self, working: &Working, class: SpaceClass) -> u64 {
        let root = self.view.read().root;
        let kept = self
            .kept_from_class(working, class)
            .saturating_add(self.kept_for_changes(&root, class));
        kept.saturating_add(working.freeze_cost(
            &self.store.device.superblock,
            &root,
            More::default(),
        ))
    }

    /// Nodes that `blocks` blocks of data add to the tree: their extents, the bitmaps of their
    /// groups, and the branches above. All of them count as half full.
    fn nodes_for_data(&self, working: &Working, blocks: u64, length: u32) -> u64 {
        let superblock = &self.store.device.superblock;
        let capacity = item_capacity(superblock.node_size as usize);
        let kept = |size: usize| ((capacity / size).max(1) as u64).div_ceil(2);
        let granule = superblock.checksum_granule();
        let longest =
            written_blocks_max(superblock.block_size, granule, superblock.value_len_max());
        let length = length.min(longest);
        let checksums = 4 * length as usize * (superblock.block_size / granule).max(1) as usize;
        let per_leaf =
            kept(item_size(EXTENT_HEADER_LEN + checksums)).saturating_mul(u64::from(length));
        let group_blocks = u64::from(superblock.group_blocks);
        let groups = (blocks / group_blocks + working.space.dirty_groups() as u64)
            .min(working.space.groups());
        let bitmaps = groups.div_ceil(kept(item_size(1 + superblock.group_blocks as usize / 8)));
        let mut nodes = blocks.div_ceil(per_leaf).saturating_add(bitmaps);
        let mut all = nodes;
        let fan_out = kept(item_size(NodePointer::LEN)).max(2);
        while nodes > fan_out {
            nodes = nodes.div_ceil(fan_out);
            all = all.saturating_add(nodes);
        }
        all
    }
}
