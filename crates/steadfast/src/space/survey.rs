//! Reading the bitmaps without changing them: for a map of the volume, and for a trim.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::key::{Key, Kind};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::space::{Bitmap, Roots, Space};
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun, InodeNumber};

/// States of a group's blocks, for counting.
pub(crate) struct Survey {
    pub start: u64,
    pub used: Bitmap,
    pub busy: Bitmap,
    pub unpublished: Vec<(u64, u64)>,
    /// The range that can be allocated at all.
    pub allocatable: BlockRun,
}

impl Survey {
    /// The first run at or after `from` that can be allocated: no state uses it, and it has no
    /// unpublished blocks.
    pub fn free_run(&self, from: u64) -> Option<(u64, u64)> {
        let from = from.max(self.allocatable.start.0);
        let end = self.end().min(self.allocatable.end());
        let mut at = from.checked_sub(self.start)?;
        let busy = if planted(Sabotage::TrimDurable) { &self.used } else { &self.busy };
        while let Some((first, last)) = busy.zeros(at) {
            let (first, mut last) = (self.start + first, (self.start + last).min(end));
            if first >= end {
                return None;
            }
            let taken = self.used.ones(first - self.start).map(|(one, _)| self.start + one);
            let unpublished =
                self.unpublished.iter().filter(|(_, stop)| *stop > first).map(|(start, _)| *start);
            last = unpublished.chain(taken).min().unwrap_or(last).clamp(first, last);
            if last > first {
                return Some((first, last));
            }
            at = first + 1 - self.start;
        }
        None
    }

    pub fn end(&self) -> u64 {
        self.start + self.used.len()
    }

    /// Counts the used, busy and unpublished blocks of `from..to` that can be allocated at all.
    pub fn count(&self, from: u64, to: u64) -> (u64, u64, u64) {
        let low = from.max(self.allocatable.start.0);
        let high = to.min(self.allocatable.end());
        if low >= high {
            return (0, 0, 0);
        }
        let (first, last) = (low - self.start, high - self.start);
        let used = self.used.count_in(first, last);
        let busy = self.busy.count_in(first, last);
        let overlap = |(start, end): &(u64, u64)| high.min(*end).saturating_sub(low.max(*start));
        let unpublished: u64 = self.unpublished.iter().map(overlap).sum();
        (used, busy, unpublished.min(busy - used.min(busy)))
    }
}

impl Space {
    /// The first group at or after block `from` in which something may be in use; `None` if there
    /// is none. Loads and evicts nothing.
    pub fn survey<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        roots: &Roots,
        from: u64,
    ) -> Result<Option<Survey>> {
        let Some(index) = self.next_group(store, roots, from / self.group_blocks)? else {
            return Ok(None);
        };
        let start = index * self.group_blocks;
        let (used, busy) = match self.groups.get(&index) {
            Some(group) => (group.used.copy()?, group.busy.copy()?),
            None => {
                let group = self.read(store, roots, index)?;
                (group.used, group.busy)
            }
        };
        Ok(Some(Survey {
            start,
            used,
            busy,
            unpublished: memory::collect(
                self.unpublished.overlaps(start, start + self.group_blocks),
            )?,
            allocatable: BlockRun { start: BlockAddress(self.first), count: self.end - self.first },
        }))
    }

    /// The first group at or after `index` that a state has a key for, that is in memory, or that
    /// has unpublished blocks.
    fn next_group<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        roots: &Roots,
        index: u64,
    ) -> Result<Option<u64>> {
        let (_, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Group);
        let mut next = self.groups.keys().copied().filter(|group| *group >= index).min();
        let states = [Some(roots.working), Some(roots.checkpointed), roots.frozen];
        for root in states.into_iter().flatten() {
            let found = store.next(&root, &Key::group(index), &last)?.map(|(key, _)| key.suffix());
            next = [next, found].into_iter().flatten().min();
        }
        let from = index.saturating_mul(self.group_blocks);
        for set in [&self.unpublished, &self.logged, &self.logged_frozen] {
            let found = set.first_at(from).map(|block| block.max(from) / self.group_blocks);
            next = [next, found].into_iter().flatten().min();
        }
        Ok(next.filter(|group| group.saturating_mul(self.group_blocks) < self.end))
    }

    /// Unpublished blocks.
    pub fn unpublished(&self) -> u64 {
        self.unpublished.total()
    }
}
