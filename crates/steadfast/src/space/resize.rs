//! Free space of a volume that becomes larger or smaller.

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::Superblock;
use crate::platform::Platform;
use crate::space::{Roots, Space};
use crate::tree::Store;

impl Space {
    /// From now on nothing is allocated at or beyond block `limit`, which lies inside the volume;
    /// `None`: no limit. No nodes may be set aside. `beyond` of the blocks in use are past the
    /// limit.
    pub fn set_limit(&mut self, limit: Option<u64>, beyond: u64, superblock: &Superblock) {
        self.limit = limit.unwrap_or(self.end).clamp(self.first, self.end);
        self.beyond = beyond;
        self.data_end = data_end(superblock, self.first, self.limit);
        self.discards.remove(self.limit, u64::MAX);
        self.renew();
    }

    /// Whether the used data and metadata fits below `limit`, with `spare` blocks left over.
    pub fn fits_below(&self, limit: u64, spare: u64) -> bool {
        self.used.saturating_add(spare) <= limit.saturating_sub(self.first)
    }

    /// Blocks at or beyond `limit` that the working state uses.
    ///
    /// # Errors
    /// Those of reading bitmaps.
    pub fn used_beyond<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        limit: u64,
    ) -> Result<u64> {
        let mut used = 0;
        for index in limit / self.group_blocks..self.groups() {
            self.load(store, roots, index)?;
            if let Some(group) = self.groups.get(&index) {
                let start = index * self.group_blocks;
                used += (limit.max(start) - start..self.group_blocks)
                    .filter(|bit| group.used.get(*bit) || group.base.get(*bit))
                    .count() as u64;
            }
        }
        Ok(used)
    }

    /// The group that holds the end of the volume is written as a bitmap from now on, and with the
    /// next checkpoint. The group is in memory.
    ///
    /// # Errors
    /// Those of reading bitmaps.
    pub fn spell_out_last_group<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
    ) -> Result<()> {
        let index = self.groups() - 1;
        self.load(store, roots, index)?;
        self.spelled_out = Some(index);
        if let Some(group) = self.groups.get_mut(&index) {
            self.dirty += usize::from(!core::mem::replace(&mut group.dirty, true));
        }
        Ok(())
    }

    /// The group at the end is written normally again.
    pub fn end_spelling_out(&mut self) {
        self.spelled_out = None;
    }

    /// The volume has the larger size of `superblock` now.
    pub fn grow(&mut self, superblock: &Superblock) {
        self.end = superblock.end_block().max(self.end);
        self.limit = self.end;
        self.data_end = data_end(superblock, self.first, self.end);
        let words = self.groups().min(crate::space::FULL_HINTS_MAX).div_ceil(64) as usize;
        let words = words.max(self.full.len());
        let mut all = [&mut self.full, &mut self.freed_in, &mut self.freed_in_frozen];
        // A group without a remembered bit is looked up.
        if all.iter_mut().all(|bits| bits.try_reserve_exact(words - bits.len()).is_ok()) {
            all.into_iter().for_each(|bits| bits.resize(words, 0));
        }
        self.renew();
    }

    /// Recomputes what may be allocated.
    fn renew(&mut self) {
        self.fill_busy_all();
        self.full.fill(0);
    }
}

/// One past the last block for data. If a node has several blocks, fragments of data must not use
/// up the last runs.
pub(super) fn data_end(superblock: &Superblock, first: u64, end: u64) -> u64 {
    if superblock.node_blocks() > 1 {
        end - superblock.reserve_blocks.min((end - first) / 4)
    } else {
        end
    }
}
