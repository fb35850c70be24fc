//! Opening a volume whose newest state is damaged: finding out whether [a newer one
//! existed](NewerState), and giving it up.
//!
//! Invariants:
//! - the result of a power cut is never taken for damage. A power cut spoils at most one copy of a
//!   metaroot, and the last record;
//! - a volume whose newer state is damaged is not written to unless the caller asks for it. Its
//!   owner has lost acknowledged points, and each write makes recovery harder;
//! - a given-up state never comes back, and the volume is sound. A checkpoint overwrites the
//!   damaged metaroot, and the log continues with an LSN that no record in the ring has.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::log::{LogContent, Stranded, lsn_after_the_past, stranded};
use crate::newer::NewerState;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::{BlockAddress, Lsn};

/// Bytes that are examined after a log that ends in good order, so that opening takes a bounded
/// time. After a record that a power cut may have interrupted the whole log is examined.
const NEAR: u64 = 256 << 10;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Evidence that a newer state than the opened one was durable once.
    pub(crate) fn newer_state_lost(&self) -> Option<NewerState> {
        self.newer_state
    }

    /// Makes the opened state the newest one for good.
    #[inline(never)]
    pub(crate) fn give_up_newer(&self) -> Result<()> {
        self.replay_overlay()?;
        let lsn = lsn_after_the_past(&self.store.device.medium, &self.store.device.superblock)?;
        {
            let mut working = self.working.lock();
            working.log.pass(lsn);
            // Forces a checkpoint even with nothing to write.
            working.parameters_changed = true;
        }
        self.checkpoint_now()?;
        self.store.device.flush()
    }
}

/// Whether the log once continued past its end, beyond a record that was in flight.
#[inline(never)]
pub(super) fn find_newer_records<M: Medium, P: Platform>(
    store: &Store<M, P>,
    found: &LogContent,
) -> Result<Option<NewerState>> {
    let region = store.device.superblock.log;
    if region.count == 0 {
        return Ok(None);
    }
    let first = found.end.lsn;
    let durable = found.damaged_points.checked_sub(1).map(|more| Lsn(first.0 + u64::from(more)));
    let reach = if found.unfinished { Stranded::Anywhere } else { Stranded::Near(NEAR) };
    let last = stranded(store, found, reach)?.max(durable);
    let block = BlockAddress(region.start.0 + found.end.block);
    Ok(last.map(|last| NewerState::Records { block, first, last }))
}
