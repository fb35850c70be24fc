//! Discarding all free space at once, as fstrim does on other file systems.
//!
//! Background work discards what checkpoints free, on media that want it and as far as its memory
//! reaches. This goes through the bitmaps instead, so it includes blocks that were free when the
//! volume was opened. A block may be discarded exactly when it may be allocated: no state and no
//! operation in progress uses it, and no reader pins it. The writer's lock is held while the runs
//! of a group are collected and discarded, so none of them can be allocated meanwhile.

use steadfast_media::Medium;

use crate::error::Result;
use crate::platform::Platform;
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes a checkpoint, so that freed blocks are free, and discards every free run of at least
    /// `least` bytes. Returns the number of discarded bytes. The medium may ignore the discards.
    ///
    /// # Errors
    /// `ReadOnly`, `Held`, `Poisoned`; `CorruptMetadata`, and the medium's error.
    pub fn trim(&self, least: u64) -> Result<u64> {
        // Twice: the first frees blocks, the second makes that the checkpointed state.
        self.checkpoint()?;
        self.checkpoint()?;
        let (mut discarded, mut from) = (0, Some(0));
        while let Some(offset) = from {
            let (more, next) = self.trim_step(offset, u64::MAX, least)?;
            discarded += more;
            from = next;
        }
        Ok(discarded)
    }

    /// One bounded step of a trim of the byte range `from..to` of the volume. Discards the free
    /// runs of at least `least` bytes in the first allocation group. Returns the number of
    /// discarded bytes, and the offset of the next step; `None` if the range is done. Sets no
    /// transaction point, so blocks that the last checkpointed state still needs stay.
    ///
    /// # Errors
    /// `ReadOnly`, `Poisoned`; `CorruptMetadata`, `OutOfMemory`, and the medium's error.
    pub fn trim_step(&self, from: u64, to: u64, least: u64) -> Result<(u64, Option<u64>)> {
        self.engine.ensure_writable()?;
        let superblock = self.engine.store().device.superblock_now();
        let block_size = u64::from(superblock.block_size);
        let from = from.div_ceil(block_size).max(superblock.first_block());
        let end = superblock.end_block().min(to / block_size);
        if from >= end {
            return Ok((0, None));
        }
        self.engine.with_survey(from, |group| {
            // A volume that has failed does not know which state is the checkpointed one.
            self.engine.lifecycle.check_not_failed()?;
            // No state uses anything in the groups before it.
            let begin = group.as_ref().map_or(end, |group| group.start.clamp(from, end));
            let after = group.as_ref().map_or(end, |group| group.end().min(end)).max(from + 1);
            self.engine.check_other_writer(true)?;
            let mut discarded = 0;
            let mut discard = |start: u64, stop: u64| -> Result<()> {
                let length = stop.saturating_sub(start) * block_size;
                if length >= least.max(block_size) {
                    self.engine.store().device.medium.discard(start * block_size, length)?;
                    discarded += length;
                }
                Ok(())
            };
            discard(from, begin)?;
            let mut at = begin;
            while let Some((start, stop)) = group.as_ref().and_then(|group| group.free_run(at)) {
                discard(start, stop.min(end))?;
                at = stop;
            }
            Ok((discarded, (after < end).then(|| after * block_size)))
        })
    }
}
