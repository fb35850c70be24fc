//! Closing a volume.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::lifecycle::Lifecycle;
use crate::error::Result;
use crate::mask::TransactionMask;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Closes the volume. If the mask has `unmount`, a checkpoint is made; otherwise uncommitted
    /// changes are dropped. Every later operation fails.
    pub(crate) fn close(&self) -> Result<()> {
        if self.lifecycle.now() == Lifecycle::Closed {
            return Ok(());
        }
        let commits = !self.read_only
            && !self.lifecycle.has_failed()
            && self.active_mask().contains(TransactionMask::UNMOUNT);
        let result = if commits { self.checkpoint_now() } else { Ok(()) };
        while commits && result.is_ok() && self.discard_step(u64::MAX) {}
        // Makes the second copy of the last metaroot durable.
        let result = if commits { result.and_then(|()| self.store.device.flush()) } else { result };
        self.lifecycle.enter(Lifecycle::Closed);
        result
    }
}
