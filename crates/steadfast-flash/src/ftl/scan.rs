//! Reads a whole part: all information of any page about the places of logical pages.
//!
//! Each statement has the sequence number of its page, and the newest one counts. A data page
//! states the place of its logical page. Journal and spill pages list changes. Map pages state the
//! places of many logical pages, and that some are unmapped. An unmapped entry does not override
//! contents that the journal keeps, because the map does not know them.
//!
//! A page in flight at a power cut may be unstable. It may also be newer than the copy that the
//! structures refer to, if garbage collection was moving it. So the last programmed page of a block
//! counts only if it is readable every time. The same applies to a page that shares its cells.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::codec::{Change, State, UNMAPPED, decode_spill};
use super::error::Result;
use super::state::Ftl;
use super::table::{BlockInfo, BlockState};
use super::tag::{Kind, Tag};
use crate::nand::{BlockNumber, Nand};

/// Findings about a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeenBlock {
    pub bad: bool,
    /// It has a page of the journal, the map or the table.
    pub structures: bool,
    pub erases: u32,
    /// Its newest sequence number.
    pub newest: u64,
    /// Its last programmed page.
    last: u32,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The newest journal page, with its tag.
    pub journal: Option<(Tag, State)>,
    /// The newest place of each logical page, with its sequence number.
    pub places: Vec<(u64, u32)>,
    /// The newest contents kept by the journal.
    pub shorts: BTreeMap<u32, (u64, Vec<u8>)>,
    /// For each map page, its newest version: the sequence number, and the logical pages that it
    /// calls unmapped.
    nowhere: BTreeMap<u32, (u64, BTreeSet<u32>)>,
    pub blocks: Vec<SeenBlock>,
    /// Highest sequence number.
    pub newest: u64,
    /// Highest number of a journal block.
    pub chain: u32,
    /// Ring slot with the newest anchor.
    pub slot: u32,
    newest_anchor: u64,
    pub pages_read: u64,
    pub unreadable: u64,
}

impl Scan {
    fn place(&mut self, logical: u32, sequence: u64, place: u32) {
        if let Some(known) = self.places.get_mut(logical as usize)
            && known.0 < sequence
        {
            *known = (sequence, place);
        }
    }

    fn short(&mut self, logical: u32, sequence: u64, contents: Vec<u8>) {
        let known = self.shorts.entry(logical).or_default();
        if known.0 < sequence {
            *known = (sequence, contents);
        }
    }

    fn changes(&mut self, sequence: u64, changes: Vec<(u32, Change)>) {
        for (logical, change) in changes {
            match change {
                Change::Moved(place, _) => self.place(logical, sequence, place),
                Change::Short(contents, _) => self.short(logical, sequence, contents),
            }
        }
    }

    fn entry(&mut self, block: u32, entry: u32) {
        if let (Some(seen), Some(info)) =
            (self.blocks.get_mut(block as usize), BlockInfo::decode(entry))
        {
            seen.erases = seen.erases.max(info.erases);
            seen.bad |= info.state == BlockState::Bad;
        }
    }

    /// The place or the contents of a logical page, after all pages were read.
    pub fn resolve(&self, logical: u32, words: u32) -> (u32, Option<&Vec<u8>>) {
        let (said, place) = self.places.get(logical as usize).copied().unwrap_or((0, UNMAPPED));
        if let Some((sequence, contents)) = self.shorts.get(&logical)
            && *sequence > said
        {
            return (UNMAPPED, Some(contents));
        }
        let map = self.nowhere.get(&(logical / words));
        let gone =
            map.is_some_and(|(sequence, pages)| *sequence > said && pages.contains(&logical));
        (if gone { UNMAPPED } else { place }, None)
    }
}

impl<N: Nand> Ftl<N> {
    /// Reads every page of the part; pages of an earlier volume are ignored.
    pub(super) fn scan(&mut self) -> Result<Scan> {
        let mut scan = Scan {
            blocks: vec![SeenBlock::default(); self.geometry.blocks as usize],
            ..Scan::default()
        };
        // The newest journal page identifies the volume.
        self.each_page(&mut scan, |ftl, scan, _, tag, data| {
            if tag.kind == Kind::Journal
                && scan.journal.as_ref().is_none_or(|(newest, _)| newest.sequence < tag.sequence)
                && let Some((state, _)) = State::decode(data, &ftl.geometry)
                && ftl.layout.with_user_pages(state.user_pages).is_some()
            {
                scan.journal = Some((tag, state));
            }
        })?;
        let Some((_, state)) = &scan.journal else { return Ok(scan) };
        let (born, volume) = (state.born, state.volume);
        self.take_user_pages(state.user_pages);
        scan.places = vec![(0, UNMAPPED); self.layout.user_pages as usize];
        let mut unstable = BTreeSet::new();
        for block in 0..self.geometry.blocks {
            let last = scan.blocks.get(block as usize).map_or(0, |seen| seen.last);
            for page in [Some(last), self.geometry.pairing.damaged_by(last)].into_iter().flatten() {
                let page = self.page(block, page).0;
                if !self.holds(page)? {
                    unstable.insert(page);
                }
            }
        }
        self.each_page(&mut scan, |ftl, scan, page, tag, data| {
            if tag.sequence >= born && !unstable.contains(&page) {
                ftl.note_page(scan, page, tag, data, volume);
            }
        })?;
        Ok(scan)
    }

    fn each_page(
        &mut self,
        scan: &mut Scan,
        mut note: impl FnMut(&Self, &mut Scan, u32, Tag, &[u8]),
    ) -> Result<()> {
        let mut data = vec![0; self.geometry.page_size as usize];
        for block in 0..self.geometry.blocks {
            let bad = self.nand.is_bad(BlockNumber(block))?;
            if let Some(seen) = scan.blocks.get_mut(block as usize) {
                seen.bad |= bad;
            }
            for at in 0..self.geometry.pages_per_block {
                let page = self.page(block, at).0;
                let tag = self.read_tagged(page, &mut data)?;
                scan.pages_read += 1;
                if tag.is_none() && Self::looks_erased(&data) {
                    continue;
                }
                if let Some(seen) = scan.blocks.get_mut(block as usize) {
                    seen.last = at;
                }
                match tag {
                    Some(tag) => note(self, scan, page, tag, &data),
                    None => scan.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    fn note_page(&self, scan: &mut Scan, page: u32, tag: Tag, data: &[u8], volume: u64) {
        let block = self.block_of(page);
        scan.newest = scan.newest.max(tag.sequence);
        if let Some(seen) = scan.blocks.get_mut(block as usize) {
            seen.newest = seen.newest.max(tag.sequence);
            seen.structures |= !matches!(tag.kind, Kind::Data | Kind::Lost);
        }
        let words = || {
            let word = |bytes: &[u8]| bytes.try_into().map_or(UNMAPPED, u32::from_le_bytes);
            data.chunks_exact(4).map(word)
        };
        match tag.kind {
            Kind::Data | Kind::Lost => scan.place(tag.id, tag.sequence, page),
            Kind::Map => {
                let pages = self.geometry.pages();
                let first = u64::from(tag.id) * u64::from(self.layout.words);
                let mut nowhere = BTreeSet::new();
                for (logical, place) in (first..).zip(words()) {
                    let Ok(logical) = u32::try_from(logical) else { break };
                    if place == UNMAPPED {
                        nowhere.insert(logical);
                    } else if place < pages {
                        scan.place(logical, tag.sequence, place);
                    }
                }
                let known = scan.nowhere.entry(tag.id).or_default();
                if known.0 < tag.sequence {
                    *known = (tag.sequence, nowhere);
                }
            }
            Kind::Table => {
                let first = u64::from(tag.id) * u64::from(self.layout.words);
                for (block, entry) in (first..).zip(words()) {
                    scan.entry(u32::try_from(block).unwrap_or(u32::MAX), entry);
                }
            }
            Kind::Journal => {
                scan.chain = scan.chain.max(tag.id);
                if let Some((state, changes)) = State::decode(data, &self.geometry)
                    && state.volume == volume
                {
                    for (block, entry) in state.fixups {
                        scan.entry(block, entry);
                    }
                    scan.changes(tag.sequence, changes);
                }
            }
            Kind::Spill => {
                let changes = decode_spill(data, volume, self.layout.user_pages, &self.geometry);
                scan.changes(tag.sequence, changes.unwrap_or_default());
            }
            Kind::Anchor if scan.newest_anchor < tag.sequence && block < self.layout.ring => {
                (scan.newest_anchor, scan.slot) = (tag.sequence, block);
            }
            Kind::Anchor | Kind::Directory | Kind::Second | Kind::Reads => {}
        }
    }
}
