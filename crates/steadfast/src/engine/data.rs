//! What `fs` and the checker need beside the map: bytes, moved outside the writer's lock; pins;
//! superblock and counts; access times.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::format::{Root, Superblock};
use crate::io::Device;
use crate::memory::{self, Short};
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::BlockRun;

/// The runs that one read or write pins: mostly one.
pub(crate) type Runs = Short<BlockRun, 1>;

/// Whether reads store the time.
pub(crate) struct AccessTimes {
    stored: AtomicBool,
    read_only: bool,
}

impl AccessTimes {
    pub(super) fn new(stored: bool, read_only: bool) -> AccessTimes {
        AccessTimes { stored: AtomicBool::new(stored), read_only }
    }

    pub fn are_stored(&self) -> bool {
        self.stored.load(Ordering::Relaxed) && !self.read_only
    }

    pub fn set(&self, stored: bool) {
        self.stored.store(stored, Ordering::Relaxed);
    }
}

/// Counts the reads that were repeated because their data did not match its checksum. Valid causes
/// are a concurrent rollback and damage. Any other repeat means that blocks were reused under a
/// reader.
#[derive(Default)]
pub(crate) struct RepeatedReads(AtomicU32);

impl RepeatedReads {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

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

    /// The medium as blocks, and the platform.
    pub(crate) fn device(&self) -> &Device<M, P> {
        &self.store.device
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
