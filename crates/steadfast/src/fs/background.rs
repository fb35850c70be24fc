//! Background work of a volume: that of the engine, and giving back what removed files hold.

use steadfast_media::Medium;

use crate::engine::Turn;
use crate::error::Result;
use crate::platform::Platform;
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// One bounded step of background work. Returns `true` while there is more to do at once. A
    /// host calls it from its own thread at least every 100 ms. Without threads see
    /// [`background_step`](Self::background_step).
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn background(&self) -> Result<bool> {
        self.background_step(self.engine.step_bytes())
    }

    /// As [`background`](Self::background), with a bound on the bytes that a checkpoint step
    /// writes. For slow media, and for hosts without threads, which call it between operations. At
    /// least one node is written. No further node is written when the medium has done as many bytes
    /// of its own upkeep meanwhile ([`Medium::upkeep`]).
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn background_step(&self, bytes: u64) -> Result<bool> {
        let deleting = match self.engine.background_step(bytes)? {
            Turn::Stopped => return Ok(false),
            Turn::Busy => return Ok(true),
            Turn::Done { more } => more,
        };
        if !self.engine.background.take_reclaim() {
            return Ok(deleting);
        }
        let more = self.orphan_step()?;
        if more {
            self.engine.background.wake_reclaim();
        }
        Ok(more || deleting)
    }
}
