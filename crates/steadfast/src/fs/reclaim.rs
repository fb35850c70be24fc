//! Operations that find no space: what is brought back for them, and how often they are tried
//! again.
//!
//! The engine brings back what waits for a checkpoint, and says whether one is worth it
//! ([`Shortage`]). Blocks of removed files and deleted snapshots come back in steps. An operation
//! without space runs the same steps here that background work runs.

use steadfast_media::Medium;

use crate::engine::Shortage;
use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::volume::Volume;

/// How often an operation is retried before it reports that there is no space. The causes are: a
/// checkpoint in progress, a new one, and the blocks of removed files and deleted snapshots. The
/// last retry covers blocks that other operations have taken meanwhile.
pub(super) const RECLAIM_TRIES: u32 = 4;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Space ran out: reclaims some if possible. `tries` counts the earlier attempts. `true`:
    /// retry.
    pub(super) fn reclaim(&self, wanted: Shortage, tries: u32) -> Result<bool> {
        let again = tries < RECLAIM_TRIES && self.free_space_for(wanted)?;
        if !again && tries > 0 {
            self.engine.note_in_vain(wanted);
        }
        Ok(again)
    }

    fn free_space_for(&self, wanted: Shortage) -> Result<bool> {
        if self.engine.checkpoint_for_space(wanted)? {
            return Ok(true);
        }
        if !self.engine.budget().may_reclaim() {
            return Ok(false);
        }
        if matches!(wanted, Shortage::Change(SpaceClass::Freeing, _)) {
            return self.engine.delete_for_space();
        }
        Ok(self.free_removed_files(wanted)? || self.engine.delete_for_space()?)
    }

    /// Frees the blocks of removed files until the wanted change fits after a checkpoint. `true`:
    /// some were freed.
    fn free_removed_files(&self, wanted: Shortage) -> Result<bool> {
        let mut any = false;
        while self.orphan_step()? {
            any = true;
            if self.engine.fits_later(wanted) {
                break;
            }
        }
        if any {
            self.engine.checkpoint_now()?;
        }
        Ok(any)
    }

    /// Whether an operation without space may set a transaction point, which brings back the blocks
    /// that an overwrite replaces.
    pub fn may_reclaim(&self) -> bool {
        self.engine.budget().may_reclaim()
    }

    /// Frees the blocks of removed files and deleted snapshots. It stops when
    /// [`available_bytes`](Self::available_bytes) reaches `bytes` or none are left.
    ///
    /// # Errors
    /// Those of the medium; `ReadOnly`, `Poisoned`.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        self.engine.ensure_writable()?;
        while self.available_bytes()? < bytes && self.engine.budget().may_reclaim() {
            if !(self.orphan_step()? || self.engine.delete_for_space()?) {
                break;
            }
        }
        Ok(())
    }

    /// Waits until there is room for `blocks` of data, or no removed file or deleted snapshot has
    /// blocks left to free.
    ///
    /// # Errors
    /// `NoSpace`: they do not fit.
    pub(super) fn wait_for_space(&self, blocks: u64) -> Result<()> {
        if blocks > self.engine.device().superblock_now().usable_blocks() {
            return Err(Error::NoSpace);
        }
        while !self.engine.has_space_for_data(blocks) {
            // Freed blocks count at once. The caller that takes them makes the checkpoint that
            // releases them.
            if !self.engine.budget().may_reclaim()
                || !(self.orphan_step()? || self.engine.delete_for_space()?)
            {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }
}
