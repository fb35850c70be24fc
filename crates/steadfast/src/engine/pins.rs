//! Pins: blocks that a read or a write in progress needs. Its device I/O runs outside all locks of
//! the engine. Pinned blocks are not reused, even when they are freed.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::types::BlockRun;

/// The runs that one read or write pins: mostly one.
pub(crate) type Runs = Short<BlockRun, 1>;

/// Blocks that are not reused while this exists, even when they are freed.
pub(crate) struct PinGuard<'a, M: Medium, P: Platform> {
    engine: &'a Engine<M, P>,
    runs: Runs,
}

impl<M: Medium, P: Platform> Drop for PinGuard<'_, M, P> {
    fn drop(&mut self) {
        let mut pins = self.engine.pins.lock();
        for run in self.runs.iter() {
            if let Some(index) = pins.iter().position(|pinned| pinned == run) {
                pins.swap_remove(index);
            }
        }
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Pins blocks. The caller still holds the [`Reader`](crate::engine::Reader) through which it
    /// found them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn pin(&self, runs: Runs) -> Result<PinGuard<'_, M, P>> {
        memory::extend(&mut self.pins.lock(), &runs)?;
        Ok(PinGuard { engine: self, runs })
    }
}
