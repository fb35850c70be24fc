//! Opening behind a state that is damaged: whether [there was a newer one](NewerState) than what is
//! left, and giving it up.
//!
//! Invariants:
//! - what a power cut leaves is never taken for damage: it spoils one copy of a metaroot, and the
//!   last record;
//! - a volume whose newer state is damaged is not written to, unless that was asked for: to its
//!   owner acknowledged points are lost, and each write makes it harder to get them back;
//! - once it has been given up nothing of it comes back, and the volume is sound: a checkpoint goes
//!   over the damaged metaroot, and the log goes on with an LSN that no record in the ring has.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::log::{Replayed, Stranded, lsn_behind_the_past, stranded};
use crate::newer::NewerState;
use crate::platform::Platform;
use crate::types::{BlockAddress, Lsn};

/// Bytes behind the end of the log that are looked at where it ends in good order: opening takes a
/// bounded time. A record that a power cut may have interrupted has the whole log looked at.
const NEAR: u64 = 256 << 10;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// What shows that a newer state than the one that was opened was durable once.
    pub(crate) fn newer_state_lost(&self) -> Option<NewerState> {
        self.newer_state
    }

    /// Whether the log once went on behind its end, beyond a record that was in flight.
    pub(crate) fn find_newer_records(&self, found: &Replayed) -> Result<Option<NewerState>> {
        let region = self.store.superblock.log;
        if region.count == 0 {
            return Ok(None);
        }
        let first = found.end.lsn;
        let durable =
            found.damaged_points.checked_sub(1).map(|more| Lsn(first.0 + u64::from(more)));
        let reach = if found.unfinished { Stranded::Anywhere } else { Stranded::Near(NEAR) };
        let last = stranded(&self.store, found, reach)?.max(durable);
        let block = BlockAddress(region.start.0 + found.end.block);
        Ok(last.map(|last| NewerState::Records { block, first, last }))
    }

    /// Makes the state that was opened the newest one for good.
    pub(crate) fn give_up_newer(&self) -> Result<()> {
        self.catch_up()?;
        let lsn = lsn_behind_the_past(&self.store.medium, &self.store.superblock)?;
        {
            let mut working = self.working.lock();
            working.log.pass(lsn);
            // A checkpoint, whatever there is to be written.
            working.parameters_changed = true;
        }
        self.checkpoint_now()?;
        self.store.flush()
    }
}
