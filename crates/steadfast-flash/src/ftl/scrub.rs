//! The patrol: reads what nobody asks for, a bounded number of pages at a time, so that flipped
//! bits are found while they can be corrected.
//!
//! It goes through the blocks in order and on from where it was, also after a remount (the journal
//! has the block). A block in which a codeword has as many flipped bits as count as too many, or a
//! page that cannot be read, is moved: data by garbage collection, structures with the next writing
//! of the map, the journal and its anchors at the next journal page.

use alloc::vec;

use super::error::Result;
use super::state::Ftl;
use super::table::BlockState;
use crate::nand::{BlockNumber, Nand, Pairing};

/// Where the patrol is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Patrol {
    pub block: u32,
    pub page: u32,
}

/// What one call of [`Ftl::scrub`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Pages read, at most the budget.
    pub pages_read: u32,
    /// Of these, pages with corrected bits.
    pub corrected_pages: u32,
    /// The most corrected bits of a codeword among them.
    pub bits_max: u16,
    /// Pages that were programmed and cannot be corrected. What is still needed of them is lost;
    /// most are what power cuts left, and needed by nothing.
    pub unreadable_pages: u32,
    /// Pages moved in this call.
    pub moved_pages: u32,
    /// Blocks that wait to be moved: call again until there is none.
    pub blocks_waiting: u32,
    /// The block that the next call goes on with.
    pub position: u32,
    /// The last block of the part was passed.
    pub pass_finished: bool,
}

impl<N: Nand> Ftl<N> {
    /// Reads at most `budget` pages, on from where the last call stopped, and moves what has too
    /// many flipped bits: at most a quarter as many pages, beside the upkeep that any write does.
    /// On a volume that was mounted read-only it only reads.
    ///
    /// # Errors
    /// The part's. A page that cannot be corrected is no error but counted.
    pub fn scrub(&mut self, budget: u32) -> Result<ScrubProgress> {
        let mut progress = ScrubProgress::default();
        while progress.pages_read < budget && !progress.pass_finished {
            self.patrol_page(&mut progress)?;
        }
        if self.failed.is_none() {
            let before = self.info.moved_pages;
            self.guarded(|ftl| {
                // Where the patrol is goes into the journal, also when there is nothing else to be
                // written: otherwise short patrols would read the same pages again and again.
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

    /// Reads the next page in use, or passes over a block.
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

    /// The page of a block behind the last that the patrol reads.
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

    /// The block that the patrol goes on with.
    #[must_use]
    pub fn patrol_position(&self) -> BlockNumber {
        BlockNumber(self.patrol.block)
    }
}
