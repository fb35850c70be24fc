//! The switch from one size of the volume to another: the steps that change states.
//!
//! `tools::resize` makes the steps in their order and says why it is safe.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::More;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{ERASED, Superblock, reserve_blocks};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::{PlannedChange, Store};
use crate::types::{BlockAddress, BlockRun};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Estimate of the least size in bytes to which the volume could be made smaller: the used
    /// space and a reserve. A little more may be needed.
    pub(crate) fn size_least(&self) -> u64 {
        // If this fails, the operation that needs the result fails too.
        let _ = self.replay_overlay();
        let superblock = self.store.device.superblock_now();
        let working = self.working.lock();
        let used = working.space.used();
        let root = self.view.read().root;
        let slack = working.freeze_cost(&self.store.device.superblock, &root, More::default());
        let fixed = superblock.first_block() + superblock.head_blocks();
        // The reserve is a 64th of the size, so computing it for twice the size is enough.
        let node_cost = self.store.device.superblock.node_cost();
        let reserve = reserve_blocks((used + slack) * 2, superblock.block_size, node_cost)
            + working.kept(&self.store.device.superblock);
        let blocks = (fixed + used + slack + reserve).max(crate::format::blocks_min(&superblock));
        (blocks * u64::from(superblock.block_size)).next_multiple_of(superblock.cell_size())
    }

    /// Gives the volume the size in `new`, which is larger. The medium has that length already. The
    /// volume may be in use.
    pub(crate) fn enlarge(&self, new: &Superblock) -> Result<()> {
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            let roots = self.roots(&working);
            working.space.spell_out_last_group(&self.store, &roots)?;
        }
        let grown = self.commit_by_checkpoint(&mut commit).and_then(|()| {
            let _checkpoint = self.checkpoint.lock();
            // No operation may look for room between the old size and the new one. The lock is held
            // only for a few writes.
            let mut working = self.working.lock();
            if planted(Sabotage::GrowBeforeCopies) {
                switch(&self.store, new)?;
            }
            write_structures(&self.store, &working, new)?;
            switch(&self.store, new).map_err(|error| {
                self.lifecycle.fail_with("the superblock could not be written", error)
            })?;
            self.store.device.set_superblock(new);
            working.space.grow(new);
            Ok(())
        });
        self.working.lock().space.end_spelling_out();
        grown
    }

    /// Allocates nothing from block `limit` on, which is the end of `new`. Everything must fit in
    /// front of it.
    pub(crate) fn begin_shrinking(&self, new: &Superblock, limit: u64) -> Result<()> {
        let mut working = self.working.lock();
        let root = self.view.read().root;
        // On a full volume the owner can still remove files. The same must hold after the
        // resize.
        let kept = new.reserve_blocks + working.kept(&self.store.device.superblock);
        let spare =
            working.freeze_cost(&self.store.device.superblock, &root, More::default()) + kept;
        if !working.space.fits_below(limit, spare) {
            return Err(Error::NoSpace);
        }
        working.empty_pool(&self.store);
        let roots = self.roots(&working);
        let beyond = working.space.used_beyond(&self.store, &roots, limit)?;
        // Blocks that snapshots hold cannot move. Moving the live copy away would store it
        // twice.
        if beyond > 0 && working.snapshots.keys > 0 {
            return Err(Error::Busy);
        }
        working.space.set_limit(Some(limit), beyond, new);
        Ok(())
    }

    /// The volume keeps the size in `old`.
    pub(crate) fn give_up_shrinking(&self, old: &Superblock) {
        let mut working = self.working.lock();
        working.empty_pool(&self.store);
        working.space.set_limit(None, 0, old);
    }

    /// Gives the volume the size in `new`, whose end is written, and closes it.
    pub(crate) fn finish_shrinking(&self, old: &Superblock, new: &Superblock) -> Result<()> {
        let switched = switch(&self.store, new).and_then(|()| {
            // A search for a superblock at the end of the medium must not find the old one.
            let blank = memory::zeroed(old.cell_size() as usize)?;
            self.store.device.medium.write(old.second_offset(), &blank)?;
            self.store.device.flush()
        });
        self.lifecycle.enter(Lifecycle::Closed);
        switched
            .map_err(|error| self.lifecycle.fail_with("the superblock could not be written", error))
    }

    /// Writes the structures at the end of the smaller volume.
    pub(crate) fn write_end_of_smaller(&self, new: &Superblock) -> Result<()> {
        let _checkpoint = self.checkpoint.lock();
        let working = self.working.lock();
        // The metaroot before the newest one can count more blocks than there will be. It would
        // then look damaged, so it is erased.
        let [other_at, _] = new.metaroot_offsets(working.checkpointed.generation.0 + 1);
        let erased = memory::filled(ERASED, new.cell_size() as usize)?;
        self.store.device.medium.write(other_at, &erased)?;
        write_structures(&self.store, &working, new)
    }

    /// Whether neither the working nor the checkpointed state has anything at or past block
    /// `limit`.
    pub(crate) fn is_empty_past(&self, limit: u64) -> Result<bool> {
        let mut working = self.working.lock();
        let roots = self.roots(&working);
        let left = working.space.used_beyond(&self.store, &roots, limit)?;
        Ok(left == 0 && working.space.almost_free() == 0)
    }

    /// Gives the nodes on the paths to these keys new addresses.
    pub(crate) fn touch(&self, keys: &[Key]) -> Result<()> {
        let mut working = self.working.lock();
        let working = &mut *working;
        let roots = self.roots(working);
        let changes =
            memory::collect(keys.iter().map(|key| PlannedChange { key: *key, value_len: None }))?;
        let plan = self.store.plan(&roots.working, working.generation, &changes)?;
        let freeze =
            working.freeze_cost(&self.store.device.superblock, &roots.working, More::default());
        if working.available(&self.store.device.superblock)
            < plan.nodes * self.store.device.superblock.node_cost() + freeze
        {
            return Err(Error::NoSpace);
        }
        working.prepare_change(&self.store, &roots, &plan, &[])?;
        self.change_tree(working, plan, |tree| keys.iter().try_for_each(|key| tree.touch(key)))?;
        working.enter_nodes(&self.store);
        Ok(())
    }

    /// Runs a step. Without space it runs the step again after a checkpoint, which frees the blocks
    /// of earlier steps.
    pub(crate) fn with_room<T>(&self, mut step: impl FnMut() -> Result<T>) -> Result<T> {
        match step() {
            Err(Error::NoSpace) => {
                self.checkpoint_now()?;
                step()
            }
            other => other,
        }
    }

    /// Allocates blocks for data that only moves; such moves may use the reserve.
    pub(crate) fn allocate_for_move(
        &self,
        blocks: u64,
        goal: Option<BlockAddress>,
    ) -> Result<BlockRun> {
        let mut working = self.working.lock();
        let working = &mut *working;
        if working.space.available() < blocks {
            working.empty_pool(&self.store);
        }
        let roots = self.roots(working);
        let kept = working.freeze_cost(
            &self.store.device.superblock,
            &roots.working,
            More { groups: 2, dead: 0 },
        ) + 4 * u64::from(roots.working.height);
        let room = working
            .available(&self.store.device.superblock)
            .saturating_sub(kept)
            .min(working.space.available_for_data());
        if room == 0 {
            return Err(Error::NoSpace);
        }
        working.space.allocate_data(&self.store, &roots, blocks.min(room), goal)
    }
}

/// Writes the second copies of metaroots and superblock for `new`, and flushes. The caller
/// holds the checkpoint lock, or has exclusive use of the volume.
fn write_structures<M: Medium, P: Platform>(
    store: &Store<M, P>,
    working: &Working,
    new: &Superblock,
) -> Result<()> {
    let (medium, platform) = (&store.device.medium, &store.device.platform);
    let newest = &working.checkpointed;
    // The other slot is erased, because its blocks may hold file data that looks like a
    // metaroot.
    let [_, newest_at] = new.metaroot_offsets(newest.generation.0);
    let [_, other_at] = new.metaroot_offsets(newest.generation.0 + 1);
    medium.write(other_at, &memory::filled(ERASED, new.cell_size() as usize)?)?;
    newest.write_copy(medium, new, platform, newest_at)?;
    new.write_copy(medium, platform, new.second_offset())?;
    store.device.flush()
}

/// From this write on the volume has its new size.
fn switch<M: Medium, P: Platform>(store: &Store<M, P>, new: &Superblock) -> Result<()> {
    new.write_copy(&store.device.medium, &store.device.platform, 0)?;
    store.device.flush()
}
