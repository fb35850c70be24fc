//! Snapshots of a volume: taking, listing, deleting, going back.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::Volume;
use crate::error::Result;
use crate::format::Snapshot;
use crate::platform::Platform;
use crate::types::Generation;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The snapshots, oldest first.
    ///
    /// # Errors
    /// `Poisoned` after close, `CorruptMetadata`, `OutOfMemory`, `Medium`.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        self.engine.snapshots()
    }

    /// The snapshot of this name.
    ///
    /// # Errors
    /// `NotFound`; as [`snapshots`](Self::snapshots).
    pub fn snapshot(&self, name: &str) -> Result<Snapshot> {
        self.engine.snapshot(name)
    }

    /// Whether there is a snapshot of this generation. The work does not depend on the number of
    /// snapshots.
    ///
    /// # Errors
    /// As [`snapshots`](Self::snapshots).
    pub fn has_snapshot(&self, generation: Generation) -> Result<bool> {
        self.engine.has_snapshot(generation)
    }

    /// Opens a snapshot of this volume beside it, read-only, on `medium`: the volume's own. It
    /// takes up to `cache_size` bytes for nodes, names and bitmaps. Opening reads no more than the
    /// snapshot's key.
    ///
    /// The snapshot must not be deleted while it is open.
    ///
    /// # Errors
    /// `NotFound` if the volume does not have it, or is still taking it; `CorruptMetadata`,
    /// `OutOfMemory`, `Poisoned` after close.
    pub fn open_view<N: Medium>(
        &self,
        medium: N,
        platform: P,
        generation: Generation,
        cache_size: usize,
    ) -> Result<Volume<N, P>> {
        let engine = self.engine.open_view(medium, platform, generation, cache_size)?;
        Ok(Volume::with_engine(engine))
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
