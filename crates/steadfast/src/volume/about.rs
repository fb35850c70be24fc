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

    /// The surroundings.
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

    /// Bytes of file data that the volume can surely still accept now, whatever pieces they come
    /// in. Freed blocks that a transaction point brings back are among them, unless none may be
    /// set: while the volume is held, or where the mask has no `volume full`. Where it says less
    /// than is wanted, a write may still succeed: it alone knows.
    ///
    /// Takes the writer's lock for a moment and looks at nothing else, so that it may be asked for
    /// each request.
    ///
    /// # Errors
    /// `Poisoned` after close.
    pub fn available_bytes(&self) -> Result<u64> {
        self.engine.available_bytes()
    }

    /// Why the volume takes no changes any more, if it went read-only by itself.
    pub fn failure(&self) -> Option<&'static str> {
        self.engine.failure()
    }

    /// What shows that a newer state than the one that was opened was durable once.
    pub fn newer_state_lost(&self) -> Option<NewerState> {
        self.engine.newer_state_lost()
    }

    /// Whether the log that was found is still beside the tree: nothing has been changed since the
    /// volume was opened, and nobody has looked at what only the tree tells.
    /// [`background`](Self::background) puts it there.
    pub fn log_waits(&self) -> bool {
        self.engine.log_waits()
    }

    /// Reads that were begun again because what they found did not match its checksum. Only a
    /// rollback meanwhile is a reason, or damage: anything else means that blocks were used again
    /// under a reader.
    #[doc(hidden)]
    pub fn reads_repeated(&self) -> u32 {
        self.engine.reads_repeated()
    }

    /// Where the fixed parts of the volume are.
    pub fn map_geometry(&self) -> MapGeometry {
        self.engine.map_geometry()
    }

    /// Counts the blocks of at most `groups_max` allocation groups, from the one that holds block
    /// `from` on, into the cells that they belong to: `cells[i]` stands for the `cell_blocks`
    /// blocks from `start + i * cell_blocks` on. Returns where to go on; `None` at the end of the
    /// cells or of the volume.
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

    /// Tells where the tree's nodes are: those of one branch above the leaves, from the leaf for
    /// key `from` on and at most `leaves_max` of them, and the branches on the way there, which
    /// therefore come again in later steps. `visit` gets the level (0 for a leaf) and the copies of
    /// each. Returns the key to go on with; `None` at the end.
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

    /// Tells runs of blocks that only snapshots hold: those of one value of a dead list, the first
    /// at or after key `from`. What was let go since the last checkpoint comes with the first step.
    /// Returns the key to go on with; `None` at the end.
    ///
    /// # Errors
    /// `Poisoned` after close; `CorruptMetadata`, `OutOfMemory`, and the medium's error.
    pub fn map_dead(&self, from: &Key, visit: &mut dyn FnMut(BlockRun)) -> Result<Option<Key>> {
        self.engine.map_dead(from, visit)
    }

    /// The least size in bytes to which the volume could be made smaller, by estimate: what is in
    /// use and a reserve. A little more may be needed.
    pub fn size_least(&self) -> u64 {
        self.engine.size_least()
    }

    /// Makes the volume larger: `size` bytes, rounded down to whole blocks. The medium has to be
    /// that long already. The volume can be in use.
    ///
    /// # Errors
    /// `InvalidArgument` (not larger than before), `Truncated` (the medium is shorter),
    /// `Unsupported` (the medium tears the superblock), `Held`, `ReadOnly`, `Poisoned`, the
    /// medium's. Before the last step nothing has changed; after an error in the last step the
    /// volume is read-only, and has one size or the other when it is opened again.
    pub fn grow(&self, size: u64) -> Result<()> {
        self.engine.grow(size)
    }

    /// Makes a checkpoint, so that what was freed is free, and tells the medium of every free run
    /// of at least `least` blocks. Returns the bytes that it was told of. The medium may ignore
    /// them.
    ///
    /// # Errors
    /// `ReadOnly`, `Held`, `Poisoned`; `CorruptMetadata`, and the medium's error.
    pub fn trim(&self, least: u64) -> Result<u64> {
        self.engine.trim(least)
    }
}
