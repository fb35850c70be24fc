//! Blocks that may be discarded: their content is no longer needed.
//!
//! A block becomes one of these in two ways. A block that stops being busy at a
//! [`release_checkpointed`](super::Space::release_checkpointed) is *waiting* at once. A medium that
//! [wants discards early](steadfast_media::Medium::wants_discards_early) gets discards of data
//! sooner. A block of such data is *uncommitted* until a commit record of the operations that freed
//! it is sealed. It is *committing* until that record is durable, and *early* then.
//!
//! The checkpointed tree still names such blocks. But a rollback to that tree, or opening it, also
//! applies the log up to the commit record before any data is read. No early block is allocated
//! before the next checkpoint is durable. `release_checkpointed` skips blocks that were already
//! *told* to the medium.
//!
//! Invariants:
//! - nothing that is waiting or early is used by the committed state or a later one, a reader or an
//!   operation;
//! - a block leaves all sets before it is allocated again, or before it falls past the end of a
//!   volume that becomes smaller;
//! - the caller that discards holds the writer's lock meanwhile. Otherwise a block could be
//!   allocated and written in between;
//! - memory is bounded. Ranges that do not fit are not discarded: a discard is a hint.

use crate::sabotage::{Sabotage, planted};
use crate::space::{RangeSet, Space};
use crate::types::{BlockAddress, BlockRun};

/// See the module.
#[derive(Default)]
pub(super) struct Discards {
    waiting: RangeSet,
    uncommitted: RangeSet,
    committing: RangeSet,
    early: RangeSet,
    told: RangeSet,
    ranges_max: usize,
}

/// Adds a range if there is room for it.
fn add(set: &mut RangeSet, ranges_max: usize, start: u64, end: u64) {
    let joins = set.intersects(start.saturating_sub(1), end.saturating_add(1));
    if (joins || set.len() < ranges_max) && set.reserve(1).is_ok() {
        set.insert(start, end);
    }
}

/// Removes a range. Without memory for the remainders on both sides, removes everything.
fn remove(set: &mut RangeSet, start: u64, end: u64) {
    if set.len() == 0 {
        return;
    }
    if set.intersects(start, end) && set.reserve(1).is_err() {
        return set.clear();
    }
    set.remove(start, end);
}

impl Discards {
    pub(super) fn new(ranges_max: usize) -> Discards {
        Discards { ranges_max, ..Discards::default() }
    }

    /// A checkpoint has made `start..end` free.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        for set in [&mut self.uncommitted, &mut self.committing, &mut self.early] {
            remove(set, start, end);
        }
        let mut at = start;
        if self.told.intersects(start, end) && self.told.reserve(1).is_err() {
            self.told.clear();
        }
        while let Some((from, to)) = self.told.take(at, end) {
            if at < from {
                add(&mut self.waiting, self.ranges_max, at, from);
            }
            at = to;
        }
        if at < end {
            add(&mut self.waiting, self.ranges_max, at, end);
        }
    }

    /// An operation has freed `start..end`, which no snapshot holds and no reader has pinned.
    fn note_freed(&mut self, start: u64, end: u64) {
        let set = if planted(Sabotage::DiscardBeforeCommit) {
            &mut self.early
        } else {
            &mut self.uncommitted
        };
        add(set, self.ranges_max, start, end);
    }

    /// Removes `start..end` from all sets.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        for set in [
            &mut self.waiting,
            &mut self.uncommitted,
            &mut self.committing,
            &mut self.early,
            &mut self.told,
        ] {
            remove(set, start, end);
        }
    }

    /// Takes out a run of at most `blocks` blocks.
    pub(super) fn next(&mut self, blocks: u64) -> Option<BlockRun> {
        let run =
            |(start, end): (u64, u64)| BlockRun { start: BlockAddress(start), count: end - start };
        let take = |set: &mut RangeSet| {
            let start = set.first_at(0)?;
            set.take(start, start.saturating_add(blocks))
        };
        if let Some((start, end)) = take(&mut self.early) {
            add(&mut self.told, self.ranges_max, start, end);
            return Some(run((start, end)));
        }
        take(&mut self.waiting).map(run)
    }
}

impl Space {
    /// An operation has freed a run of data that no snapshot or other file holds; `pinned` are the
    /// runs that readers are using. For media that want discards early.
    pub fn discard_early(&mut self, run: BlockRun, pinned: &[BlockRun]) {
        if !crate::space::used_blocks::overlaps_any(run, pinned) {
            self.discards.note_freed(run.start.0, run.end().min(self.limit));
        }
    }

    /// A commit record of all operations so far is sealed. The previous one is durable.
    pub fn seal_discards(&mut self) {
        self.discards.committing = core::mem::take(&mut self.discards.uncommitted);
    }

    /// The sealed commit record is durable.
    pub fn commit_is_durable(&mut self) {
        let committing = core::mem::take(&mut self.discards.committing);
        for (start, end) in committing.iter() {
            add(&mut self.discards.early, self.discards.ranges_max, start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, count: u64) -> Option<BlockRun> {
        Some(BlockRun { start: BlockAddress(start), count })
    }

    #[test]
    fn runs_are_merged_bounded_and_taken_out() {
        let mut discards = Discards::new(2);
        for (start, end) in [(10, 20), (40, 50), (70, 80), (20, 30), (50, 55)] {
            discards.add(start, end);
        }
        discards.remove(15, 16);
        discards.remove(60, 90);
        assert_eq!(
            [(); 5].map(|()| discards.next(9)),
            [run(10, 5), run(16, 9), run(25, 5), run(40, 9), run(49, 6)]
        );
        assert_eq!(discards.next(9), None);
    }

    #[test]
    fn what_was_told_early_is_not_told_again_unless_it_was_given_out() {
        let mut discards = Discards::new(100);
        discards.early.insert(10, 20);
        assert_eq!((discards.next(6), discards.next(100)), (run(10, 6), run(16, 4)));
        discards.remove(12, 13);
        discards.add(8, 24);
        let told = [(); 4].map(|()| discards.next(100));
        assert_eq!(told, [run(8, 2), run(12, 1), run(20, 4), None]);
        // A block that is early and becomes free is discarded only once.
        discards.early.insert(30, 32);
        discards.add(31, 33);
        assert_eq!([(); 3].map(|()| discards.next(100)), [run(30, 1), run(31, 2), None]);
    }
}
