//! What a volume tells about itself.

use steadfast_media::Medium;

use super::{Activity, Statistics, Volume, VolumeInfo};
use crate::error::Result;
use crate::newer::NewerState;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The medium below.
    pub fn medium(&self) -> &M {
        &self.engine.device().medium.0
    }

    /// The platform.
    pub fn platform(&self) -> &P {
        &self.engine.device().platform
    }

    /// Longest name of a file, bytes.
    pub fn name_max(&self) -> usize {
        self.engine.superblock().name_max()
    }

    /// Parameters and state.
    pub fn info(&self) -> VolumeInfo {
        self.engine.info()
    }

    /// Changes the label. It is durable when this returns, whatever the transaction mask says, and
    /// a rollback leaves it. It has at most 32 bytes without NUL; an empty one means none.
    ///
    /// # Errors
    /// `InvalidArgument`, `ReadOnly`, `Poisoned`, `Held`; `Unsupported` where the medium tears 512
    /// bytes and the volume is shorter than it. After the medium's error the volume has the old
    /// label or the new one.
    pub fn set_label(&self, label: &str) -> Result<()> {
        self.engine.set_label(label)
    }

    /// Changes [`OpenOptions::access_times`](crate::OpenOptions::access_times) of the open volume.
    pub fn set_access_times(&self, updated: bool) {
        self.engine.access_times.set(updated);
    }

    /// Space and counts.
    ///
    /// # Errors
    /// `Poisoned` after close.
    pub fn statistics(&self) -> Result<Statistics> {
        self.engine.statistics()
    }

    /// What the volume is doing.
    ///
    /// # Errors
    /// `Poisoned` after close.
    pub fn activity(&self) -> Result<Activity> {
        self.engine.activity()
    }

    /// Bytes of file data that the volume can surely still accept now, in any pieces. Freed blocks
    /// that a transaction point makes reusable are included. They are not while the volume is held,
    /// or if the mask has no `volume full`: then no point may be set. If the result is too small, a
    /// write may still succeed; only the write itself decides.
    ///
    /// Takes the writer's lock for a moment and reads nothing, so it may be called for each
    /// request.
    ///
    /// # Errors
    /// `Poisoned` after close.
    pub fn available_bytes(&self) -> Result<u64> {
        self.engine.available_bytes()
    }

    /// Memory that [`give_back`](Self::give_back) could free at this moment, in bytes. Waits for
    /// nothing; where the cache is in use it says 0.
    pub fn can_give_back(&self) -> usize {
        self.engine.store().can_give_back()
    }

    /// Frees about `bytes` bytes of the memory of [`cache_size`](crate::OpenOptions::cache_size),
    /// if so many can go. First go nodes that are written, those not used lately before others.
    /// Then go names. Returns how many bytes are free. Later operations read again what they need,
    /// and the caches fill as before.
    ///
    /// For systems that lack memory: it waits for no lock, allocates nothing, and does no I/O.
    pub fn give_back(&self, bytes: usize) -> usize {
        self.engine.store().give_back(bytes)
    }

    /// Why the volume accepts no more changes, if it made itself read-only.
    pub fn failure(&self) -> Option<&'static str> {
        self.engine.lifecycle.failure()
    }

    /// Evidence that a newer state than the opened one was durable once.
    pub fn newer_state_lost(&self) -> Option<NewerState> {
        self.engine.newer_state_lost()
    }

    /// Whether the log is still beside the tree: since open nothing has been changed, and no caller
    /// has needed facts that only the tree has. [`background`](Self::background) replays it.
    pub fn replay_pending(&self) -> bool {
        self.engine.lifecycle.replay_pending()
    }

    /// Reads that were repeated because their data did not match its checksum. Valid causes are a
    /// concurrent rollback and damage. Any other repeat means that blocks were reused under a
    /// reader.
    #[doc(hidden)]
    pub fn reads_repeated(&self) -> u32 {
        self.engine.repeated_reads.count()
    }
}
