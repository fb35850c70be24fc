//! Making a volume larger or smaller.
//!
//! The superblock says how large a volume is. The second copies of superblock and metaroots lie at
//! its end. So a resize first writes these copies at the new end, where the old volume has nothing
//! that it needs, and flushes. Then it writes the first copy of the superblock. That write of one
//! atomic unit gives the volume its new size. The metaroots behind the first copy are valid for
//! both sizes. A power cut at any moment leaves the old volume or the new one.
//!
//! Before a volume becomes smaller, everything behind the new end moves in front of it by ordinary
//! transactions, so the volume is always consistent. Before a volume becomes larger, the bitmap of
//! its last group is written out. Otherwise "everything that can be allocated is used" would mean
//! more than before.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::More;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{STRUCTURE_SIZE, Superblock, reserve_blocks};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::PlannedChange;
use crate::types::{BlockAddress, BlockRun};

/// Nodes that one step moves.
const NODES_PER_STEP: usize = 32;
/// Limit of rounds of moving: what is left after them cannot be moved.
const ROUNDS_MAX: u32 = 12;

/// Moves the data of all files in front of a block. Adds to a count of blocks that were moved, and
/// tells it from time to time.
pub(crate) type MoveData<'a> = &'a mut dyn FnMut(u64, &mut u64, &mut dyn FnMut(u64)) -> Result<()>;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Estimate of the least size in bytes to which the volume could be made smaller: the used
    /// space and a reserve. A little more may be needed.
    pub(crate) fn size_least(&self) -> u64 {
        // If this fails, the operation that needs the result fails too.
        let _ = self.catch_up();
        let superblock = self.store.superblock_now();
        let working = self.working.lock();
        let used = working.space.used();
        let root = self.view.read().root;
        let slack = self.freeze_cost(&working, &root, More::default());
        let fixed = superblock.first_block() + superblock.head_blocks();
        // The reserve is a 64th of the size, so computing it for twice the size is enough.
        let node_cost = self.node_cost();
        let reserve = reserve_blocks((used + slack) * 2, superblock.block_size, node_cost)
            + self.kept(&working);
        let blocks = (fixed + used + slack + reserve).max(crate::format::blocks_min(&superblock));
        (blocks * u64::from(superblock.block_size)).next_multiple_of(superblock.cell_size())
    }

    /// Makes the volume larger: `size` bytes, rounded down to whole blocks. The medium must have
    /// that length already. The volume may be in use.
    pub(crate) fn grow(&self, size: u64) -> Result<()> {
        self.ready_for_change()?;
        self.check_not_held()?;
        let old = self.store.superblock_now();
        let new = old.resized(size)?;
        if new.blocks <= old.blocks {
            return Err(Error::InvalidArgument("the new size is not larger than the volume"));
        }
        let medium_size = self.store.medium.geometry().size;
        if medium_size < new.byte_size() {
            return Err(Error::Truncated { expected: new.byte_size(), found: medium_size });
        }
        self.check_switch(&new)?;
        let mut commit = self.commit.lock();
        self.ready_for_change()?;
        self.check_not_held()?;
        self.finish_checkpoint()?;
        {
            let mut working = self.working.lock();
            let roots = self.roots(&working);
            working.space.spell_out_last_group(&self.store, &roots)?;
        }
        let grown = self.freeze_and_finish(&mut commit).and_then(|()| {
            let _checkpoint = self.checkpoint.lock();
            // No operation may look for room between the old size and the new one. The lock is held
            // only for a few writes.
            let mut working = self.working.lock();
            if planted(Sabotage::GrowBeforeCopies) {
                self.switch(&new)?;
            }
            self.write_structures(&working, &new)?;
            self.switch(&new)
                .map_err(|error| self.fail("the superblock could not be written", error))?;
            self.store.set_size(&new);
            working.space.grow(&new);
            Ok(())
        });
        self.working.lock().space.end_spelling_out();
        grown
    }

    /// Makes the volume smaller: `size` bytes, rounded down to whole blocks. `progress`
    /// periodically gets the number of blocks moved. No other caller may use the volume. It is
    /// closed afterwards and must be opened again. The end of the medium can then be cut off.
    pub(crate) fn shrink(
        &self,
        size: u64,
        move_data: MoveData<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.ready_for_change()?;
        self.check_not_held()?;
        let old = self.store.superblock_now();
        let new = old.resized(size)?;
        if new.blocks >= old.blocks {
            return Err(Error::InvalidArgument("the new size is not smaller than the volume"));
        }
        self.check_switch(&old)?;
        self.checkpoint_now()?;
        let limit = new.end_block();
        {
            let mut working = self.working.lock();
            let root = self.view.read().root;
            // On a full volume the owner can still remove files. The same must hold after the
            // resize.
            let kept = new.reserve_blocks + self.kept(&working);
            let spare = self.freeze_cost(&working, &root, More::default()) + kept;
            if !working.space.fits_below(limit, spare) {
                return Err(Error::NoSpace);
            }
            self.empty_pool(&mut working);
            let roots = self.roots(&working);
            let beyond = working.space.used_beyond(&self.store, &roots, limit)?;
            // Blocks that snapshots hold cannot move. Moving the live copy away would store it
            // twice.
            if beyond > 0 && working.snapshots.keys > 0 {
                return Err(Error::Busy);
            }
            working.space.set_limit(Some(limit), beyond, &new);
        }
        let moved = self
            .empty_tail(limit, move_data, progress)
            .and_then(|()| self.write_end_of_smaller(&new));
        if let Err(error) = moved {
            let mut working = self.working.lock();
            self.empty_pool(&mut working);
            working.space.set_limit(None, 0, &old);
            return Err(error);
        }
        let switched = self.switch(&new).and_then(|()| {
            // A search for a superblock at the end of the medium must not find the old one.
            let blank = memory::zeroed(old.cell_size() as usize)?;
            self.store.medium.write(old.second_offset(), &blank)?;
            self.store.flush()
        });
        self.lifecycle.enter(Lifecycle::Closed);
        switched.map_err(|error| self.fail("the superblock could not be written", error))
    }

    /// The switch is one write that must be atomic. If the medium may tear it, opening must find
    /// the copy at the end of the medium instead. That is the copy of `larger`, which is complete
    /// before and after the write.
    fn check_switch(&self, larger: &Superblock) -> Result<()> {
        let geometry = self.store.medium.geometry();
        let whole = geometry.atomic_unit as usize >= STRUCTURE_SIZE;
        let found_at_end = geometry.size - geometry.size % larger.cell_size() == larger.byte_size();
        if whole || found_at_end {
            return Ok(());
        }
        Err(Error::Unsupported(
            "this change of size on a medium whose atomic unit is below 512 bytes",
        ))
    }

    /// Writes the second copies of metaroots and superblock for `new`, and flushes. The caller
    /// holds the checkpoint lock, or has exclusive use of the volume.
    fn write_structures(&self, working: &Working, new: &Superblock) -> Result<()> {
        let (medium, platform) = (&self.store.medium, &self.store.platform);
        let newest = &working.durable;
        // The other slot is erased, because its blocks may hold file data that looks like a
        // metaroot.
        let [_, newest_at] = new.metaroot_offsets(newest.generation.0);
        let [_, other_at] = new.metaroot_offsets(newest.generation.0 + 1);
        medium.write(other_at, &memory::zeroed(new.cell_size() as usize)?)?;
        newest.write_copy(medium, new, platform, newest_at)?;
        new.write_copy(medium, platform, new.second_offset())?;
        self.store.flush()
    }

    fn write_end_of_smaller(&self, new: &Superblock) -> Result<()> {
        let _checkpoint = self.checkpoint.lock();
        let working = self.working.lock();
        // The metaroot before the newest one can count more blocks than there will be. It would
        // then look damaged, so it is erased.
        let [other_at, _] = new.metaroot_offsets(working.durable.generation.0 + 1);
        self.store.medium.write(other_at, &memory::zeroed(new.cell_size() as usize)?)?;
        self.write_structures(&working, new)
    }

    /// From this write on the volume has its new size.
    fn switch(&self, new: &Superblock) -> Result<()> {
        new.write_copy(&self.store.medium, &self.store.platform, 0)?;
        self.store.flush()
    }

    /// Moves everything at or behind block `limit` in front of it, until neither the working nor
    /// the durable state has anything there.
    fn empty_tail(
        &self,
        limit: u64,
        move_data: MoveData<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut moved = 0;
        for _ in 0..ROUNDS_MAX {
            move_data(limit, &mut moved, progress)?;
            self.move_nodes(limit, &mut moved, progress)?;
            // Twice: the first frees the moved blocks, the second makes that the durable state.
            self.checkpoint_now()?;
            self.checkpoint_now()?;
            let mut working = self.working.lock();
            let roots = self.roots(&working);
            let left = working.space.used_beyond(&self.store, &roots, limit)?;
            if left == 0 && working.space.almost_free() == 0 {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    fn move_nodes(&self, limit: u64, moved: &mut u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let node_blocks = self.store.superblock.node_blocks();
        let beyond = |start: BlockAddress| start.0 + node_blocks > limit;
        let root = self.view.read().root;
        let mut stack = memory::copy(&[(root.pointer, root.level(), Key::MIN)])?;
        let mut keys: Vec<Key> = Vec::new();
        // No node is visited twice: the nodes that a step makes are in front of the limit.
        while let Some((pointer, level, low)) = stack.pop() {
            let node = self.store.node(&pointer, level)?;
            if pointer.copies().any(beyond) {
                memory::push(&mut keys, low)?;
            }
            if level > 0 {
                for index in (0..node.count()).rev() {
                    let low = if index == 0 { low } else { node.key(index) };
                    memory::push(&mut stack, (node.child(index), level - 1, low))?;
                }
            }
        }
        for part in keys.chunks(NODES_PER_STEP) {
            self.with_room(|| self.touch(part))?;
            self.relieve()?;
            *moved += part.len() as u64 * self.node_cost();
            progress(*moved);
        }
        Ok(())
    }

    /// Gives the nodes on the paths to these keys new addresses.
    fn touch(&self, keys: &[Key]) -> Result<()> {
        let mut working = self.working.lock();
        let working = &mut *working;
        let roots = self.roots(working);
        let changes =
            memory::collect(keys.iter().map(|key| PlannedChange { key: *key, value_len: None }))?;
        let plan = self.store.plan(&roots.working, working.generation, &changes)?;
        let freeze = self.freeze_cost(working, &roots.working, More::default());
        if self.available(working) < plan.nodes * self.node_cost() + freeze {
            return Err(Error::NoSpace);
        }
        self.prepare_change(working, &roots, &plan, &[])?;
        self.change_tree(working, plan, |tree| keys.iter().try_for_each(|key| tree.touch(key)))?;
        self.settle(working);
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

    /// Reserves blocks for data that only moves; such moves may use the reserve.
    pub(crate) fn reserve_for_move(
        &self,
        blocks: u64,
        goal: Option<BlockAddress>,
    ) -> Result<BlockRun> {
        let mut working = self.working.lock();
        let working = &mut *working;
        if working.space.available() < blocks {
            self.empty_pool(working);
        }
        let roots = self.roots(working);
        let kept = self.freeze_cost(working, &roots.working, More { groups: 2, dead: 0 })
            + 4 * u64::from(roots.working.height);
        let room =
            self.available(working).saturating_sub(kept).min(working.space.available_for_data());
        if room == 0 {
            return Err(Error::NoSpace);
        }
        working.space.reserve_data(&self.store, &roots, blocks.min(room), goal)
    }
}
