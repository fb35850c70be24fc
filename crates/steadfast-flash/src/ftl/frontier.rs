//! Write frontiers: the open blocks, and the program of their next page.

use alloc::vec;

use super::codec::{Frontier, UNMAPPED};
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::table::{BlockInfo, BlockState};
use super::tag::{Kind, TAG_SIZE, Tag};
use crate::nand::{BlockNumber, EccStatus, Nand, NandError, PageAddress, Pairing};

/// Successful reads after which a page counts as stable.
const HOLDS_READS: u32 = 24;

impl<N: Nand> Ftl<N> {
    /// The first page from `page` on whose program cannot damage acknowledged pages (those before
    /// `synced`).
    pub(super) fn safe_page(&self, page: u32, synced: u32) -> u32 {
        let harms =
            |page: u32| self.geometry.pairing.damaged_by(page).is_some_and(|other| other < synced);
        (page..self.geometry.pages_per_block)
            .find(|page| !harms(*page))
            .unwrap_or(self.geometry.pages_per_block)
    }

    /// Marks everything programmed so far as acknowledged.
    pub(super) fn sync_frontiers(&mut self) {
        for frontier in &mut self.frontiers {
            frontier.synced = frontier.page;
        }
    }

    /// Programs the next page of a stream and returns its address. A block with a failed program is
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
                // Structures must be durable at once: no page that shares their cells is
                // programmed.
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

    /// Queues a block to be emptied and then marked bad, after a failed program.
    pub(super) fn retire(&mut self, block: u32) -> Result<()> {
        self.collector.retire.insert(block);
        if self.block(block)?.state == BlockState::Data && !self.collector.queue.contains(&block) {
            self.collector.queue.push_front(block);
        }
        Ok(())
    }

    /// Opens a block for a stream and erases it. For the host, a journal page names the block
    /// before it is programmed.
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

    /// Takes a free block and erases it: the one with the fewest erasures or, with `worn`, the
    /// most. Blocks whose erasure fails are marked bad.
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

    /// For a recovery without a free block, after many interrupted recoveries: takes a block that
    /// the found state does not need. The state before may need it, but that state counts only if
    /// the found journal page can become unreadable. So that page must read the same every time.
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

    /// Whether a page is readable every time. A page in flight at a power cut may be readable only
    /// sometimes.
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

    /// Erases a block for a use. `false`: the block is bad now.
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

    /// Pages of a block that a stream can use if each page must be durable at once.
    pub(super) fn safe_pages(&self) -> u32 {
        if self.geometry.pairing == Pairing::None {
            self.geometry.pages_per_block
        } else {
            self.geometry.pages_per_block / 2
        }
    }
}
