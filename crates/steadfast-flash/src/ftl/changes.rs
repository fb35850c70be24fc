//! What has changed since the map was written: in memory, in spill pages, and in the newest journal
//! page.
//!
//! A block's count of valid pages goes up when a page is programmed and down when it is superseded:
//! at once, but for what a recovery finds where only the map names the page before. Then it goes
//! down when the map is written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::codec::{CHANGES_HEAD, Change, Runs, UNMAPPED, encode_changes, short_len, spill_head};
use super::error::Result;
use super::state::{Delta, Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

impl<N: Nand> Ftl<N> {
    /// A logical page is in another place now.
    pub(super) fn set_place(&mut self, logical: u32, place: u32) -> Result<()> {
        if place != UNMAPPED {
            self.increment(self.block_of(place))?;
        }
        self.replace(logical, place, None)
    }

    /// A logical page is in the journal now.
    pub(super) fn set_short(&mut self, logical: u32, contents: &[u8]) -> Result<()> {
        self.replace(logical, UNMAPPED, Some(contents.to_vec()))
    }

    fn replace(&mut self, logical: u32, place: u32, contents: Option<Vec<u8>>) -> Result<()> {
        let (before, released) = match self.delta.get(&logical) {
            Some(old) => (old.place(), old.released()),
            // A mount reads few pages: it does not look.
            None if !self.begun => (UNMAPPED, false),
            None => (self.mapped(logical)?, true),
        };
        self.keep_short(logical, contents);
        self.delta.insert(logical, Delta::new(place, released, UNMAPPED));
        self.unspilled.insert(logical);
        self.supersede(before)
    }

    /// What a logical page without a page holds, or that it has one.
    fn keep_short(&mut self, logical: u32, contents: Option<Vec<u8>>) {
        self.short_bytes += contents.as_ref().map_or(0, Vec::len);
        let old = match contents {
            Some(contents) => self.shorts.insert(logical, contents),
            None => self.shorts.remove(&logical),
        };
        self.short_bytes -= old.map_or(0, |old| old.len());
    }

    /// Applies changes that were read from the part. The counts of valid pages include them
    /// already. `spill`: the spill page that they are in, or [`UNMAPPED`].
    pub(super) fn adopt(&mut self, changes: Vec<(u32, Change)>, spill: u32) {
        for (logical, change) in changes {
            let (place, contents, released) = match change {
                Change::Moved(place, released) => (place, None, released),
                Change::Short(contents, released) => (UNMAPPED, Some(contents), released),
            };
            self.keep_short(logical, contents);
            self.delta.insert(logical, Delta::new(place, released, spill));
            if spill != UNMAPPED {
                self.unspilled.remove(&logical);
            } else {
                self.unspilled.insert(logical);
            }
        }
    }

    fn change(&self, logical: u32) -> Option<(u32, Change)> {
        let delta = self.delta.get(&logical)?;
        Some((
            logical,
            match self.shorts.get(&logical) {
                Some(contents) => Change::Short(contents.clone(), delta.released()),
                None => Change::Moved(delta.place(), delta.released()),
            },
        ))
    }

    /// Bytes that the changes take that no spill page has.
    pub(super) fn unspilled_len(&self) -> usize {
        let mut runs = Runs::default();
        CHANGES_HEAD
            + self
                .unspilled
                .iter()
                .map(|logical| self.change_len(*logical, &mut runs))
                .sum::<usize>()
    }

    /// Bytes that a change takes behind those that `runs` has seen.
    fn change_len(&self, logical: u32, runs: &mut Runs) -> usize {
        match (self.shorts.get(&logical), self.delta.get(&logical)) {
            (Some(contents), _) => short_len(contents),
            (None, Some(delta)) => runs.add(logical, delta.place(), delta.released()),
            (None, None) => 0,
        }
    }

    /// The changes that no spill page has.
    pub(super) fn unspilled_changes(&self) -> Vec<(u32, Change)> {
        self.unspilled.iter().filter_map(|logical| self.change(*logical)).collect()
    }

    /// Writes as many changes as fit into a spill page. The next journal page refers to it.
    pub(super) fn spill(&mut self) -> Result<()> {
        // Before, so that what it was is in the new page: otherwise that one would be the emptiest
        // next.
        self.empty_spills()?;
        let mut bytes = spill_head(self.volume);
        let mut room = self.geometry.page_size as usize - bytes.len() - CHANGES_HEAD;
        let mut changes = Vec::new();
        let mut runs = Runs::default();
        for (logical, change) in self.unspilled.iter().filter_map(|logical| self.change(*logical)) {
            let mut with = runs;
            let length = match &change {
                Change::Short(contents, _) => short_len(contents),
                Change::Moved(place, released) => with.add(logical, *place, *released),
            };
            if length > room {
                continue;
            }
            runs = with;
            room -= length;
            changes.push((logical, change));
            if room < 8 {
                break;
            }
        }
        encode_changes(&mut bytes, &changes);
        let page = self.program_structure(Kind::Spill, 0, bytes)?;
        for (logical, _) in &changes {
            self.unspilled.remove(logical);
            if let Some(delta) = self.delta.get_mut(logical) {
                delta.spill = page;
            }
        }
        self.spills.push(page);
        self.increment(self.block_of(page))?;
        self.info.spill_pages += 1;
        Ok(())
    }

    /// What still counts in the emptiest spill page goes among the unspilled changes again, where
    /// the next spill page has room for both; and where spill pages are many, if it is little: that
    /// is cheaper than to write the map.
    fn empty_spills(&mut self) -> Result<()> {
        let size = self.geometry.page_size as usize;
        let room = size.saturating_sub(spill_head(self.volume).len() + self.unspilled_len());
        let many = self.spills.len() > self.spills_max() * 2 / 3;
        let most = if many { room.max(size / 4) } else { room };
        let mut bytes: BTreeMap<u32, (usize, Runs)> =
            self.spills.iter().map(|spill| (*spill, (0, Runs::default()))).collect();
        for (logical, delta) in &self.delta {
            if let Some((bytes, runs)) = bytes.get_mut(&delta.spill) {
                *bytes += self.change_len(*logical, runs);
            }
        }
        let emptiest = bytes.into_iter().min_by_key(|(_, (bytes, _))| *bytes);
        match emptiest.filter(|(_, (bytes, _))| *bytes <= most) {
            Some((spill, _)) => self.empty_spill(spill),
            None => Ok(()),
        }
    }

    /// What still counts in a spill page goes among the unspilled changes again.
    pub(super) fn empty_spill(&mut self, spill: u32) -> Result<()> {
        for (logical, delta) in self.delta.iter_mut().filter(|(_, delta)| delta.spill == spill) {
            delta.spill = UNMAPPED;
            self.unspilled.insert(*logical);
        }
        let Some(at) = self.spills.iter().position(|other| *other == spill) else { return Ok(()) };
        self.spills.remove(at);
        self.written.values_mut().filter(|spills| **spills > at).for_each(|spills| *spills -= 1);
        self.written.retain(|_, spills| *spills > 0);
        self.supersede(spill)
    }

    /// After these pages of the map were written: what spill pages say of them counts no more, and
    /// what they alone have of them, contents without a page, goes into the next one.
    pub(super) fn leave_changes(&mut self, pages: &BTreeSet<u32>) -> Result<()> {
        let words = self.layout.words;
        let gone = |logical: &u32| pages.contains(&(logical / words));
        let shorts = &self.shorts;
        self.delta.retain(|logical, _| !gone(logical) || shorts.contains_key(logical));
        for (logical, delta) in self.delta.iter_mut().filter(|(logical, _)| gone(logical)) {
            // The map names no page for it.
            *delta = Delta::new(delta.place(), true, UNMAPPED);
            self.unspilled.insert(*logical);
        }
        let delta = &self.delta;
        self.unspilled.retain(|logical| delta.contains_key(logical));
        if !self.spills.is_empty() {
            self.written.extend(pages.iter().map(|id| (*id, self.spills.len())));
        }
        let needed: BTreeSet<u32> = self.delta.values().map(|delta| delta.spill).collect();
        for spill in self.spills.clone() {
            if !needed.contains(&spill) {
                self.empty_spill(spill)?;
            }
        }
        // Few pages of the map can be named in the journal.
        while self.written.len() > self.geometry.page_size as usize / 64
            && let Some(oldest) = self.spills.first().copied()
        {
            self.empty_spill(oldest)?;
        }
        Ok(())
    }

    /// Changed logical pages by page of the map.
    pub(super) fn changes_by_map_page(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut pages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for logical in self.delta.keys() {
            pages.entry(logical / self.layout.words).or_default().push(*logical);
        }
        pages
    }

    /// Whether the map names a page that is counted and needed no more.
    pub(super) fn has_unreleased(&self) -> bool {
        self.delta.values().any(|delta| !delta.released())
    }

    /// Programs a page of the structures.
    pub(super) fn program_structure(
        &mut self,
        kind: Kind,
        id: u32,
        mut bytes: Vec<u8>,
    ) -> Result<u32> {
        bytes.resize(self.geometry.page_size as usize, 0);
        self.program(Stream::Structure, kind, id, &bytes)
    }
}
