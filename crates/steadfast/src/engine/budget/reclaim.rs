//! Reclaiming space when it runs out, and whether that is worth its cost.
//!
//! A checkpoint makes freed blocks reusable, and it wears the medium. So one is made only if a
//! count shows that the wanted change fits after it. An operation on a full volume that frees
//! nothing makes none, however often it is retried.
//!
//! The count can be wrong: a node needs free blocks that lie side by side, and the count does not
//! show whether they do. So a checkpoint can be in vain. The same or a larger request then makes no
//! other one until there is room for more blocks
//! ([`FutileCheckpoints`](super::futile::FutileCheckpoints)).
//!
//! The blocks of deleted snapshots come back in steps. The background makes these steps, and an
//! operation without space makes some itself (`snapshots/delete.rs`). `fs/reclaim.rs` does the same
//! for removed files.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::budget::data::Pieces;
use crate::engine::budget::futile::Shortage;
use crate::engine::keyspace::SpaceClass;
use crate::engine::state::Working;
use crate::error::Result;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Space ran out: waits for the checkpoint that is under way, or makes one where it is known to
    /// help. `true`: try again.
    pub(crate) fn checkpoint_for_space(&self, wanted: Shortage) -> Result<bool> {
        let (frozen, worth_it) = {
            let working = self.working.lock();
            (working.frozen.is_some(), self.budget().is_worth_a_checkpoint(&working, wanted))
        };
        if frozen {
            self.finish_checkpoint()?;
            return Ok(true);
        }
        if !self.budget().may_reclaim() || !worth_it {
            return Ok(false);
        }
        self.working.lock().futile.begin();
        self.checkpoint_now()?;
        Ok(true)
    }

    /// There was no space for `wanted`, even after everything possible was brought back. If a
    /// checkpoint was made for it, this notes that it was in vain.
    pub(crate) fn note_in_vain(&self, wanted: Shortage) {
        let mut working = self.working.lock();
        let room = self.budget().room_after_checkpoint(&working, wanted.class());
        working.futile.note(wanted, room);
    }

    /// Whether `wanted` fits after a checkpoint, as far as its blocks can be counted.
    pub(crate) fn fits_later(&self, wanted: Shortage) -> bool {
        match wanted {
            Shortage::Change(..) | Shortage::Snapshot => true,
            Shortage::Data(class, blocks) => {
                self.budget().fits_after_checkpoint(&self.working.lock(), class, blocks)
            }
        }
    }

    /// Whether there is room for so many blocks of new data.
    pub(crate) fn has_space_for_data(&self, blocks: u64) -> bool {
        self.budget().data_budget(&self.working.lock(), SpaceClass::Normal, Pieces::LONG) >= blocks
    }
}

impl<M: Medium, P: Platform> Budget<'_, M, P> {
    /// Blocks that a checkpoint leaves free beside those that changes of this class must leave.
    fn room_after_checkpoint(&self, working: &Working, class: SpaceClass) -> u64 {
        let free = working
            .available(&self.store.device.superblock)
            .saturating_add(working.space.almost_free());
        free.saturating_sub(self.kept_from_class(working, class))
    }

    /// Whether the wanted change fits after a checkpoint, as far as can be counted. For a removal
    /// that does not fit, a checkpoint is always tried.
    fn is_worth_a_checkpoint(&self, working: &Working, wanted: Shortage) -> bool {
        if planted(Sabotage::PointsInVain) {
            return working.space.almost_free() > 0;
        }
        let room = self.room_after_checkpoint(working, wanted.class());
        if working.space.almost_free() == 0 || working.futile.again(wanted, room) {
            return false;
        }
        match wanted {
            Shortage::Change(SpaceClass::Freeing, _) | Shortage::Snapshot => true,
            Shortage::Change(_, needed) => needed.is_none_or(|needed| needed <= room),
            Shortage::Data(class, blocks) => self.fits_after_checkpoint(working, class, blocks),
        }
    }

    /// Whether `blocks` of data fit after a checkpoint. New data is counted as promised by statfs.
    /// Rewrites must always go on, so for them a checkpoint is tried if it may suffice.
    fn fits_after_checkpoint(&self, working: &Working, class: SpaceClass, blocks: u64) -> bool {
        let pieces = if class == SpaceClass::Normal { Pieces::LONG } else { Pieces::REWRITE };
        self.data_budget(working, class, pieces) >= blocks
    }
}
