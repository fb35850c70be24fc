//! How much file data a volume can still accept: what statfs promises, and what promises are made
//! against.
//!
//! # What is promised
//! So many bytes can be written into one new file, in requests of any size (blocks of 128 bytes: of
//! 16 blocks at least), where the free space is in runs of 16 blocks on average or longer ones.
//! Beside the data there is room for
//! - the reserve, what is kept for removals under a snapshot, and for changes that make the volume
//!   no fuller;
//! - the checkpoint that brings freed blocks back: of no changed group, for a writer who finds no
//!   space sets a transaction point, behind which no group is changed. Where the mask has no
//!   `volume full`, or the volume is held, nothing comes back: freed blocks do not count then, and
//!   the groups that are changed and will be do;
//! - the request that comes last: the nodes on its way, and the groups of its blocks ([`Pieces`]);
//! - the nodes that map the data ([`nodes_for_data`](Volume::nodes_for_data)), half full, as they
//!   are behind an insertion that is not at the end of the tree.
//!
//! All of it is known without a look at the tree. It is an estimate from below: what fits beyond is
//! up to half of the nodes that map the data, and what the freeze was thought to need.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::{More, Unsettled};
use crate::engine::keyspace::SpaceClass;
use crate::engine::state::Working;
use crate::error::Result;
use crate::format::extent::{EXTENT_HEADER_LEN, written_blocks_max};
use crate::format::{NodePointer, Root, item_capacity, item_size};
use crate::fs::publish::EXTENT_CHANGES_MAX;
use crate::platform::Platform;

/// Nodes that one request adds to the tree beside copies of those on its way: leaves of two
/// extents, and a name's.
const STEP_SPLITS: u64 = 8;

/// In which pieces data comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces {
    /// Groups in which the blocks of one request lie.
    groups: u64,
    /// Blocks of an extent, on average.
    blocks: u32,
}

impl Pieces {
    /// A file that is written from front to back into free space that files have come to and gone
    /// from; the search looks through eight groups for a long run.
    pub const LONG: Pieces = Pieces { groups: 8, blocks: 16 };
    /// What replaces blocks, seen from above: it lies in few groups, and those that are changed are
    /// known.
    pub const REWRITE: Pieces = Pieces { groups: 0, blocks: 16 };
    /// Single blocks here and there, as a cache of pages writes them out: as many runs in one
    /// request as fit a batch.
    pub const SINGLE: Pieces = Pieces { groups: EXTENT_CHANGES_MAX as u64, blocks: 1 };
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Bytes of file data that the volume can surely still accept now, whatever pieces they come
    /// in. Freed blocks that a transaction point brings back are among them, unless none may be
    /// set: while the volume is held, or where the mask has no `volume full`. Where it says less
    /// than is wanted, a write may still succeed: it alone knows.
    pub(crate) fn available_bytes(&self) -> Result<u64> {
        self.check_open()?;
        self.check_shown()?;
        self.catch_up()?;
        let blocks = self.data_room(&self.working.lock(), SpaceClass::Normal, Pieces::SINGLE);
        Ok(blocks.saturating_mul(u64::from(self.store.superblock.block_size)))
    }

    /// Blocks of data for which there is room; see the module.
    pub(crate) fn data_room(&self, working: &Working, class: SpaceClass, pieces: Pieces) -> u64 {
        let room = self.room_behind_point(working, class, pieces.groups);
        let fits = |blocks: u64| {
            let nodes = self.nodes_for_data(working, blocks, pieces.blocks);
            blocks.saturating_add(nodes.saturating_mul(self.node_cost())) <= room
        };
        // More data needs more nodes: the most that fit, by bisection.
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

    /// Blocks that data and the nodes that map it can take: behind a transaction point, where one
    /// may be set.
    fn room_behind_point(&self, working: &Working, class: SpaceClass, groups: u64) -> u64 {
        let root = self.view.read().root;
        let reclaims = self.may_reclaim();
        let (freed, unsettled) = match reclaims {
            true => (working.space.almost_free(), Unsettled::default()),
            false => (0, Unsettled::of(working)),
        };
        let free = self.available(working).saturating_add(freed);
        let ahead = if reclaims { 0 } else { free / u64::from(self.store.superblock.group_blocks) };
        let more = More { groups: groups.saturating_add(ahead), dead: 0 };
        let freeze = self.freeze_cost_of(working, &root, unsettled, more);
        let kept =
            self.reserve_for(working, class).saturating_add(self.kept_for_changes(&root, class));
        free.saturating_sub(kept.saturating_add(freeze).saturating_add(self.way_cost(&root)))
    }

    /// Blocks of the nodes that one request may add to the tree or copy.
    fn way_cost(&self, root: &Root) -> u64 {
        (2 * u64::from(root.height) + STEP_SPLITS).saturating_mul(self.node_cost())
    }

    /// Blocks that new data leaves to changes that make the volume no fuller, rewrites above all:
    /// what one of them needs, but no more of a small volume than what is set aside of a large one
    /// for removals.
    pub(crate) fn kept_for_changes(&self, root: &Root, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Normal => {
                self.way_cost(root).min(self.store.superblock_now().usable_blocks() / 64)
            }
            SpaceClass::Rewrite | SpaceClass::Freeing => 0,
        }
    }

    /// Nodes that so many blocks of data add to the tree: their extents, the bitmaps of their
    /// groups, and the branches above, all of them half full.
    fn nodes_for_data(&self, working: &Working, blocks: u64, length: u32) -> u64 {
        let superblock = &self.store.superblock;
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
