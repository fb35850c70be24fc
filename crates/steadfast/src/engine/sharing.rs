//! Whether blocks of a file have other owners: a snapshot, or another extent.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::keyspace::SpaceClass;
use crate::error::Result;
use crate::platform::Platform;
use crate::types::{BlockRun, Generation};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// The space class for making a hole. A hole in the middle of an extent makes two keys of one.
    /// If a snapshot or another file may share its blocks (`split`), nothing comes back for that,
    /// so it is no removal.
    pub(crate) fn class_of_hole(&self, split: Option<BlockRun>) -> Result<SpaceClass> {
        let Some(run) = split else { return Ok(SpaceClass::Freeing) };
        self.ensure_writable()?;
        let snapshots = self.working.lock().snapshots;
        let held = snapshots.newest.0 > 0
            || snapshots.shared_extents > 0
                && self.reference_counts().is_shared(self.reader()?.root(), run)?;
        Ok(if held { SpaceClass::Normal } else { SpaceClass::Freeing })
    }

    /// Whether neither a snapshot nor another file has blocks of `run`, which were born in `birth`.
    pub(crate) fn is_unshared(&self, run: BlockRun, birth: Generation) -> Result<bool> {
        let (held, shared) = {
            let working = self.working.lock();
            (working.belongs_to_snapshot(birth), working.snapshots.shared_extents > 0)
        };
        Ok(!(held || shared && self.reference_counts().is_shared(self.reader()?.root(), run)?))
    }

    /// Whether there is a snapshot, or a block that several extents have.
    pub(crate) fn shares_any(&self) -> bool {
        let snapshots = self.working.lock().snapshots;
        snapshots.newest.0 > 0 || snapshots.shared_extents > 0
    }
}
