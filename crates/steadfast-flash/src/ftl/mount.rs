//! Mounting: a bounded number of page reads, whatever the size.
//!
//! The first page of each ring block identifies the newest anchor block; a binary search finds its
//! last anchor. The anchor names the newest block of the journal, and a binary search finds the
//! last page there. That page names the next block, which is read too: a power cut may fall between
//! the first page of that block and its anchor. The last page holds the state. `recover` handles
//! the pages after a power cut.

use alloc::vec;
use alloc::vec::Vec;

use super::anchor::Anchor;
use super::codec::{Change, FLAG_CLEAN, State, UNMAPPED, decode_spill};
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::state::Ftl;
use super::table::BlockInfo;
use super::tag::{Kind, Tag};
use crate::nand::Nand;

/// The last valid page in a block of structures.
pub(super) struct Last {
    pub tag: Tag,
    pub data: Vec<u8>,
    /// Page number within the block.
    pub page: u32,
}

/// A journal page and its contents.
pub(super) type JournalPage = (Tag, State, Vec<(u32, Change)>);

impl<N: Nand> Ftl<N> {
    /// Opens a volume that [`format`](super::format()) made. After an unclean stop this programs
    /// and erases, unless `read_only` is set: then nothing is ever written.
    ///
    /// # Errors
    /// [`FlashError::NotFormatted`] and similar if there is no volume, [`FlashError::Damaged`], or
    /// errors of the part.
    pub fn mount(nand: N, read_only: bool) -> Result<Ftl<N>> {
        let layout = Layout::new(&nand.geometry())?;
        let mut ftl = Ftl::empty(nand, layout, 0);
        let (tag, state, changes) = ftl.find_journal()?;
        let clean = state.flags & FLAG_CLEAN != 0;
        ftl.load(&tag, state, changes)?;
        if clean && ftl.journal.since_anchor > 0 {
            // The anchor after this journal page may have been interrupted: the next one goes to
            // the next block.
            ftl.journal.ring.1 = ftl.geometry.pages_per_block;
        }
        if !clean {
            ftl.info.recovered = true;
            match ftl.recover(read_only) {
                // Writes are impossible now; the data is still readable.
                Err(FlashError::WornOut) => ftl.failed = Some(FlashError::WornOut),
                recovered => recovered?,
            }
        }
        if ftl.failed.is_none() {
            ftl.complete_first_mount(read_only)?;
        }
        if read_only {
            ftl.failed = Some(FlashError::ReadOnly);
        }
        Ok(ftl)
    }

    /// Pages of a block of structures in the order of use.
    fn structure_pages(&self) -> Vec<u32> {
        let mut pages = Vec::new();
        let mut next = 0;
        while self.safe_page(next, next) < self.geometry.pages_per_block {
            let page = self.safe_page(next, next);
            pages.push(page);
            next = page + 1;
        }
        pages
    }

    /// Follows the chain from an anchor to the newest journal page.
    pub(super) fn follow(&mut self, anchor: &Anchor) -> Result<Option<JournalPage>> {
        self.volume = anchor.volume;
        if !self.take_user_pages(anchor.user_pages) {
            return Ok(None);
        }
        let (mut block, mut chain) = (anchor.block, anchor.chain);
        // The sequence number of the first page of the block: exact, or a range if that page is
        // unreadable.
        let mut first = anchor.first..=anchor.first;
        let Some(mut last) = self.last_in_block(block, Kind::Journal, None)? else {
            return Ok(None);
        };
        let mut hops = 0;
        while let Some((state, _)) = State::decode(&last.data, &self.geometry)
            && let Some(next) = self.journal_at(state.next_block, chain + 1, first.clone())?
        {
            first = Self::firsts(&next, *first.end());
            (block, chain) = (state.next_block, chain + 1);
            hops += 1;
            match self.last_in_block(block, Kind::Journal, Some(next))? {
                Some(found) => last = found,
                None => return Ok(None),
            }
        }
        self.journal.since_anchor = hops;
        self.journal.first = *first.end();
        loop {
            let decoded = State::decode(&last.data, &self.geometry);
            match decoded.filter(|(state, _)| state.volume == anchor.volume && last.tag.id == chain)
            {
                Some((state, changes)) => {
                    self.journal.block = block;
                    self.journal.found = self.page(block, last.page).0;
                    return Ok(Some((last.tag, state, changes)));
                }
                None => match self.before(block, Kind::Journal, last.page)? {
                    Some(before) => last = before,
                    None => return Ok(None),
                },
            }
        }
    }

    /// The range of the sequence number of a block's first page, from its first readable page.
    /// `before` is the sequence number of the previous block, or an upper limit of it.
    fn firsts(found: &Last, before: u64) -> core::ops::RangeInclusive<u64> {
        let end = found.tag.sequence;
        if found.page == 0 { end..=end } else { before + 1..=end }
    }

    /// The first page of a block of structures; or one of the next two if the first was programmed
    /// and is unreadable.
    pub(super) fn first_readable(
        &mut self,
        block: u32,
        data: &mut [u8],
    ) -> Result<Option<(Tag, u32)>> {
        for page in self.structure_pages().into_iter().take(3) {
            if let Some(tag) = self.read_tagged(self.page(block, page).0, data)? {
                return Ok(Some((tag, page)));
            }
            if Self::looks_erased(data) {
                break;
            }
        }
        Ok(None)
    }

    /// The first page of a block, if it is the journal block with this number and follows one with
    /// such a first page.
    fn journal_at(
        &mut self,
        block: u32,
        chain: u32,
        previous: core::ops::RangeInclusive<u64>,
    ) -> Result<Option<Last>> {
        let mut data = vec![0; self.geometry.page_size as usize];
        let Some((tag, page)) = self.first_readable(block, &mut data)? else { return Ok(None) };
        let state = State::decode(&data, &self.geometry);
        let ours = tag.kind == Kind::Journal
            && tag.id == chain
            && state.is_some_and(|(state, _)| {
                state.volume == self.volume && previous.contains(&state.previous)
            });
        Ok(ours.then_some(Last { tag, data, page }))
    }

    /// The last valid page of a kind in a block, by binary search, because pages are used in order.
    /// `first` is its first valid page, if already read.
    pub(super) fn last_in_block(
        &mut self,
        block: u32,
        kind: Kind,
        first: Option<Last>,
    ) -> Result<Option<Last>> {
        let pages = self.structure_pages();
        let known =
            first.as_ref().and_then(|first| pages.iter().position(|page| *page == first.page));
        // A block that the chain leads to after the anchor usually has one page.
        let mut middle = match known {
            Some(known) if kind == Kind::Journal => known + 1,
            known => known.unwrap_or(0).midpoint(pages.len()),
        };
        let mut best = first;
        // Pages before `used` are used; those from `free` on are not.
        let (mut used, mut free) = (known.map_or(0, |known| known + 1), pages.len());
        let mut data = vec![0; self.geometry.page_size as usize];
        while used < free {
            let Some(page) = pages.get(middle).copied() else { break };
            let tag = self.read_tagged(self.page(block, page).0, &mut data)?;
            if tag.is_none() && Self::looks_erased(&data) {
                free = middle;
            } else {
                used = middle + 1;
                if let Some(tag) = tag.filter(|tag| tag.kind == kind) {
                    best = Some(Last { tag, data: data.clone(), page });
                }
            }
            middle = used.midpoint(free);
        }
        // The last used page may be torn; then the one before it is the last valid one.
        let Some(page) = used.checked_sub(1).and_then(|last| pages.get(last).copied()) else {
            return Ok(None);
        };
        if best.as_ref().is_some_and(|best| best.page == page) {
            return Ok(best);
        }
        Ok(self.before(block, kind, page)?.or(best))
    }

    /// The last valid page before `page`.
    pub(super) fn before(&mut self, block: u32, kind: Kind, page: u32) -> Result<Option<Last>> {
        let mut data = vec![0; self.geometry.page_size as usize];
        for page in self.structure_pages().into_iter().rev().filter(|before| *before < page) {
            let tag = self.read_tagged(self.page(block, page).0, &mut data)?;
            if let Some(tag) = tag.filter(|tag| tag.kind == kind) {
                return Ok(Some(Last { tag, data, page }));
            }
        }
        Ok(None)
    }

    /// Loads the state of the newest journal page.
    fn load(&mut self, tag: &Tag, state: State, changes: Vec<(u32, Change)>) -> Result<()> {
        let layout = self.layout;
        let damaged = FlashError::Damaged { page: self.journal.block, what: "journal page" };
        if state.user_pages != layout.user_pages
            || state.directory.len() != self.directory.len()
            || state.table.len() != self.table.pages.len()
            || state.chain.last() != Some(&self.journal.block)
        {
            return Err(damaged);
        }
        self.sequence = tag.sequence;
        self.journal.chain_number = tag.id;
        self.journal.next_block = state.next_block;
        self.journal.previous = state.previous;
        self.born = state.born;
        self.second_page = state.second;
        self.patrol.block = state.patrol;
        self.journal.chain = state.chain;
        self.journal.page = self.geometry.pages_per_block;
        self.directory = state.directory;
        self.table.pages = state.table;
        self.frontiers = state.frontiers;
        self.kept_before = state.kept;
        for (block, entry) in state.fixups {
            let info = BlockInfo::decode(entry).ok_or(damaged)?;
            self.table.set(block, info);
            self.note_loaded(block, info);
        }
        let mut data = vec![0; self.geometry.page_size as usize];
        self.written =
            state.written.iter().map(|word| (word & 0xff_ffff, (word >> 24) as usize)).collect();
        for (number, page) in state.spills.iter().enumerate() {
            let what = FlashError::Damaged { page: *page, what: "spill page" };
            let tag = self.read_tagged(*page, &mut data)?;
            let changes = tag
                .filter(|tag| tag.kind == Kind::Spill)
                .and_then(|_| decode_spill(&data, state.volume, layout.user_pages, &self.geometry));
            let mut changes = changes.ok_or(what)?;
            changes.retain(|(logical, _)| {
                self.written.get(&(logical / layout.words)).is_none_or(|spills| *spills <= number)
            });
            self.adopt(changes, *page);
        }
        self.spills = state.spills;
        self.adopt(changes, UNMAPPED);
        Ok(())
    }
}
