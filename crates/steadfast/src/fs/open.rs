//! Open counts, in memory: they keep an inode alive while it has no name.

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::format::inode::{FLAG_RECLAIMING, FLAG_TRUNCATING, Inode};
use crate::fs::orphan::{self, Progress};
use crate::platform::Platform;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Limit of the open orphans that one step skips.
const SKIPPED_MAX: usize = 1024;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Keeps the inode alive while it has no name, until [`release`](Self::release) is called as
    /// often. Counts are in memory.
    ///
    /// # Errors
    /// `Stale` if the inode no longer exists; `OutOfMemory`.
    pub fn acquire(&self, inode: InodeNumber) -> Result<()> {
        let first = self.count(inode)?;
        let found = self.look_up_counted(inode, first);
        if found.is_err() {
            self.release(inode);
        }
        found
    }

    /// An operation that removes an inode reads the count under the writer's lock. One that read it
    /// before this inode was counted may not have applied its batch yet. An empty batch waits for
    /// it; after that the inode is either removed or stays.
    fn look_up_counted(&self, inode: InodeNumber, first: bool) -> Result<()> {
        if first {
            match self.update(SpaceClass::Freeing, |_| Ok(())) {
                // Nothing is removed from a volume that cannot be written to.
                Ok(()) | Err(Error::ReadOnly | Error::Poisoned(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match Inode::load(&self.engine.reader()?, inode)? {
            attributes if attributes.has(FLAG_RECLAIMING) => Err(Error::Stale(inode)),
            _ => Ok(()),
        }
    }

    /// Adds to the count. Returns whether it was zero.
    pub(crate) fn count(&self, inode: InodeNumber) -> Result<bool> {
        let mut counts = self.open_counts().lock();
        counts.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let count = counts.entry(inode).or_insert(0);
        *count = count.saturating_add(1);
        Ok(*count == 1)
    }

    /// Whether the inode is open.
    pub(crate) fn is_acquired(&self, inode: InodeNumber) -> bool {
        self.open_counts().lock().contains_key(&inode)
    }

    /// Undoes one [`acquire`](Self::acquire). It never blocks for long: background work frees the
    /// space.
    pub fn release(&self, inode: InodeNumber) {
        let mut counts = self.open_counts().lock();
        if let Some(count) = counts.get_mut(&inode) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&inode);
                self.engine.background.wake_reclaim();
            }
        }
    }

    /// One bounded step of freeing the space of removed and truncated files. Returns whether there
    /// may be more to do at once. Orphans that a power cut left are found and continued in the same
    /// way.
    ///
    /// # Errors
    /// Those of a commit. A damaged orphan is skipped; the others are processed.
    pub(crate) fn orphan_step(&self) -> Result<bool> {
        let parameters = self.parameters();
        let mut after = 0;
        for _ in 0..SKIPPED_MAX {
            let Some(inode) = orphan::following(&self.engine.reader()?, after)? else {
                return Ok(false);
            };
            after = inode.0;
            let truncating = || {
                Inode::load(&self.engine.reader()?, inode).map(|found| found.has(FLAG_TRUNCATING))
            };
            if self.is_acquired(inode) && !truncating().unwrap_or(false) {
                continue;
            }
            let step = self.update(SpaceClass::Freeing, |tx| {
                let acquired = self.is_acquired(inode);
                orphan::delete_step(tx, &parameters, inode, acquired)
            });
            match step {
                Ok(Progress::Done | Progress::More) => return Ok(true),
                Ok(Progress::Open) | Err(Error::CorruptMetadata { .. }) => {}
                // With `volume full` masked out, there may be no space even for this until a
                // transaction point or a rollback.
                Err(Error::NoSpace) => {
                    self.engine.background.wake_reclaim();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
