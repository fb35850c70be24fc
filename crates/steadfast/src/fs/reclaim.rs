//! Operations that find no space: what is brought back for them, and how often they are tried again.
//!
//! The engine brings back what waits for a transaction point, and says whether one is worth it
//! ([`Shortage`]). What removed files and deleted snapshots still hold comes back in steps, which are
//! done here where they are needed, as background work would do them.

use steadfast_media::Medium;

use crate::engine::Shortage;
use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::volume::Volume;

/// How often an operation tries again before it reports that there is no space: behind a checkpoint
/// that was under way, a transaction point, and what removed files and deleted snapshots held. The
/// last one is for what others have taken meanwhile.
pub(super) const RECLAIM_TRIES: u32 = 4;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Space ran out: brings some back, where that is possible. `true`: try again, which was done
    /// `tries` times before.
    pub(super) fn reclaim(&self, wanted: Shortage, tries: u32) -> Result<bool> {
        let again = tries < RECLAIM_TRIES && self.bring_back(wanted)?;
        if !again && tries > 0 {
            self.engine.note_in_vain(wanted);
        }
        Ok(again)
    }

    fn bring_back(&self, wanted: Shortage) -> Result<bool> {
        if self.engine.bring_back(wanted)? {
            return Ok(true);
        }
        if !self.engine.may_reclaim() {
            return Ok(false);
        }
        if matches!(wanted, Shortage::Change(SpaceClass::Freeing, _)) {
            return self.engine.delete_for_room();
        }
        Ok(self.give_back_files(wanted)? || self.engine.delete_for_room()?)
    }

    /// Gives back what removed files hold, until what was wanted fits behind a transaction point.
    /// `true`: something is back.
    fn give_back_files(&self, wanted: Shortage) -> Result<bool> {
        let mut any = false;
        while self.reclaim_step()? {
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

    /// Brings back what removed files and deleted snapshots still hold, until
    /// [`available_bytes`](Self::available_bytes) says `bytes` or nothing is left to come back.
    ///
    /// # Errors
    /// Those of the medium; `ReadOnly`, `Poisoned`.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        self.engine.check_writable()?;
        while self.available_bytes()? < bytes && self.engine.may_reclaim() {
            if !(self.reclaim_step()? || self.engine.delete_for_room()?) {
                break;
            }
        }
        Ok(())
    }

    /// Waits until there is room for so many blocks of data, or nothing that was removed is left to
    /// come back.
    ///
    /// # Errors
    /// `NoSpace`: they do not fit.
    pub(super) fn wait_for_room(&self, blocks: u64) -> Result<()> {
        if blocks > self.engine.superblock_now().usable_blocks() {
            return Err(Error::NoSpace);
        }
        while !self.engine.has_room_for_data(blocks) {
            // What a step of either frees counts at once: the caller that takes the blocks sets the
            // point.
            if !self.engine.may_reclaim()
                || !(self.reclaim_step()? || self.engine.delete_for_room()?)
            {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }
}
