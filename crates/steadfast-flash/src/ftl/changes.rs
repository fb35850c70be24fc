//! Changes since the map was written: in memory, in spill pages, and in the newest journal page.
//!
//! The count of valid pages of a block increases when a page is programmed and decreases when it is
//! superseded. Both happen at once, with one exception: a recovery finds a new page, and only the
//! map knows the page before. Then the count decreases when the map is written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::codec::{CHANGES_HEAD, Change, Runs, UNMAPPED, encode_changes, short_len, spill_head};
use super::error::Result;
use super::state::{Delta, Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

impl<N: Nand> Ftl<N> {
    /// Sets the new place of a logical page.
    pub(super) fn set_place(&mut self, logical: u32, place: u32) -> Result<()> {
        if place != UNMAPPED {
            self.increment(self.block_of(place))?;
        }
        self.replace(logical, place, None)
    }

    /// Moves a logical page into the journal.
    pub(super) fn set_short(&mut self, logical: u32, contents: &[u8]) -> Result<()> {
        self.replace(logical, UNMAPPED, Some(contents.to_vec()))
    }

    fn replace(&mut self, logical: u32, place: u32, contents: Option<Vec<u8>>) -> Result<()> {
        let (before, released) = match self.delta.get(&logical) {
            Some(old) => (old.place(), old.released()),
            // A mount reads few pages, so it does not look the page up.
            None if !self.begun => (UNMAPPED, false),
            None => (self.mapped(logical)?, true),
        };
        self.keep_short(logical, contents);
        self.delta.insert(logical, Delta::new(place, released, UNMAPPED));
        self.unspilled.insert(logical);
        self.supersede(before)
    }

    /// Stores the contents of a logical page without a page of its own, or removes them if it has
    /// one.
    fn keep_short(&mut self, logical: u32, contents: Option<Vec<u8>>) {
        self.short_bytes += contents.as_ref().map_or(0, Vec::len);
        let old = match contents {
            Some(contents) => self.shorts.insert(logical, contents),
            None => self.shorts.remove(&logical),
        };
        self.short_bytes -= old.map_or(0, |old| old.len());
    }

    /// Applies changes read from the part. The counts of valid pages already include them. `spill`
    /// is their spill page, or [`UNMAPPED`].
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

    /// Bytes of the changes that are not in a spill page.
    pub(super) fn unspilled_len(&self) -> usize {
        let mut runs = Runs::default();
        CHANGES_HEAD
            + self
                .unspilled
                .iter()
                .map(|logical| self.change_len(*logical, &mut runs))
                .sum::<usize>()
    }

    /// Bytes of a change that follows those that `runs` has seen.
    fn change_len(&self, logical: u32, runs: &mut Runs) -> usize {
        match (self.shorts.get(&logical), self.delta.get(&logical)) {
            (Some(contents), _) => short_len(contents),
            (None, Some(delta)) => runs.add(logical, delta.place(), delta.released()),
            (None, None) => 0,
        }
    }

    /// The changes that are not in a spill page.
    pub(super) fn unspilled_changes(&self) -> Vec<(u32, Change)> {
        self.unspilled.iter().filter_map(|logical| self.change(*logical)).collect()
    }

    /// Writes as many changes as fit into a spill page. The next journal page refers to it.
    pub(super) fn spill(&mut self) -> Result<()> {
        // Emptied first, so its changes go into the new page; otherwise the new page would be the
        // next one to empty.
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

    /// Makes the valid changes of the emptiest spill page unspilled again, if the next spill page
    /// has room for both. With many spill pages, a small number of changes is enough: that is
    /// cheaper than writing the map.
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

    /// Makes the valid changes of a spill page unspilled again.
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

    /// Drops the changes of these map pages from the spill pages, after the map pages were written.
    /// Contents without a page are not in the map; they go into the next spill page.
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
        // The journal has room for few map pages.
        while self.written.len() > self.geometry.page_size as usize / 64
            && let Some(oldest) = self.spills.first().copied()
        {
            self.empty_spill(oldest)?;
        }
        Ok(())
    }

    /// Changed logical pages, grouped by map page.
    pub(super) fn changes_by_map_page(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut pages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for logical in self.delta.keys() {
            pages.entry(logical / self.layout.words).or_default().push(*logical);
        }
        pages
    }

    /// Whether the map names a page that is still counted but no longer needed.
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
