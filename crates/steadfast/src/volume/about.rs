//! What a volume tells about itself, and its size.

use steadfast_media::Medium;

use super::{Activity, MapCell, MapGeometry, Statistics, Volume, VolumeInfo};
use crate::error::Result;
use crate::format::key::Key;
use crate::newer::NewerState;
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun};

impl<M: Medium, P: Platform> Volume<M, P> {
    /// The medium below.
    pub fn medium(&self) -> &M {
        self.engine.medium()
    }

    /// The platform.
    pub fn platform(&self) -> &P {
        self.engine.platform()
    }

    /// Longest name of a file, bytes.
    pub fn name_max(&self) -> usize {
        self.engine.name_max()
    }

    /// Parameters and state.
    pub fn info(&self) -> VolumeInfo {
        self.engine.info()
    }

    /// Changes [`OpenOptions::access_times`](crate::OpenOptions::access_times) of the open volume.
    pub fn set_access_times(&self, updated: bool) {
        self.engine.set_access_times(updated);
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
    /// that a transaction point makes reusable are included, unless none may be set: while the
    /// volume is held, or if the mask has no `volume full`. If the result is too small, a write may
    /// still succeed; only the write itself decides.
    ///
    /// Takes the writer's lock for a moment and reads nothing, so it may be called for each
    /// request.
    ///
    /// # Errors
    /// `Poisoned` after close.
    pub fn available_bytes(&self) -> Result<u64> {
        self.engine.available_bytes()
    }

    /// Why the volume accepts no more changes, if it made itself read-only.
    pub fn failure(&self) -> Option<&'static str> {
        self.engine.failure()
    }

    /// Evidence that a newer state than the opened one was durable once.
    pub fn newer_state_lost(&self) -> Option<NewerState> {
        self.engine.newer_state_lost()
    }

    /// Whether the log is still beside the tree: since open nothing has been changed, and no caller
    /// has needed facts that only the tree has. [`background`](Self::background) replays it.
    pub fn log_waits(&self) -> bool {
        self.engine.log_waits()
    }

    /// Reads that were repeated because their data did not match its checksum. Valid causes are a
    /// concurrent rollback and damage. Any other repeat means that blocks were reused under a
    /// reader.
    #[doc(hidden)]
    pub fn reads_repeated(&self) -> u32 {
        self.engine.reads_repeated()
    }

    /// Where the fixed parts of the volume are.
    pub fn map_geometry(&self) -> MapGeometry {
        self.engine.map_geometry()
    }

    /// Counts the blocks of at most `groups_max` allocation groups, starting with the group of
    /// block `from`. `cells[i]` stands for the `cell_blocks` blocks from `start + i * cell_blocks`
    /// on. Returns the block to continue at; `None` at the end of the cells or of the volume.
    ///
    /// # Errors
    /// `InvalidArgument` for empty cells or a start behind `from`; `Poisoned` after close;
    /// `CorruptMetadata`, and the medium's error.
    pub fn map_space(
        &self,
        from: u64,
        start: u64,
        cell_blocks: u64,
        cells: &mut [MapCell],
        groups_max: u32,
    ) -> Result<Option<u64>> {
        self.engine.map_space(from, start, cell_blocks, cells, groups_max)
    }

    /// Reports the nodes of one branch above the leaves, from the leaf for key `from` on, at most
    /// `leaves_max` leaves. The branches on the path are reported too, so later steps report them
    /// again. `visit` gets the level (0 for a leaf) and the copies of each node. Returns the key to
    /// continue with; `None` at the end.
    ///
    /// # Errors
    /// `Poisoned` after close; `CorruptMetadata`, and the medium's error.
    pub fn map_nodes(
        &self,
        from: &Key,
        leaves_max: usize,
        visit: &mut dyn FnMut(u8, [BlockAddress; 2]),
    ) -> Result<Option<Key>> {
        self.engine.map_nodes(from, leaves_max, visit)
    }

    /// Reports runs of blocks that only snapshots hold: the first value of a dead list at or after
    /// key `from`. The first step also reports the runs released since the last checkpoint. Returns
    /// the key to continue with; `None` at the end.
    ///
    /// # Errors
    /// `Poisoned` after close; `CorruptMetadata`, `OutOfMemory`, and the medium's error.
    pub fn map_dead(&self, from: &Key, visit: &mut dyn FnMut(BlockRun)) -> Result<Option<Key>> {
        self.engine.map_dead(from, visit)
    }

    /// Estimate of the least size in bytes to which the volume could be made smaller: the used
    /// space and a reserve. A little more may be needed.
    pub fn size_least(&self) -> u64 {
        self.engine.size_least()
    }

    /// Makes the volume larger: `size` bytes, rounded down to whole blocks. The medium must have
    /// that length already. The volume may be in use.
    ///
    /// # Errors
    /// `InvalidArgument` (not larger than before), `Truncated` (the medium is shorter),
    /// `Unsupported` (the medium tears the superblock), `Held`, `ReadOnly`, `Poisoned`, or the
    /// medium's error. Before the last step nothing has changed. After an error in the last step
    /// the volume is read-only, and has either size when it is opened again.
    pub fn grow(&self, size: u64) -> Result<()> {
        self.engine.grow(size)
    }

    /// Makes a checkpoint, so that freed blocks are free, and discards every free run of at least
    /// `least` bytes. Returns the number of discarded bytes. The medium may ignore the discards.
    ///
    /// # Errors
    /// `ReadOnly`, `Held`, `Poisoned`; `CorruptMetadata`, and the medium's error.
    pub fn trim(&self, least: u64) -> Result<u64> {
        self.engine.trim(least)
    }

    /// One bounded step of a trim of the byte range `from..to` of the volume: discards the free
    /// runs of at least `least` bytes in the first allocation group. Returns the number of
    /// discarded bytes, and the offset of the next step; `None` if the range is done. Sets no
    /// transaction point, so blocks that the last durable state still needs stay.
    ///
    /// # Errors
    /// `ReadOnly`, `Poisoned`; `CorruptMetadata`, `OutOfMemory`, and the medium's error.
    pub fn trim_step(&self, from: u64, to: u64, least: u64) -> Result<(u64, Option<u64>)> {
        self.engine.trim_step(from, to, least)
    }
}
