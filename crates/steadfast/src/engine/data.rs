//! What `fs` and the checker need beside the map: bytes, moved outside the writer's lock; pins;
//! superblock and counts; access times.

use core::sync::atomic::Ordering;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::format::{Root, Superblock};
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun};

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
    /// As it was when the volume was opened.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.store.device.superblock
    }

    /// With the present size of the volume.
    pub(crate) fn superblock_now(&self) -> Superblock {
        self.store.device.superblock_now()
    }

    /// Nodes and blocks, for the checker.
    pub(crate) fn store(&self) -> &Store<M, P> {
        &self.store
    }

    /// The tree that operations see, for the checker.
    pub(crate) fn working_root(&self) -> Root {
        self.view.read().root
    }

    /// Number of inodes, and the next inode number, of the working state.
    pub(crate) fn working_counts(&self) -> (u64, u64) {
        let working = self.working.lock();
        (working.inodes, working.next_inode)
    }

    pub(crate) fn access_times(&self) -> bool {
        self.access_times.load(Ordering::Relaxed) && !self.read_only
    }

    pub(crate) fn set_access_times(&self, updated: bool) {
        self.access_times.store(updated, Ordering::Relaxed);
    }

    /// Pins blocks. The caller still holds the [`Reader`](crate::engine::Reader) through which it
    /// found them.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn pin(&self, runs: Runs) -> Result<PinGuard<'_, M, P>> {
        memory::extend(&mut self.pins.lock(), &runs)?;
        Ok(PinGuard { engine: self, runs })
    }

    /// Reads that were repeated because their data did not match its checksum. Valid causes are a
    /// concurrent rollback and damage. Any other repeat means that blocks were reused under a
    /// reader.
    #[doc(hidden)]
    pub(crate) fn reads_repeated(&self) -> u32 {
        self.reads_repeated.load(Ordering::Relaxed)
    }

    pub(crate) fn note_repeated_read(&self) {
        self.reads_repeated.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_blocks(&self, start: BlockAddress, buffer: &mut [u8]) -> Result<()> {
        self.store.device.read_blocks(start, buffer)
    }

    pub(crate) fn write_blocks(&self, start: BlockAddress, data: &[&[u8]]) -> Result<()> {
        self.store.device.write_blocks(start, data)
    }

    /// Writes into blocks of an unwritten extent. The caller publishes them as written afterwards.
    pub(crate) fn write_blocks_in_place(&self, start: BlockAddress, data: &[&[u8]]) -> Result<()> {
        self.store.device.write_blocks(start, data)?;
        self.store.device.note_in_place();
        Ok(())
    }

    pub(crate) fn crc(&self, bytes: &[u8]) -> u32 {
        self.store.device.crc(bytes)
    }
}
