//! Bringing a log to where its array is.
//!
//! A log that was in use when the client died is at most its bound behind: what has changed since
//! the flush point that it is at is told by the numbers of the records, and becomes one batch,
//! before anything else is written. A new log, and one that is further behind, is copied in full
//! while the array is used. It is not complete until the end of that, and then it is at the flush
//! point at which the last of it was taken in.

use steadfast_media::Medium;

use super::disk::Disk;
use super::layer::Layer;
use super::{BLOCK, Intake, LogError, PIECE, WriteBehind};
use crate::array::{Array, Fleet, Point};

/// Bytes that are compared at once.
const BLOCKS: u32 = (PIECE / BLOCK) as u32;

/// Brings what has changed since the log's flush point in one batch, for `point`: whether that
/// could be.
pub(super) fn catch_up<F: Fleet, D: Medium>(
    disk: &mut Disk<D>,
    array: &Array<F>,
    bound: usize,
    point: Point,
) -> Result<bool, LogError> {
    let Some((from, true)) = disk.newest() else { return Ok(false) };
    if !array.follows(&from) {
        return Ok(false);
    }
    let mut layer = Layer::default();
    let (mut next, blocks) = (0, disk.header().blocks());
    while let Some(first) = array.changed_since(&from, next) {
        let count = BLOCKS.min(blocks.saturating_sub(first));
        let (mut new, mut old) = (vec![0; count as usize * BLOCK], vec![0; count as usize * BLOCK]);
        if array.read(u64::from(first) * BLOCK as u64, &mut new).is_err() {
            // Of a few blocks, such as discarded ones, nobody may know what they are. The copy
            // leaves those out.
            return Ok(false);
        }
        disk.read(first, &mut old)?;
        // Some were only moved to other segments.
        for (index, (new, old)) in new.chunks_exact(BLOCK).zip(old.chunks_exact(BLOCK)).enumerate()
        {
            if new != old {
                layer.write(first + index as u32, new);
            }
        }
        if layer.bytes() > bound {
            return Ok(false);
        }
        next = first + count;
    }
    disk.commit(&layer, point, true)?;
    Ok(true)
}

impl<D: Medium> WriteBehind<D> {
    /// Copies some more of the array, if something is left: how many bytes, `None` where nothing
    /// is.
    pub fn copy<F: Fleet>(&self, array: &Array<F>) -> Option<usize> {
        self.intake.lock().copy?;
        let step = PIECE.min(self.bound / 2) / BLOCK;
        let mut intake = self.room(array, step * BLOCK).ok()?;
        let next = intake.copy.filter(|_| self.is_working())?;
        // What was never written is zeros here and there.
        let first = if self.blank { array.next_written(next).unwrap_or(self.blocks) } else { next };
        let count = (step as u32).min(self.blocks - first);
        let taken = self.take_in(array, &mut intake, first, count);
        let next = first + count;
        if next < self.blocks {
            intake.copy = Some(next);
            if intake.fresh.bytes() + step * BLOCK > self.bound / 2 {
                // No state that anybody restores from, so no flush is needed.
                let point = intake.point;
                intake.seal(point);
                self.tell();
            }
            return Some(taken);
        }
        if array.flush().is_err() {
            return None;
        }
        intake.copy = None;
        intake.seal(Point { time_ms: (self.clock)(), ..array.point() });
        self.tell();
        Some(taken)
    }

    /// Takes blocks in as the array has them now, those that were never written only where the disk
    /// may hold something there: how many bytes.
    fn take_in<F: Fleet>(
        &self,
        array: &Array<F>,
        intake: &mut Intake,
        first: u32,
        count: u32,
    ) -> usize {
        let before = intake.fresh.bytes();
        let mut bytes = vec![0; BLOCK];
        let wanted = |block: &u32| !self.blank || array.next_written(*block) == Some(*block);
        let mut whole = vec![0; count as usize * BLOCK];
        let read = array.read(u64::from(first) * BLOCK as u64, &mut whole).is_ok();
        for block in (first..first + count).filter(wanted) {
            if read {
                let at = (block - first) as usize * BLOCK;
                intake.fresh.write(block, &whole[at..at + BLOCK]);
            } else if array.read(u64::from(block) * BLOCK as u64, &mut bytes).is_ok() {
                intake.fresh.write(block, &bytes);
            }
        }
        intake.fresh.bytes() - before
    }
}
