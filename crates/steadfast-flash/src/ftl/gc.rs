//! Garbage collection and wear levelling, in bounded steps.
//!
//! A block is emptied page by page: valid pages are programmed elsewhere. The source block stays
//! until two more journal pages are written. Blocks that must be emptied for their own sake come
//! first, then the block with the fewest valid pages.

use alloc::vec;

use super::codec::UNMAPPED;
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::table::BlockState;
use super::tag::{Kind, Tag};
use crate::nand::{Nand, Pairing};

/// Most emptied blocks that wait for the map to be written before their count is exact.
const EMPTIED_MAX: usize = 4;
/// Free blocks that one host step needs, plus a recovery from a power cut in it.
const FREE_LEAST: usize = 6;

impl<N: Nand> Ftl<N> {
    #[cfg(test)]
    pub(super) fn describe(&self) -> alloc::string::String {
        let known: alloc::vec::Vec<_> =
            self.table.known().map(|(b, i)| (b, i.state, i.valid)).collect();
        alloc::format!(
            "free {} pending {:?} chain {:?} frontiers {:?} collector {:?} spills {} delta {} user {} {known:?} {:?}",
            self.free.len(),
            self.pending,
            self.journal.chain,
            self.frontiers,
            self.collector,
            self.spills.len(),
            self.delta.len(),
            self.layout.user_pages,
            self.info
        )
    }

    /// Most pages moved before one host write. Programs take longer on parts with paired pages.
    fn moves_max(&self) -> u32 {
        if self.geometry.pairing == Pairing::None { 16 } else { 12 }
    }

    /// Below this number of free blocks the host waits until there are more.
    pub(super) fn free_min(&self) -> usize {
        (self.layout.reserve as usize).saturating_sub(2)
    }

    fn low_water(&self) -> usize {
        self.layout.reserve as usize + 2
    }

    /// Runs a bounded step of garbage collection if it is due, and more if otherwise no free block
    /// would be left.
    pub(super) fn collect(&mut self) -> Result<()> {
        if self.free.len() < self.low_water()
            && let Some(page) = self.table.first_unknown_page()
        {
            self.load_table(page)?;
        }
        if self.free.len() + self.pending.len() < self.low_water()
            && self.collector.emptied.len() >= EMPTIED_MAX
        {
            self.write_map_step(true)?;
        } else if self.free.len() + self.pending.len() < self.low_water() {
            let moves = self.moves_for_one_page();
            self.step(moves)?;
        } else if self.collector.victim.is_some() || !self.collector.queue.is_empty() {
            self.step(2)?;
        }
        let mut rounds = 0;
        while self.free.len() <= self.free_min() {
            rounds += 1;
            if rounds
                > 4 * self.geometry.blocks
                    * self.geometry.pages_per_block.div_ceil(self.moves_max())
            {
                return Err(FlashError::WornOut);
            }
            if !self.pending.is_empty() {
                self.write_journal(0)?;
            } else if self.collector.emptied.len() >= EMPTIED_MAX {
                self.write_map_step(true)?;
            } else {
                self.step(self.moves_max())?;
                // A small part that is completely full cannot gain more blocks: the present ones
                // must suffice.
                if self.collector.victim.is_none() && self.pending.is_empty() {
                    return if self.free.len() > FREE_LEAST {
                        Ok(())
                    } else {
                        Err(FlashError::WornOut)
                    };
                }
            }
        }
        Ok(())
    }

    /// Valid pages of the present victim for each page that it frees, and a few more.
    fn moves_for_one_page(&self) -> u32 {
        let pages = self.geometry.pages_per_block;
        let valid = self
            .collector
            .victim
            .and_then(|(block, _)| self.table.get(block))
            .map_or(0, |info| info.valid);
        let moves = valid / (pages - valid.min(pages - 1)) + 2;
        // With too few free blocks, faster; at the lowest level, at the limit for one write.
        let moves = match self.free.len().saturating_sub(self.free_min()) {
            0 | 1 => self.moves_max(),
            2 => 2 * moves,
            _ => moves,
        };
        moves.min(self.moves_max())
    }

    /// Moves at most `moves` valid pages. With paired pages it moves whole groups of them. Then the
    /// moved data uses every page of its blocks, because no acknowledged page shares cells with a
    /// later one.
    pub(super) fn step(&mut self, moves: u32) -> Result<()> {
        let mut left = moves;
        while left > 0 || !self.in_step() {
            let Some((block, page)) = self.victim()? else { return Ok(()) };
            if page >= self.geometry.pages_per_block {
                self.collector.victim = None;
                self.collector.emptied.insert(block);
                self.leave_if_empty(block)?;
                continue;
            }
            self.collector.victim = Some((block, page + 1));
            if self.move_page(self.page(block, page).0)? {
                left = left.saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Whether the stream of moved pages is at a group boundary.
    fn in_step(&self) -> bool {
        let page = self.frontiers[Stream::Moved as usize].page;
        page.is_multiple_of(self.geometry.pairing.group()) || page >= self.geometry.pages_per_block
    }

    /// The block that is being emptied, or the next one. `None` if emptying any block would gain
    /// nothing.
    fn victim(&mut self) -> Result<Option<(u32, u32)>> {
        if self.collector.victim.is_none() {
            let chosen = match self.next_queued() {
                Some(block) => Some(block),
                None if self.free.len() + self.pending.len() >= self.low_water() => None,
                None => self.emptiest()?,
            };
            self.collector.victim = chosen.map(|block| (block, 0));
        }
        Ok(self.collector.victim)
    }

    fn next_queued(&mut self) -> Option<u32> {
        while let Some(block) = self.collector.queue.pop_front() {
            let data = self.table.get(block).is_some_and(|info| info.state == BlockState::Data);
            if data && !self.is_open(block) && !self.collector.emptied.contains(&block) {
                return Some(block);
            }
        }
        None
    }

    fn emptiest(&mut self) -> Result<Option<u32>> {
        for attempt in 0..3 {
            let candidates = self.table.known().filter(|(block, info)| {
                info.state == BlockState::Data
                    && !self.is_open(*block)
                    && !self.collector.emptied.contains(block)
                    && !self.collector.stuck.contains(block)
            });
            let best = candidates.min_by_key(|(block, info)| {
                // Hot pages gain more from extra space than their moves cost, so hot blocks get
                // more space.
                let soon = if self.collector.hot.contains(block) { 4 } else { 1 };
                (info.valid * soon, info.erases)
            });
            if let Some((block, info)) = best
                && info.valid < self.geometry.pages_per_block
            {
                return Ok(Some(block));
            }
            match self.table.first_unknown_page() {
                Some(page) => self.load_table(page)?,
                // The counts are too high until the map is written.
                None if attempt == 0 && self.has_unreleased() => self.write_map()?,
                None => {
                    while !self.collector.stuck.is_empty() {
                        self.rescue()?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Moves one page if it is valid. Returns whether it was.
    fn move_page(&mut self, page: u32) -> Result<bool> {
        let Some(Tag { kind: Kind::Data | Kind::Lost, id: logical, .. }) = self.glance(page)?
        else {
            return Ok(false);
        };
        if logical >= self.layout.user_pages || self.place(logical)? != page {
            return Ok(false);
        }
        self.relocate(logical, page)?;
        Ok(true)
    }

    /// Programs the contents of a valid page elsewhere. Uncorrectable contents are marked as lost,
    /// not replaced.
    fn relocate(&mut self, logical: u32, page: u32) -> Result<()> {
        let mut data = vec![0; self.geometry.page_size as usize];
        let kind = match self.read_tagged(page, &mut data)? {
            Some(Tag { kind: Kind::Data, id, .. }) if id == logical => Kind::Data,
            _ => {
                self.info.lost_pages += 1;
                Kind::Lost
            }
        };
        // Hot pages stay separate: among cold pages each would soon leave a hole, and a hole there
        // costs moves of cold pages.
        let hot = self.collector.hot.contains(&self.block_of(page));
        let stream = if hot { Stream::Hot } else { Stream::Moved };
        self.program_data(stream, kind, logical, &data)?;
        self.info.moved_pages += 1;
        self.info.moved_hot_pages += u64::from(hot);
        Ok(())
    }

    /// Runs after the map was written, when counts are exact. An emptied block that still counts
    /// valid pages holds pages with unreadable tags; the map names them.
    pub(super) fn note_stuck(&mut self) {
        for block in core::mem::take(&mut self.collector.emptied) {
            let info = self.table.get(block);
            if info.is_some_and(|info| info.state == BlockState::Data && info.valid > 0) {
                self.collector.stuck.insert(block);
            }
        }
    }

    /// Searches one map page for pages in stuck blocks, and moves them.
    pub(super) fn rescue(&mut self) -> Result<()> {
        let words = self.layout.words;
        let first = self.collector.rescue_at;
        let end = (first + words).min(self.layout.user_pages);
        for logical in first..end {
            let place = self.place(logical)?;
            if place != UNMAPPED && self.collector.stuck.contains(&self.block_of(place)) {
                self.relocate(logical, place)?;
            }
        }
        self.collector.rescue_at = end;
        if end == self.layout.user_pages {
            self.collector.rescue_at = 0;
            self.collector.stuck.clear();
        }
        Ok(())
    }

    /// Sets the largest difference in erasures between data blocks before cold data is moved; by
    /// default a two-hundredth of the rated cycles. A lower value spreads wear more evenly and
    /// costs more erasures ([`FtlInfo::level_erases`](super::FtlInfo::level_erases)).
    pub fn set_spread(&mut self, erases: u32) {
        self.spread_max = Some(erases.max(2));
    }

    /// The largest difference in erasures: by default a two-hundredth of the rated cycles.
    pub(super) fn spread_max(&self) -> u32 {
        self.spread_max.unwrap_or((self.geometry.cycles / 200).max(8))
    }

    /// Whether the least worn data block is so far behind that moved data should go to worn blocks.
    pub(super) fn levelling(&self) -> bool {
        let oldest = self.free.last().map_or(0, |(erases, _)| *erases);
        self.youngest().is_some_and(|(erases, _)| oldest >= erases + self.spread_max() / 2)
    }

    fn youngest(&self) -> Option<(u32, u32)> {
        let data = self
            .table
            .known()
            .filter(|(block, info)| info.state == BlockState::Data && !self.is_open(*block));
        data.map(|(block, info)| (info.erases, block)).min()
    }

    /// Runs after an erasure. If some data block is worn much less, its contents are moved, so that
    /// it is used again.
    pub(super) fn level(&mut self, erases: u32) -> Result<()> {
        if self.collector.queue.is_empty()
            && let Some((least, block)) = self.youngest()
            && erases >= least + self.spread_max()
        {
            self.collector.queue.push_back(block);
            self.info.level_erases += 1;
        }
        Ok(())
    }
}
