//! Space ran out: what brings some back, and whether that is worth it.
//!
//! A transaction point brings freed blocks back and wears the medium. So it is set only where it is
//! known by count that what was wanted fits behind it. An operation on a full volume that frees
//! nothing sets none, however often it is tried. Counts cannot tell whether free blocks lie
//! together as nodes need them: where a point was set in vain, none is set for as much again before
//! the volume has become emptier ([`Vain`]).
//!
//! What removed files and deleted snapshots still hold comes back in steps, which are done here
//! where they are needed, as background work would do them.

use steadfast_media::Medium;

use super::Volume;
use super::room_data::Pieces;
use super::state::Working;
use crate::error::{Error, Result};
use crate::keyspace::SpaceClass;
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

/// How often an operation tries again before it reports that there is no space: behind a checkpoint
/// that was under way, a transaction point, and what removed files and deleted snapshots held. The
/// last one is for what others have taken meanwhile.
pub(super) const RECLAIM_TRIES: u32 = 4;

/// Units of deleting a snapshot that an operation without space waits for.
const DELETE_UNITS: u32 = 64;

/// What there was no space for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// A change of the tree; whether it fits behind a transaction point, where that was counted.
    Change(SpaceClass, Option<bool>),
    /// So many blocks of data, for a request as a whole.
    Data(SpaceClass, u64),
}

/// Points that were set in vain: blocks that the working state used, and blocks of data that were
/// wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vain {
    /// Whether one was set since the last [`note`](Self::note).
    set: bool,
    /// For new data and for rewrites.
    change: [Option<u64>; 2],
    data: [Option<(u64, u64)>; 2],
}

/// The place of a class in [`Vain`].
fn place(class: SpaceClass) -> usize {
    usize::from(class == SpaceClass::Rewrite)
}

impl Vain {
    /// Whether one for the same would be in vain, too.
    fn again(&self, wanted: Wanted, used: u64) -> bool {
        match wanted {
            Wanted::Change(SpaceClass::Freeing, _) => false,
            Wanted::Change(class, _) => self.change[place(class)].is_some_and(|then| used >= then),
            Wanted::Data(class, blocks) => {
                self.data[place(class)].is_some_and(|(then, few)| used >= then && blocks >= few)
            }
        }
    }

    /// There was no space behind the last one.
    fn note(&mut self, wanted: Wanted, used: u64) {
        if !core::mem::take(&mut self.set) {
            return;
        }
        match wanted {
            Wanted::Change(class, _) => self.change[place(class)] = Some(used),
            Wanted::Data(class, blocks) => self.data[place(class)] = Some((used, blocks)),
        }
    }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Whether an operation without space may set a transaction point.
    pub(super) fn may_reclaim(&self) -> bool {
        self.active_mask().contains(TransactionMask::VOLUME_FULL)
    }

    /// Space ran out: brings some back, where that is possible. `true`: try again, which was done
    /// `tries` times before.
    pub(super) fn reclaim(&self, wanted: Wanted, tries: u32) -> Result<bool> {
        let again = tries < RECLAIM_TRIES && self.bring_back(wanted)?;
        if !again && tries > 0 {
            let mut working = self.working.lock();
            let used = working.space.used();
            working.vain.note(wanted, used);
        }
        Ok(again)
    }

    fn bring_back(&self, wanted: Wanted) -> Result<bool> {
        let (frozen, worth_it) = {
            let working = self.working.lock();
            (working.frozen.is_some(), self.is_worth_a_point(&working, wanted))
        };
        if frozen {
            self.finish_checkpoint()?;
            return Ok(true);
        }
        if !self.may_reclaim() {
            return Ok(false);
        }
        if worth_it {
            self.working.lock().vain.set = true;
            self.checkpoint_now()?;
            return Ok(true);
        }
        if matches!(wanted, Wanted::Change(SpaceClass::Freeing, _)) {
            return self.delete_for_room();
        }
        Ok(self.give_back_files(wanted)? || self.delete_for_room()?)
    }

    /// Whether what was wanted fits behind a transaction point, as far as can be counted. Where a
    /// removal does not fit everything is tried.
    fn is_worth_a_point(&self, working: &Working, wanted: Wanted) -> bool {
        if planted(Sabotage::PointsInVain) {
            return working.space.almost_free() > 0;
        }
        if working.space.almost_free() == 0 || working.vain.again(wanted, working.space.used()) {
            return false;
        }
        match wanted {
            Wanted::Change(SpaceClass::Freeing, _) => true,
            Wanted::Change(_, fits) => fits.unwrap_or(true),
            Wanted::Data(class, blocks) => self.has_room_later(working, class, blocks),
        }
    }

    /// Whether so many blocks of data fit behind a transaction point. New data is counted as it was
    /// promised; for rewrites, which may always go on, the point is tried where it may be enough.
    fn has_room_later(&self, working: &Working, class: SpaceClass, blocks: u64) -> bool {
        let pieces = if class == SpaceClass::Normal { Pieces::LONG } else { Pieces::REWRITE };
        self.data_room(working, class, pieces) >= blocks
    }

    /// Gives back what removed files hold, until what was wanted fits behind a transaction point.
    /// `true`: something is back.
    fn give_back_files(&self, wanted: Wanted) -> Result<bool> {
        let mut any = false;
        while self.reclaim_step()? {
            any = true;
            let working = self.working.lock();
            let fits = match wanted {
                Wanted::Change(..) => true,
                Wanted::Data(class, blocks) => self.has_room_later(&working, class, blocks),
            };
            if fits {
                break;
            }
        }
        if any {
            self.checkpoint_now()?;
        }
        Ok(any)
    }

    /// What a deleted snapshot held comes back in units, of which some only move blocks to another
    /// one. `true`: some is back.
    fn delete_for_room(&self) -> Result<bool> {
        if !self.snapshots_wait() {
            return Ok(false);
        }
        for _ in 0..DELETE_UNITS {
            let before = self.working.lock().space.available();
            let more = self.delete_in_background(true)?;
            if self.working.lock().space.available() > before {
                return Ok(true);
            }
            if !more {
                break;
            }
        }
        Ok(false)
    }

    /// Brings back what removed files and deleted snapshots still hold, until
    /// [`available_bytes`](Self::available_bytes) says `bytes` or nothing is left to come back.
    ///
    /// # Errors
    /// Those of the medium; `ReadOnly`, `Poisoned`.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        self.check_writable()?;
        while self.available_bytes()? < bytes && self.may_reclaim() {
            if !(self.reclaim_step()? || self.delete_for_room()?) {
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
    pub(crate) fn wait_for_room(&self, blocks: u64) -> Result<()> {
        if blocks > self.store.superblock_now().usable_blocks() {
            return Err(Error::NoSpace);
        }
        loop {
            let room = self.data_room(&self.working.lock(), SpaceClass::Normal, Pieces::LONG);
            if room >= blocks {
                return Ok(());
            }
            // What a step of either frees counts at once: the one who takes the blocks sets the
            // point.
            if !self.may_reclaim() || !(self.reclaim_step()? || self.delete_for_room()?) {
                return Err(Error::NoSpace);
            }
        }
    }
}
