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

    /// Deletes a snapshot. It is gone for every reader at once, and durably when this returns (a
    /// transaction point). [`background`](Self::background) work frees its blocks. Works on a full
    /// volume.
    ///
    /// # Errors
    /// `NotFound`, `Held`; as [`transact`](Self::transact).
    pub fn snapshot_delete(&self, name: &str) -> Result<()> {
        self.engine.snapshot_delete(name)
    }

    /// Returns the whole volume to a snapshot; the snapshot stays. Changes that were not durable
    /// are dropped first, as by [`rollback`](Self::rollback), with the same effect on every user of
    /// the volume. Newer snapshots are deleted. If there are any and `destroy_newer` is false, the
    /// call fails. The result is durable on return.
    ///
    /// # Errors
    /// `NotFound`; `NewerSnapshots` if some would be destroyed; as [`transact`](Self::transact).
    /// `NoSpace`, and errors of reading the snapshot's tree: the volume is then at its last
    /// transaction point.
    pub fn snapshot_rollback(&self, name: &str, destroy_newer: bool) -> Result<()> {
        self.engine.ensure_writable()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.snapshot_rollback(name, destroy_newer)
    }
}
