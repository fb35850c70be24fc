//! What has changed since the map was written: in memory, in spill pages, and in the newest journal page.
//!
//! A block's count of valid pages goes up when a page is programmed and down when it is known to be superseded: at once
//! where the old page is in `delta`, when the map is written where only the map names it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::codec::{CHANGES_HEAD, Change, UNMAPPED, change_len, encode_changes, spill_head};
use super::error::Result;
use super::state::{Delta, Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

impl<N: Nand> Ftl<N> {
    /// A logical page is in another place now. `released`: the page that the map names was counted off by the caller.
    pub(super) fn set_place(&mut self, logical: u32, place: u32, released: bool) -> Result<()> {
        if place != UNMAPPED {
            self.increment(self.block_of(place))?;
        }
        self.replace(logical, Delta { place, short: None, released, spill: UNMAPPED })
    }

    /// A logical page is in the journal now.
    pub(super) fn set_short(&mut self, logical: u32, contents: &[u8]) -> Result<()> {
        self.short_bytes += contents.len();
        self.replace(
            logical,
            Delta { place: UNMAPPED, short: Some(contents.to_vec()), released: false, spill: UNMAPPED },
        )
    }

    fn replace(&mut self, logical: u32, mut new: Delta) -> Result<()> {
        if let Some(old) = self.delta.get(&logical) {
            let (place, short) = (old.place, old.short.as_ref().map_or(0, Vec::len));
            new.released |= old.released;
            self.short_bytes -= short;
            if place != UNMAPPED {
                self.decrement(self.block_of(place))?;
            }
        }
        self.delta.insert(logical, new);
        self.unspilled.insert(logical);
        Ok(())
    }

    /// Applies changes that were read from the part. The counts of valid pages include them already.
    /// `spill`: the spill page that they are in, or [`UNMAPPED`].
    pub(super) fn adopt(&mut self, changes: Vec<(u32, Change)>, spill: u32) {
        for (logical, change) in changes {
            let delta = match change {
                Change::Moved(place, released) => Delta { place, short: None, released, spill },
                Change::Short(contents, released) => {
                    self.short_bytes += contents.len();
                    Delta { place: UNMAPPED, short: Some(contents), released, spill }
                }
            };
            let old = self.delta.insert(logical, delta).and_then(|old| old.short);
            self.short_bytes -= old.map_or(0, |short| short.len());
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
            match &delta.short {
                Some(contents) => Change::Short(contents.clone(), delta.released),
                None => Change::Moved(delta.place, delta.released),
            },
        ))
    }

    /// Bytes that the changes take that no spill page has.
    pub(super) fn unspilled_len(&self) -> usize {
        let len = |logical: &u32| match self.delta.get(logical) {
            Some(Delta { short: Some(contents), .. }) => 6 + contents.len(),
            Some(_) => 8,
            None => 0,
        };
        CHANGES_HEAD + self.unspilled.iter().map(len).sum::<usize>()
    }

    /// The changes that no spill page has.
    pub(super) fn unspilled_changes(&self) -> Vec<(u32, Change)> {
        self.unspilled.iter().filter_map(|logical| self.change(*logical)).collect()
    }

    /// Writes as many changes as fit into a spill page. The next journal page refers to it.
    pub(super) fn spill(&mut self) -> Result<()> {
        let mut bytes = spill_head(self.volume);
        let mut room = self.geometry.page_size as usize - bytes.len() - CHANGES_HEAD;
        let mut changes = Vec::new();
        for change in self.unspilled.iter().filter_map(|logical| self.change(*logical)) {
            let length = change_len(&change.1);
            if length > room {
                continue;
            }
            room -= length;
            changes.push(change);
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
        self.empty_spills()
    }

    /// Where spill pages are many, what still counts in the emptiest of them goes among the unspilled changes again, if it is
    /// little: that is cheaper than to write the map.
    fn empty_spills(&mut self) -> Result<()> {
        if self.spills.len() <= self.spills_max() * 2 / 3 {
            return Ok(());
        }
        let mut bytes: BTreeMap<u32, usize> = self.spills.iter().map(|spill| (*spill, 0)).collect();
        for delta in self.delta.values() {
            if let Some(bytes) = bytes.get_mut(&delta.spill) {
                *bytes += delta.short.as_ref().map_or(8, |contents| 6 + contents.len());
            }
        }
        let emptiest = bytes.into_iter().min_by_key(|(_, bytes)| *bytes);
        let Some((spill, _)) = emptiest.filter(|(_, bytes)| *bytes <= self.geometry.page_size as usize / 4)
        else {
            return Ok(());
        };
        for (logical, delta) in self.delta.iter_mut().filter(|(_, delta)| delta.spill == spill) {
            delta.spill = UNMAPPED;
            self.unspilled.insert(*logical);
        }
        self.spills.retain(|other| *other != spill);
        self.supersede(spill)
    }

    /// Changed logical pages by page of the map.
    pub(super) fn changes_by_map_page(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut pages: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for logical in self.delta.keys() {
            pages.entry(logical / self.layout.words).or_default().push(*logical);
        }
        pages
    }

    /// How many pages of the map have changes, as far as a bound of them.
    pub(super) fn changed_map_pages(&self) -> u32 {
        let words = self.layout.words;
        let mut count = 0;
        let mut next = 0;
        // One look-up for each page of the map, not one for each change.
        while let Some((logical, _)) = self.delta.range(next..).next() {
            count += 1;
            let page = logical / words;
            let Some(first) = (page + 1).checked_mul(words) else { break };
            next = first;
        }
        count
    }

    /// Programs a page of the structures.
    pub(super) fn program_structure(&mut self, kind: Kind, id: u32, mut bytes: Vec<u8>) -> Result<u32> {
        bytes.resize(self.geometry.page_size as usize, 0);
        self.program(Stream::Structure, kind, id, &bytes)
    }
}
