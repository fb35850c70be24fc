//! Writes the journal: its pages, the chain of its blocks, and the anchors that lead to the chain.
//!
//! The blocks of the journal form a chain: each page names the next block. An anchor names the
//! newest block. Anchors rotate through a ring of blocks at the start of the part. A block leaves
//! the chain when an anchor for a later block exists.

use alloc::vec::Vec;

use super::anchor::{Anchor, Shape};
use super::codec::{State, UNMAPPED, encode_changes};
use super::error::{FlashError, Result};
use super::layout::BLOCKS_PER_ANCHOR;
use super::state::{Ftl, Stream};
use super::table::{BlockInfo, BlockState};
use super::tag::Kind;
use crate::nand::{Nand, NandError};

/// Free blocks whose entries are in every journal page, so that a recovery has some without reading
/// the block table.
const SPARES_NAMED: usize = 6;
/// Blocks kept for recoveries.
const KEPT: usize = 3;

impl<N: Nand> Ftl<N> {
    /// Most entries of the block table that a journal page should hold.
    pub(super) fn fixups_max(&self) -> usize {
        self.geometry.page_size as usize / 32
    }

    fn journal_state(&self, flags: u16) -> State {
        let entry = |block: u32| Some((block, self.table.get(block)?.encode()));
        let mut fixups: Vec<(u32, u32)> =
            self.table.dirty.iter().copied().filter_map(entry).collect();
        // A recovery starts with these blocks. As far as there is room, it need not read the block
        // table for them.
        let open =
            self.frontiers.iter().map(|frontier| frontier.block).filter(|block| *block != UNMAPPED);
        let spare = self.free.iter().take(SPARES_NAMED).map(|(_, block)| *block);
        // Its anchor goes to the next block of the ring, and the journal leaves its old blocks.
        let slot = (self.journal.ring.0 + 1) % self.layout.ring;
        let chain = self.journal.chain.iter().copied().chain([self.journal.next_block, slot]);
        let known = self.kept.iter().copied().chain(chain).chain(open).chain(spare);
        let known = known.filter(|block| !self.table.dirty.contains(block));
        let room = (self.geometry.page_size as usize / 24).saturating_sub(fixups.len());
        fixups.extend(known.take(room).filter_map(entry));
        State {
            flags,
            volume: self.volume,
            previous: self.journal.previous,
            born: self.born,
            second: self.second_page,
            patrol: self.patrol.block,
            next_block: self.journal.next_block,
            user_pages: self.layout.user_pages,
            chain: self.journal.chain.clone(),
            frontiers: self.frontiers,
            kept: self.kept.clone(),
            directory: self.directory.clone(),
            table: self.table.pages.clone(),
            spills: self.spills.clone(),
            written: self.written.iter().map(|(id, spills)| id | (*spills as u32) << 24).collect(),
            fixups,
        }
    }

    /// Writes the whole state. Everything acknowledged before is durable when it returns.
    pub(super) fn write_journal(&mut self, flags: u16) -> Result<()> {
        if core::mem::take(&mut self.journal.renew) {
            self.journal.page = self.geometry.pages_per_block;
            self.journal.ring.1 = self.geometry.pages_per_block;
            self.journal.since_anchor = BLOCKS_PER_ANCHOR;
        }
        loop {
            let page = self.journal.page;
            let at = self.safe_page(page, page);
            if at >= self.geometry.pages_per_block {
                self.next_journal_block()?;
                continue;
            }
            let size = self.geometry.page_size as usize;
            let mut bytes = self.journal_state(flags).encode();
            if bytes.len() + self.unspilled_len() > size {
                if self.unspilled.is_empty() {
                    return Err(FlashError::Damaged {
                        page: 0,
                        what: "the state does not fit a journal page",
                    });
                }
                self.spill()?;
                continue;
            }
            encode_changes(&mut bytes, &self.unspilled_changes());
            bytes.resize(size, 0);
            self.journal.page = at + 1;
            let address = self.page(self.journal.block, at);
            match self.program_tagged(address, Kind::Journal, self.journal.chain_number, &bytes) {
                Ok(()) => {
                    if at == 0 {
                        self.journal.first = self.sequence;
                    }
                    break;
                }
                Err(FlashError::Nand(NandError::Failed { .. })) => {
                    // The chain cannot pass through a block without a valid first page: an anchor
                    // bypasses it.
                    self.journal.since_anchor = BLOCKS_PER_ANCHOR;
                    self.journal.page = self.geometry.pages_per_block;
                    self.collector.retire.insert(self.journal.block);
                }
                Err(error) => return Err(error),
            }
        }
        self.journal.written += 1;
        self.journal.host_since = 0;
        self.info.journal_pages += 1;
        self.volatile = false;
        self.sync_frontiers();
        if self.journal.since_anchor >= BLOCKS_PER_ANCHOR {
            self.write_anchor()?;
        }
        self.promote()?;
        // A session that began with few free blocks kept too few for the next recovery.
        while self.kept.len() < KEPT
            && self.free.len() > self.layout.reserve as usize
            && let Some((_, block)) = self.free.pop_first()
        {
            self.kept.push(block);
        }
        Ok(())
    }

    /// Continues in the next block of the chain, and chooses the one after it.
    pub(super) fn next_journal_block(&mut self) -> Result<()> {
        let mut block = self.journal.next_block;
        if !self.erase(block, BlockState::Journal)? {
            // This is not the block that the chain names, so only an anchor leads to it.
            block = self.take_free(BlockState::Journal, false)?;
            self.journal.since_anchor = BLOCKS_PER_ANCHOR;
        }
        self.journal.chain.push(block);
        self.journal.chain_number += 1;
        self.journal.since_anchor += 1;
        (self.journal.block, self.journal.page) = (block, 0);
        self.journal.previous = self.journal.first;
        self.journal.next_block = self.take_journal_block()?;
        Ok(())
    }

    /// Continues in the next block of the chain, erased, with an anchor to follow. An earlier
    /// interrupted recovery may have left a journal page there that is readable only sometimes.
    /// That page names blocks that only that recovery programmed. It is erased before any of these
    /// blocks is reused.
    pub(super) fn leave_journal_block(&mut self) -> Result<()> {
        self.next_journal_block()?;
        self.journal.since_anchor = BLOCKS_PER_ANCHOR;
        self.journal.left = true;
        Ok(())
    }

    /// Takes the block that follows the present journal block. It is erased when the journal
    /// reaches it.
    pub(super) fn take_journal_block(&mut self) -> Result<u32> {
        while self.free.len() < 2
            && let Some(page) = self.table.first_unknown_page()
        {
            self.load_table(page)?;
        }
        let block = match self.free.pop_first() {
            Some((_, block)) => block,
            None => self.take_pending()?.ok_or(FlashError::WornOut)?,
        };
        let erases = self.block(block)?.erases;
        self.table.set(block, BlockInfo { state: BlockState::Journal, valid: 0, erases });
        Ok(block)
    }

    /// Writes an anchor for the present block of the journal; the blocks before it leave the chain.
    pub(super) fn write_anchor(&mut self) -> Result<()> {
        let geometry = self.geometry;
        let anchor = Anchor {
            volume: self.volume,
            block: self.journal.block,
            chain: self.journal.chain_number,
            first: self.journal.first,
            shape: Shape::of(&geometry),
            user_pages: self.layout.user_pages,
            in_good_blocks: self.in_good_blocks,
            skipped: if self.in_good_blocks { Vec::new() } else { self.nand.skipped().to_vec() },
        };
        let mut bytes = anchor.encode();
        bytes.resize(geometry.page_size as usize, 0);
        let mut tries = 0;
        loop {
            let (slot, page) = self.journal.ring;
            let at = self.safe_page(page, page);
            if at >= geometry.pages_per_block {
                tries += 1;
                if tries > 2 * self.layout.ring {
                    return Err(FlashError::WornOut);
                }
                let slot = (slot + 1) % self.layout.ring;
                let usable = self.block(slot)?.state == BlockState::Journal
                    && self.erase(slot, BlockState::Journal)?;
                let page = if usable { 0 } else { geometry.pages_per_block };
                self.journal.ring = (slot, page);
                continue;
            }
            self.journal.ring.1 = at + 1;
            match self.program_tagged(self.page(slot, at), Kind::Anchor, anchor.chain, &bytes) {
                Ok(()) => break,
                Err(FlashError::Nand(NandError::Failed { .. })) => {
                    self.journal.ring.1 = geometry.pages_per_block;
                    // Its other anchors stay valid until the ring has rotated.
                }
                Err(error) => return Err(error),
            }
        }
        self.info.anchors += 1;
        self.rotate_kept()?;
        self.journal.since_anchor = 0;
        let kept = self.journal.chain.len().saturating_sub(1);
        let left: Vec<u32> = self.journal.chain.drain(..kept).collect();
        for block in left {
            let info = self.block(block)?;
            self.leave(block, info);
        }
        Ok(())
    }

    /// Exchanges kept blocks that are worn much less than the free ones.
    fn rotate_kept(&mut self) -> Result<()> {
        for at in 0..self.kept.len() {
            let Some(block) = self.kept.get(at).copied() else { break };
            let info = self.block(block)?;
            let spare = self.free.len() > self.layout.reserve as usize;
            let Some((erases, old)) = self.free.last().copied().filter(|_| spare && self.begun)
            else {
                break;
            };
            if erases < info.erases + self.spread_max() / 2 {
                continue;
            }
            self.free.remove(&(erases, old));
            if let Some(kept) = self.kept.get_mut(at) {
                *kept = old;
            }
            self.leave(block, info);
        }
        Ok(())
    }

    /// Writes the first page of this session, in a new journal block with an anchor. So nothing
    /// depends on a page that may be unstable.
    pub(super) fn begin(&mut self) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        if !self.journal.left {
            self.leave_journal_block()?;
        }
        // The first program may be a spill page. A page there may have been programmed and
        // interrupted before, so a new block is used.
        self.close_frontier(Stream::Structure)?;
        self.close_frontier(Stream::Copy)?;
        self.kept.clear();
        while self.kept.len() < KEPT
            && self.free.len() > KEPT
            && let Some((_, block)) = self.free.pop_first()
        {
            self.kept.push(block);
        }
        self.write_journal(0)?;
        // Blocks kept earlier and not used are free now.
        for block in core::mem::take(&mut self.kept_before) {
            let info = self.block(block)?;
            self.free.insert((info.erases, block));
        }
        self.begun = true;
        Ok(())
    }
}
