//! The write frontiers: open blocks, and programming the next page of one.

use alloc::vec;

use super::codec::{Frontier, UNMAPPED};
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::table::{BlockInfo, BlockState};
use super::tag::{Kind, TAG_SIZE, Tag};
use crate::nand::{BlockNumber, EccStatus, Nand, NandError, PageAddress, Pairing};

/// Readings after which a page that was always right is taken for stable.
const HOLDS_READS: u32 = 24;

impl<N: Nand> Ftl<N> {
    /// The first page from `page` on whose programming cannot damage what was acknowledged (pages
    /// before `synced`).
    pub(super) fn safe_page(&self, page: u32, synced: u32) -> u32 {
        let harms =
            |page: u32| self.geometry.pairing.damaged_by(page).is_some_and(|other| other < synced);
        (page..self.geometry.pages_per_block)
            .find(|page| !harms(*page))
            .unwrap_or(self.geometry.pages_per_block)
    }

    /// Everything programmed so far is acknowledged.
    pub(super) fn sync_frontiers(&mut self) {
        for frontier in &mut self.frontiers {
            frontier.synced = frontier.page;
        }
    }

    /// Programs the next page of a stream and returns its address. A block whose program fails is
    /// left and retired.
    pub(super) fn program(
        &mut self,
        stream: Stream,
        kind: Kind,
        id: u32,
        data: &[u8],
    ) -> Result<u32> {
        loop {
            let Frontier { block, page, synced } = self.frontiers[stream as usize];
            let at = if block == UNMAPPED {
                self.geometry.pages_per_block
            } else {
                // Structures must hold at once: nothing that shares their cells is programmed.
                self.safe_page(page, if stream.holds_data() { synced } else { page })
            };
            if at >= self.geometry.pages_per_block {
                self.open(stream)?;
                continue;
            }
            let address = self.page(block, at);
            self.frontiers[stream as usize].page = at + 1;
            match self.program_tagged(address, kind, id, data) {
                Ok(()) => return Ok(address.0),
                Err(FlashError::Nand(NandError::Failed { .. })) => {
                    self.close_frontier(stream)?;
                    self.retire(block)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Programs a page with its tag.
    pub(super) fn program_tagged(
        &mut self,
        page: PageAddress,
        kind: Kind,
        id: u32,
        data: &[u8],
    ) -> Result<()> {
        self.sequence += 1;
        let tag = Tag { kind, id, sequence: self.sequence };
        Ok(self.nand.program(page, data, &tag.encode(data))?)
    }

    /// Closes the open block of a stream.
    pub(super) fn close_frontier(&mut self, stream: Stream) -> Result<()> {
        let block = self.frontiers[stream as usize].block;
        self.frontiers[stream as usize] = Frontier::CLOSED;
        if block != UNMAPPED {
            self.leave_if_empty(block)?;
        }
        Ok(())
    }

    /// Has a block emptied and then marked bad: a program in it has failed.
    pub(super) fn retire(&mut self, block: u32) -> Result<()> {
        self.collector.retire.insert(block);
        if self.block(block)?.state == BlockState::Data && !self.collector.queue.contains(&block) {
            self.collector.queue.push_front(block);
        }
        Ok(())
    }

    /// Opens a block for a stream: erases it, and for the host says so in the journal before
    /// anything is programmed there.
    fn open(&mut self, stream: Stream) -> Result<()> {
        self.close_frontier(stream)?;
        let state = if stream.holds_data() { BlockState::Data } else { BlockState::Map };
        let worn = stream == Stream::Moved && self.levelling();
        let block = self.take_free(state, worn)?;
        self.frontiers[stream as usize] = Frontier { block, page: 0, synced: 0 };
        if stream == Stream::Hot {
            self.collector.hot.insert(block);
        }
        if stream.is_of_host() && self.begun {
            self.write_journal(0)?;
        }
        Ok(())
    }

    /// Takes a free block and erases it: the one erased least often, or most often. Blocks that do
    /// not take it are bad.
    pub(super) fn take_free(&mut self, state: BlockState, worn: bool) -> Result<u32> {
        loop {
            while self.free.len() < 2
                && let Some(page) = self.table.first_unknown_page()
            {
                self.load_table(page)?;
            }
            if !self.begun
                && let Some(block) = self.kept_before.pop()
            {
                if self.erase(block, state)? {
                    return Ok(block);
                }
                continue;
            }
            let taken = if worn { self.free.pop_last() } else { self.free.pop_first() };
            let taken = match taken {
                Some((_, block)) => Some(block),
                None => self.take_pending()?,
            };
            let Some(block) = taken else { return Err(FlashError::WornOut) };
            if self.erase(block, state)? {
                return Ok(block);
            }
        }
    }

    /// In a recovery that has no free block left, as it was cut again and again: one that the state
    /// found does not need. It may be needed by the state before, which counts only if the journal
    /// page that was found can be lost: so that page must be the same each time.
    pub(super) fn take_pending(&mut self) -> Result<Option<u32>> {
        if self.begun {
            return Ok(None);
        }
        let left = |(block, due): &(u32, u64)| *due == 1 && !self.collector.retire.contains(block);
        let Some(at) = self.pending.iter().position(left) else { return Ok(None) };
        if self.journal.found_holds.is_none() {
            self.journal.found_holds = Some(self.holds(self.journal.found)?);
        }
        if self.journal.found_holds != Some(true) {
            return Ok(None);
        }
        Ok(self.pending.remove(at).map(|(block, _)| block))
    }

    /// Whether a page can be read every time, not only now and then: one that was in flight at a
    /// power cut.
    pub(super) fn holds(&mut self, page: u32) -> Result<bool> {
        let mut data = vec![0; self.geometry.page_size as usize];
        let mut oob = [0; TAG_SIZE];
        for _ in 0..HOLDS_READS {
            self.info.page_reads += 1;
            let status = self.nand.read(PageAddress(page), &mut data, &mut oob)?;
            if status == EccStatus::Uncorrectable || Tag::decode(&data, &oob).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Erases a block for a use; `false`: it is bad now.
    pub(super) fn erase(&mut self, block: u32, state: BlockState) -> Result<bool> {
        let info = self.block(block)?;
        self.free.remove(&(info.erases, block));
        self.collector.hot.remove(&block);
        match self.nand.erase(BlockNumber(block)) {
            Ok(()) => {}
            Err(NandError::Failed { .. }) => {
                self.mark_bad(block)?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.info.erases += 1;
        let pages = self.geometry.pages_per_block;
        self.recent.retain(|(page, _)| page / pages != block);
        self.reads.erased(block);
        self.table.set(block, BlockInfo { state, valid: 0, erases: info.erases + 1 });
        self.level(info.erases + 1)?;
        Ok(true)
    }

    /// Pages of a block that a stream which must hold at once can use.
    pub(super) fn safe_pages(&self) -> u32 {
        if self.geometry.pairing == Pairing::None {
            self.geometry.pages_per_block
        } else {
            self.geometry.pages_per_block / 2
        }
    }
}
