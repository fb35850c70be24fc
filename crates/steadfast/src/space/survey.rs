//! Looking at the bitmaps without taking part: for a map of the volume.

use steadfast_media::Medium;

use super::{Roots, Space};
use crate::error::Result;
use crate::fs::memory;
use crate::key::{Key, Kind};
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun, InodeNumber};
use crate::volume::Survey;

impl Space {
    /// The first group at or after block `from` in which something may be in use; `None` where
    /// there is none. Loads and evicts nothing.
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
            reserved: memory::collect(self.reserved.overlaps(start, start + self.group_blocks))?,
            allocatable: BlockRun { start: BlockAddress(self.first), count: self.end - self.first },
        }))
    }

    /// The first group at or after `index` that a state names, that is in memory, or in which
    /// blocks are reserved.
    fn next_group<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        roots: &Roots,
        index: u64,
    ) -> Result<Option<u64>> {
        let (_, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Group);
        let mut next = self.groups.keys().copied().filter(|group| *group >= index).min();
        let states = [Some(roots.working), Some(roots.durable), roots.frozen];
        for root in states.into_iter().flatten() {
            let found = store.next(&root, &Key::group(index), &last)?.map(|(key, _)| key.suffix());
            next = [next, found].into_iter().flatten().min();
        }
        let from = index.saturating_mul(self.group_blocks);
        for set in [&self.reserved, &self.held, &self.held_frozen] {
            let found = set.first_at(from).map(|block| block.max(from) / self.group_blocks);
            next = [next, found].into_iter().flatten().min();
        }
        Ok(next.filter(|group| group.saturating_mul(self.group_blocks) < self.end))
    }

    /// Blocks handed out and not yet part of any state.
    pub fn reserved(&self) -> u64 {
        self.reserved.total()
    }
}
