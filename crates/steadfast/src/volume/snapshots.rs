//! Snapshots of a volume: taking, listing, deleting, going back.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::format::Snapshot;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The snapshots, oldest first.
    ///
    /// # Errors
    /// `Poisoned` after close, `CorruptMetadata`, `OutOfMemory`, `Medium`.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.engine.snapshots()
    }

    /// Deletes a snapshot: at once for everybody who looks, and durably when this returns (a
    /// transaction point). Its blocks come back by [`background`](Self::background) work. Works on
    /// a full volume.
    ///
    /// # Errors
    /// `NotFound`, `Held`; as [`transact`](Self::transact).
    pub fn snapshot_delete(&self, name: &str) -> Result<()> {
        self.engine.snapshot_delete(name)
    }

    /// Returns the whole volume to a snapshot, which stays. What was not durable is dropped first,
    /// as by [`rollback`](Self::rollback), and the same holds for everybody who has the volume
    /// open. Newer snapshots are deleted; with `destroy_newer` unset that there are any is an
    /// error. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`; `NewerSnapshots` where some would be destroyed; `NoSpace`, and what reading the
    /// snapshot's tree gives (the volume is then at its last transaction point); as
    /// [`transact`](Self::transact).
    pub fn snapshot_rollback(&self, name: &str, destroy_newer: bool) -> Result<()> {
        self.engine.check_writable()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.snapshot_rollback(name, destroy_newer)
    }
}
