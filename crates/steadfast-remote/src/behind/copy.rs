//! Brings a log up to date with its array.
//!
//! A log that was in use when the client died is behind by at most its limit. The record numbers
//! tell which blocks have changed since its flush point. These become one batch before any other
//! write.
//!
//! A new log, or one that is further behind, is copied in full while the array is in use. It is
//! complete only after the copy ends; its flush point then covers the last copied block.

use steadfast_media::Medium;

use super::disk::Disk;
use super::layer::Layer;
use super::{BLOCK, Intake, LogError, PIECE, WriteBehind};
use crate::array::{Array, Fleet, Point};

/// Blocks compared at once.
const BLOCKS: u32 = (PIECE / BLOCK) as u32;

/// Writes all changes since the log's flush point as one batch, for `point`. Returns whether that
/// is possible.
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
            // Some blocks, such as discarded ones, may be unreadable on all servers. The copy
            // leaves those out.
            return Ok(false);
        }
        disk.read(first, &mut old)?;
        // Some blocks were only moved to other segments.
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
    /// Copies one more part of the array. Returns the bytes copied, or `None` if nothing is left.
    pub fn copy<F: Fleet>(&self, array: &Array<F>) -> Option<usize> {
        self.intake.lock().copy?;
        let step = PIECE.min(self.bound / 2) / BLOCK;
        let mut intake = self.room(array, step * BLOCK).ok()?;
        let next = intake.copy.filter(|_| self.is_working())?;
        // Blocks never written are zeros on both sides.
        let first = if self.blank { array.next_written(next).unwrap_or(self.blocks) } else { next };
        let count = (step as u32).min(self.blocks - first);
        let taken = self.take_in(array, &mut intake, first, count);
        let next = first + count;
        if next < self.blocks {
            intake.copy = Some(next);
            if intake.fresh.bytes() + step * BLOCK > self.bound / 2 {
                // The image is not complete yet and cannot be restored, so no flush is needed.
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

    /// Takes the present contents of blocks into the log. Blocks that were never written are taken
    /// only if the disk may hold old data there. Returns the bytes taken.
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
