//! Replaying a log in pieces, so that opening needs no more memory than running.
//!
//! A replay changes nodes, and changed nodes stay in memory until a checkpoint has written them. A
//! log can change many more nodes than the cache holds. So where the cache is full of them, a
//! checkpoint between two records writes them. Its metaroot says that the log continues behind the
//! first of the two.
//!
//! Invariants:
//! - the metaroot together with the rest of the log is the marked state, before and after. So a
//!   power cut in between changes nothing, and the next opening has less to replay;
//! - blocks that the rest of the log names stay reserved, so no node is written over them;
//! - what the log holds stays in use until the next checkpoint. So no new record is written over
//!   the rest;
//! - the data of the last record was read and compared before, and is flushed with the nodes. So
//!   the next opening need not look whether it is there.
//!
//! With an unreadable or damaged newer state nothing is written: the remains are the evidence of it.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::LogPosition;
use crate::log::LogContent;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes the state after record `index` of the log the durable one, if changed nodes fill the
    /// cache. `start` is where the log began before any piece.
    ///
    /// # Errors
    /// The medium's; `OutOfMemory`.
    pub(super) fn end_piece(
        &self,
        working: &mut Working,
        found: &LogContent,
        start: &LogPosition,
        index: usize,
    ) -> Result<()> {
        let cache = self.store.cache_use();
        if cache.pinned < cache.capacity || self.read_only || self.newer_state.is_some() {
            return Ok(());
        }
        let log = if index + 1 >= found.len() || planted(Sabotage::ReplayEndsEarly) {
            working.log.position()
        } else {
            found.position_after(&self.store, start, index)?
        };
        match self.freeze_tree(working) {
            Ok(()) => {}
            // Nothing has changed; the replay may get through without it.
            Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(error),
        }
        let Some(frozen) = &mut working.frozen else { return Ok(()) };
        frozen.metaroot.log = log;
        let metaroot = frozen.metaroot;
        self.write_frozen(working, metaroot)
    }
}
