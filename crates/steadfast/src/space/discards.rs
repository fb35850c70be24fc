//! Blocks that the medium may be told about: a checkpoint has made them free, and nobody has been given them since.
//!
//! Invariants:
//! - a block goes in when it stops being busy at a [`thaw`](super::Space::thaw), and out before it is given out again or falls
//!   behind the end of a volume that becomes smaller. So nothing that is in here is used by a state, a reader or an operation;
//! - whoever tells the medium holds the writer's lock meanwhile, or a block could be given out and written in between;
//! - memory is bounded. What does not fit is not told: a discard is a hint.

use super::RangeSet;
use crate::types::{BlockAddress, BlockRun};

/// See the module.
pub(super) struct Discards {
    waiting: RangeSet,
    ranges_max: usize,
}

impl Discards {
    pub(super) fn new(ranges_max: usize) -> Discards {
        Discards { waiting: RangeSet::default(), ranges_max }
    }

    /// `start..end` has become free.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let joins = self.waiting.intersects(start.saturating_sub(1), end + 1);
        if (joins || self.waiting.len() < self.ranges_max) && self.waiting.reserve(1).is_ok() {
            self.waiting.insert(start, end);
        }
    }

    /// `start..end` is no business of the medium any more.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        // Out of the middle of a range, one is left on each side.
        if self.waiting.intersects(start, end) && self.waiting.reserve(1).is_err() {
            return self.waiting.clear();
        }
        self.waiting.remove(start, end);
    }

    /// Takes out a run of at most so many blocks.
    pub(super) fn next(&mut self, blocks: u64) -> Option<BlockRun> {
        let start = self.waiting.first_at(0)?;
        let (start, end) = self.waiting.take(start, start.saturating_add(blocks))?;
        Some(BlockRun { start: BlockAddress(start), count: end - start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_bounded_and_taken_out() {
        let mut discards = Discards::new(2);
        for (start, end) in [(10, 20), (40, 50), (70, 80), (20, 30), (50, 55)] {
            discards.add(start, end);
        }
        discards.remove(15, 16);
        discards.remove(60, 90);
        let run = |start, count| Some(BlockRun { start: BlockAddress(start), count });
        assert_eq!(
            [(); 5].map(|()| discards.next(9)),
            [run(10, 5), run(16, 9), run(25, 5), run(40, 9), run(49, 6)]
        );
        assert_eq!(discards.next(9), None);
    }
}
