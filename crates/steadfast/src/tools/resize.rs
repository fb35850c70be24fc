//! Making a volume larger or smaller.
//!
//! The superblock says how large a volume is. The second copies of superblock and metaroots lie at
//! its end. So a resize first writes these copies at the new end, where the old volume has nothing
//! that it needs, and flushes. Then it writes the first copy of the superblock. That write of one
//! atomic unit gives the volume its new size. The metaroots after the first copy are valid for
//! both sizes. A power cut at any moment leaves the old volume or the new one.
//!
//! Before a volume becomes smaller, everything past the new end moves in front of it by ordinary
//! transactions, so the volume is always consistent. Before a volume becomes larger, the bitmap of
//! its last group is written out. Otherwise "everything that can be allocated is used" would mean
//! more than before.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{STRUCTURE_SIZE, Superblock};
use crate::memory;
use crate::platform::Platform;
use crate::types::BlockAddress;
use crate::volume::Volume;

/// Nodes that one step moves.
const NODES_PER_STEP: usize = 32;
/// Limit of rounds of moving: what is left after them cannot be moved.
const ROUNDS_MAX: u32 = 12;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Estimate of the least size in bytes to which the volume could be made smaller: the used
    /// space and a reserve. A little more may be needed.
    pub fn size_least(&self) -> u64 {
        self.engine.size_least()
    }

    /// Makes the volume larger: `size` bytes, rounded down to whole blocks. The medium must have
    /// that length already. The volume may be in use.
    ///
    /// # Errors
    /// `InvalidArgument` (not larger than before), `Truncated` (the medium is shorter),
    /// `Unsupported` (the medium tears the superblock), `Held`, `ReadOnly`, `Poisoned`, or the
    /// medium's error. Before the last step nothing has changed. After an error in the last step
    /// the volume is read-only, and has either size when it is opened again.
    pub fn grow(&self, size: u64) -> Result<()> {
        self.engine.ensure_writable()?;
        self.engine.lifecycle.check_not_held()?;
        let old = self.engine.store().device.superblock_now();
        let new = old.resized(size)?;
        if new.blocks <= old.blocks {
            return Err(Error::InvalidArgument("the new size is not larger than the volume"));
        }
        let medium_size = self.engine.store().device.medium.geometry().size;
        if medium_size < new.byte_size() {
            return Err(Error::Truncated { expected: new.byte_size(), found: medium_size });
        }
        self.check_switch(&new)?;
        self.engine.enlarge(&new)
    }

    /// Makes the volume smaller: `size` bytes, rounded down to whole blocks. `progress`
    /// periodically gets the number of blocks moved. No other caller may use the volume. It is
    /// closed afterwards and must be opened again. The end of the medium can then be cut off.
    ///
    /// # Errors
    /// `NoSpace` (the content does not fit), `InvalidArgument` (not smaller than before),
    /// `VolumeTooSmall`, `Unsupported`, `Held`, `ReadOnly`, `Poisoned`, or the medium's error.
    /// `Busy`: a snapshot holds blocks past the new end, so they cannot move. The volume then
    /// keeps its old size and remains usable.
    pub fn shrink(&self, size: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.engine.ensure_writable()?;
        self.engine.lifecycle.check_not_held()?;
        let old = self.engine.store().device.superblock_now();
        let new = old.resized(size)?;
        if new.blocks >= old.blocks {
            return Err(Error::InvalidArgument("the new size is not smaller than the volume"));
        }
        self.check_switch(&old)?;
        self.engine.checkpoint_now()?;
        let limit = new.end_block();
        self.engine.begin_shrinking(&new, limit)?;
        let moved =
            self.empty_tail(limit, progress).and_then(|()| self.engine.write_end_of_smaller(&new));
        if let Err(error) = moved {
            self.engine.give_up_shrinking(&old);
            return Err(error);
        }
        self.engine.finish_shrinking(&old, &new)
    }

    /// The switch is one write that must be atomic. If the medium may tear it, opening must find
    /// the copy at the end of the medium instead. That is the copy of `larger`, which is complete
    /// before and after the write.
    fn check_switch(&self, larger: &Superblock) -> Result<()> {
        let geometry = self.engine.store().device.medium.geometry();
        let whole = geometry.atomic_unit as usize >= STRUCTURE_SIZE;
        let found_at_end = geometry.size - geometry.size % larger.cell_size() == larger.byte_size();
        if whole || found_at_end {
            return Ok(());
        }
        Err(Error::Unsupported(
            "this change of size on a medium whose atomic unit is below 512 bytes",
        ))
    }

    /// Moves everything at or past block `limit` in front of it, until neither the working nor
    /// the checkpointed state has anything there.
    fn empty_tail(&self, limit: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut moved = 0;
        for _ in 0..ROUNDS_MAX {
            self.move_data(limit, &mut moved, progress)?;
            self.move_nodes(limit, &mut moved, progress)?;
            // Twice: the first frees the moved blocks, the second makes that the checkpointed
            // state.
            self.engine.checkpoint_now()?;
            self.engine.checkpoint_now()?;
            if self.engine.is_empty_past(limit)? {
                return Ok(());
            }
        }
        Err(Error::Busy)
    }

    fn move_nodes(&self, limit: u64, moved: &mut u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let node_blocks = self.engine.store().device.superblock.node_blocks();
        let beyond = |start: BlockAddress| start.0 + node_blocks > limit;
        let root = self.engine.working_root();
        let mut stack = memory::copy(&[(root.pointer, root.level(), Key::MIN)])?;
        let mut keys: Vec<Key> = Vec::new();
        // No node is visited twice: the nodes that a step makes are in front of the limit.
        while let Some((pointer, level, low)) = stack.pop() {
            let node = self.engine.store().node(&pointer, level)?;
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
            self.engine.with_room(|| self.engine.touch(part))?;
            self.engine.throttle()?;
            *moved += part.len() as u64 * self.engine.superblock().node_cost();
            progress(*moved);
        }
        Ok(())
    }
}
