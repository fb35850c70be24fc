//! The patrol reads all pages in use, a bounded number at a time, so that flipped bits are found
//! while they can be corrected.
//!
//! It proceeds through the blocks in order and resumes at the same block, even after a remount (the
//! journal stores it). A block is moved if a codeword has too many flipped bits, or if a page is
//! unreadable. Garbage collection moves data. The next write of the map moves structures. The
//! journal and its anchors move at the next journal page.

use alloc::vec;

use super::error::Result;
use super::state::{Ftl, Patrol};
use super::table::BlockState;
use crate::nand::{BlockNumber, Nand, Pairing};

/// Result of one call of [`Ftl::scrub`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Pages read, at most the budget.
    pub pages_read: u32,
    /// Pages among them with corrected bits.
    pub corrected_pages: u32,
    /// The most corrected bits of a codeword in these pages.
    pub bits_max: u16,
    /// Programmed pages that cannot be corrected. Needed data in them is lost; most are left by
    /// power cuts and not needed.
    pub unreadable_pages: u32,
    /// Pages moved in this call.
    pub moved_pages: u32,
    /// Blocks that wait to be moved: call again until there are none.
    pub blocks_waiting: u32,
    /// The next block of the patrol.
    pub position: u32,
    /// The last block of the part was passed.
    pub pass_finished: bool,
}

impl<N: Nand> Ftl<N> {
    /// Reads at most `budget` pages from the last position on, and moves blocks with too many
    /// flipped bits. It moves at most a quarter as many pages, besides the upkeep of any write. A
    /// volume mounted read-only is only read.
    ///
    /// # Errors
    /// Errors of the part. An uncorrectable page is counted and is not an error.
    pub fn scrub(&mut self, budget: u32) -> Result<ScrubProgress> {
        let mut progress = ScrubProgress::default();
        while progress.pages_read < budget && !progress.pass_finished {
            self.patrol_page(&mut progress)?;
        }
        if self.failed.is_none() {
            let before = self.info.moved_pages;
            self.guarded(|ftl| {
                // The journal stores the position even if there is nothing else to write. Otherwise
                // short patrols would read the same pages again and again.
                ftl.begin()?;
                ftl.patrol_moves(budget.div_ceil(4))
            })?;
            progress.moved_pages = (self.info.moved_pages - before) as u32;
        }
        let collector = &self.collector;
        let waiting =
            collector.queue.len() + collector.renew.len() + usize::from(collector.victim.is_some());
        progress.blocks_waiting = waiting as u32 + u32::from(self.journal.renew);
        progress.position = self.patrol.block;
        Ok(progress)
    }

    fn patrol_moves(&mut self, moves: u32) -> Result<()> {
        let wanted = |ftl: &Self| {
            !ftl.collector.queue.is_empty() || !ftl.collector.renew.is_empty() || ftl.journal.renew
        };
        if !wanted(self) && self.collector.victim.is_none() {
            return Ok(());
        }
        self.upkeep()?;
        if !self.collector.queue.is_empty() || self.collector.victim.is_some() {
            self.step(moves)?;
        }
        if self.journal.renew {
            self.write_journal(0)?;
        }
        Ok(())
    }

    /// Reads the next page in use, or skips a block.
    fn patrol_page(&mut self, progress: &mut ScrubProgress) -> Result<()> {
        let Patrol { block, page } = self.patrol;
        let next = Patrol { block: block + 1, page: 0 };
        if block >= self.geometry.blocks {
            self.patrol = Patrol::default();
            progress.pass_finished = true;
            return Ok(());
        }
        if page >= self.end_of_patrol(block)? {
            self.patrol = next;
            return Ok(());
        }
        self.patrol.page = page + 1;
        let mut data = vec![0; self.geometry.page_size as usize];
        let before = self.info;
        let tag = self.read_tagged(self.page(block, page).0, &mut data)?;
        progress.pages_read += 1;
        self.info.patrol_pages += 1;
        let bits = self.info.corrected_bits - before.corrected_bits;
        progress.corrected_pages += u32::from(bits > 0);
        progress.bits_max = progress.bits_max.max(bits.min(u64::from(u16::MAX)) as u16);
        if tag.is_none() && !Self::looks_erased(&data) {
            progress.unreadable_pages += 1;
            self.refresh(block);
        } else if tag.is_none() && self.geometry.pairing == Pairing::None {
            self.patrol = next;
        }
        Ok(())
    }

    /// One after the last page of a block that the patrol reads.
    fn end_of_patrol(&mut self, block: u32) -> Result<u32> {
        let all = self.geometry.pages_per_block;
        let (slot, end) = self.journal.ring;
        Ok(match self.block(block)?.state {
            BlockState::Data | BlockState::Map => {
                let open = self.frontiers.iter().find(|frontier| frontier.block == block);
                open.map_or(all, |frontier| frontier.page.min(all))
            }
            BlockState::Journal if block == slot => end.min(all),
            BlockState::Journal if block == self.journal.block => self.journal.page.min(all),
            BlockState::Journal if self.journal.chain.contains(&block) => all,
            _ => 0,
        })
    }

    /// The next block of the patrol.
    #[must_use]
    pub fn patrol_position(&self) -> BlockNumber {
        BlockNumber(self.patrol.block)
    }
}
