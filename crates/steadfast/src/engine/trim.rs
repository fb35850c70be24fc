//! Telling the medium of all free space at once: what fstrim does of other file systems.
//!
//! The background tells it of what checkpoints make free, as far as memory for that reaches. This
//! goes through the bitmaps instead, and so reaches what was free when the volume was opened. Of a
//! block that any state uses, or that is handed out, nothing is told: the writer's lock is held
//! while the runs of a group are collected and told.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes a checkpoint, so that what was freed is free, and tells the medium of every free run
    /// of at least `least` blocks. Returns the bytes that it was told of. The medium may ignore
    /// them.
    pub(crate) fn trim(&self, least: u64) -> Result<u64> {
        // Twice: the first one frees, the second one makes that the durable state.
        self.checkpoint()?;
        self.checkpoint()?;
        let superblock = self.store.superblock_now();
        let block_size = u64::from(superblock.block_size);
        let (mut from, end, mut told) = (superblock.first_block(), superblock.end_block(), 0);
        while from < end {
            let working = self.working.lock();
            let roots = self.roots(&working);
            let group = working.space.survey(&self.store, &roots, from)?;
            // Of groups before it no state uses anything.
            let begin = group.as_ref().map_or(end, |group| group.start.clamp(from, end));
            let behind = group.as_ref().map_or(end, |group| group.end().min(end));
            let mut tell = |start: u64, stop: u64| -> Result<()> {
                if stop > start && stop - start >= least.max(1) {
                    self.store.medium.discard(start * block_size, (stop - start) * block_size)?;
                    told += (stop - start) * block_size;
                }
                Ok(())
            };
            tell(from, begin)?;
            let mut at = begin;
            while let Some((start, stop)) = group.as_ref().and_then(|group| group.free_run(at)) {
                tell(start, stop)?;
                at = stop;
            }
            from = behind.max(from + 1);
        }
        Ok(told)
    }
}
