//! Discarding all free space at once, as fstrim does on other file systems.
//!
//! Background work discards what checkpoints free, as far as its memory reaches. This goes through
//! the bitmaps instead, so it includes blocks that were free when the volume was opened. Blocks
//! that any state uses or that are reserved are never discarded. The writer's lock is held while
//! the runs of a group are collected and discarded.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes a checkpoint, so that freed blocks are free, and discards every free run of at least
    /// `least` blocks. Returns the number of discarded bytes. The medium may ignore the discards.
    pub(crate) fn trim(&self, least: u64) -> Result<u64> {
        // Twice: the first frees blocks, the second makes that the durable state.
        self.checkpoint()?;
        self.checkpoint()?;
        let superblock = self.store.superblock_now();
        let block_size = u64::from(superblock.block_size);
        let (mut from, end, mut told) = (superblock.first_block(), superblock.end_block(), 0);
        while from < end {
            let working = self.working.lock();
            let roots = self.roots(&working);
            let group = working.space.survey(&self.store, &roots, from)?;
            // No state uses anything in the groups before it.
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
