//! Writes the map in steps. A step writes the map pages with most changes in `delta`, then their
//! places into the directory, and the counts into the block table. The next journal page commits
//! the step: all of it or nothing. Changes in a spill page are void for map pages written after it;
//! the journal lists these map pages.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::cache::MapPage;
use super::codec::UNMAPPED;
use super::error::Result;
use super::state::{Ftl, Stream};
use super::table::BlockState;
use super::tag::Kind;
use crate::nand::{Nand, Pairing};

/// Most spill pages, not counting one or two that are written while a step is due: a mount reads
/// all of them.
const SPILLS_MAX: usize = 7;

/// Bytes of the part for each change in memory; memory takes a quarter of a byte for each KiB of
/// the part. With fewer changes in memory, a map page is written for fewer changes.
const BYTES_PER_CHANGE: u64 = 1 << 16;

/// Pages of the structures that must move although their contents are unchanged.
#[derive(Debug, Default)]
struct Moving {
    map: BTreeSet<u32>,
    directory: BTreeSet<u32>,
    table: BTreeSet<u32>,
    spills: Vec<u32>,
    /// The block that they are in, if they are all of its pages.
    emptied: Option<u32>,
}

/// Map pages written in one step: bounds its time.
fn step_max<N: Nand>(ftl: &Ftl<N>) -> usize {
    if ftl.geometry.pairing == Pairing::None { 36 } else { 6 }
}

impl<N: Nand> Ftl<N> {
    /// Most spill pages: a mount reads all of them.
    pub(super) fn spills_max(&self) -> usize {
        if self.layout.has_long_ring() { SPILLS_MAX - 1 } else { SPILLS_MAX }
    }

    /// Whether the map must be written before more changes are added.
    pub(super) fn map_is_due(&self) -> bool {
        self.changes_are_many()
            || self.table.dirty.len() > self.fixups_max()
            || !self.collector.renew.is_empty()
            || !self.reads.due.is_empty()
    }

    fn changes_are_many(&self) -> bool {
        self.spills.len() >= self.spills_max() || self.delta.len() >= self.changes_max()
    }

    /// Most changes in memory. The spill pages have no room for more than the upper limit, even if
    /// runs save little.
    fn changes_max(&self) -> usize {
        let words = self.layout.words as usize;
        ((self.geometry.bytes() / BYTES_PER_CHANGE) as usize).clamp(2 * words, 4 * words)
    }

    /// Writes the map pages with most changes, if there are many changes, and other structures that
    /// are due; then the journal. With `release`, it writes the map pages that name pages which are
    /// still counted but no longer needed.
    pub(super) fn write_map_step(&mut self, release: bool) -> Result<()> {
        let mut pages: Vec<(usize, u32)> = Vec::new();
        if release || self.changes_are_many() {
            for (id, changed) in self.changes_by_map_page() {
                let counts = |logical: &&u32| match release {
                    true => self.delta.get(*logical).is_some_and(|delta| !delta.released()),
                    false => !self.shorts.contains_key(*logical),
                };
                pages.push((changed.iter().filter(counts).count(), id));
            }
            pages.retain(|(count, _)| *count > 0);
            pages.sort_unstable_by_key(|(count, _)| core::cmp::Reverse(*count));
            pages.truncate(step_max(self));
        }
        self.write_pages(pages.into_iter().map(|(_, id)| id).collect())?;
        self.write_journal(0)
    }

    /// Writes the whole map, and then the journal.
    pub(super) fn write_map(&mut self) -> Result<()> {
        self.write_structures()?;
        self.write_journal(0)
    }

    /// Writes the whole map; the next journal page commits it.
    pub(super) fn write_structures(&mut self) -> Result<()> {
        self.write_pages(self.changes_by_map_page().into_keys().collect())
    }

    /// Writes these map pages, and other structures that are due; the next journal page commits
    /// them.
    fn write_pages(&mut self, mut pages: BTreeSet<u32>) -> Result<()> {
        let moving = self.structures_to_move()?;
        let words = self.layout.words;
        pages.extend(moving.map);
        for spill in moving.spills {
            self.empty_spill(spill)?;
        }
        let mut changes = self.changes_by_map_page();
        let mut directories: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for id in &moving.directory {
            directories.insert(*id, self.map_words(MapPage::Directory(*id))?.to_vec());
        }
        for id in &pages {
            let changed = changes.remove(id).unwrap_or_default();
            let page = self.write_map_page(*id, &changed)?;
            let at = id / words;
            let directory = match directories.entry(at) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.map_words(MapPage::Directory(at))?.to_vec())
                }
            };
            let slot = directory.get_mut((id % words) as usize);
            let old = slot.map_or(UNMAPPED, |slot| core::mem::replace(slot, page));
            self.supersede(old)?;
        }
        for (id, directory) in directories {
            let page = self.write_words(Kind::Directory, id, &directory)?;
            self.write_copy(Kind::Directory, id, &directory)?;
            self.cache.put(MapPage::Directory(id), directory);
            let old = self
                .directory
                .get_mut(id as usize)
                .map_or(UNMAPPED, |slot| core::mem::replace(slot, page));
            self.supersede(old)?;
        }
        self.leave_changes(&pages)?;
        if !self.has_unreleased() {
            self.note_stuck();
        }
        self.write_reads()?;
        self.write_table(moving.table)?;
        self.write_second()?;
        self.leave_leaks(moving.emptied)
    }

    /// Writes one map page with its changes.
    fn write_map_page(&mut self, id: u32, changed: &[u32]) -> Result<u32> {
        let words = self.layout.words;
        let mut map = self.map_words(MapPage::Map(id))?.to_vec();
        let mut gone = Vec::new();
        for logical in changed {
            let (Some(delta), Some(slot)) =
                (self.delta.get(logical), map.get_mut((logical % words) as usize))
            else {
                continue;
            };
            let old = core::mem::replace(slot, delta.place());
            if old != UNMAPPED && !delta.released() {
                gone.push(old);
            }
        }
        let page = self.write_words(Kind::Map, id, &map)?;
        self.cache.put(MapPage::Map(id), map);
        for page in gone {
            self.decrement(self.block_of(page))?;
        }
        Ok(page)
    }

    fn write_words(&mut self, kind: Kind, id: u32, words: &[u32]) -> Result<u32> {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let page = self.program_structure(kind, id, bytes)?;
        self.increment(self.block_of(page))?;
        self.info.map_pages += 1;
        Ok(page)
    }

    pub(super) fn supersede(&mut self, page: u32) -> Result<()> {
        if page == UNMAPPED { Ok(()) } else { self.decrement(self.block_of(page)) }
    }

    /// Writes the pages of the block table with changed entries. Changes caused by this write go
    /// into the journal page.
    fn write_table(&mut self, also: BTreeSet<u32>) -> Result<()> {
        let mut due = self.table.dirty_pages();
        let pages: BTreeSet<u32> =
            due.iter().map(|(_, id)| *id).chain(also.iter().copied()).collect();
        due.sort_unstable();
        for id in pages {
            // The journal has room for few entries: the pages with most of them are written.
            let rank = due.iter().position(|(_, other)| *other == id);
            let entries: usize =
                due.iter().take(rank.unwrap_or(0) + 1).map(|(count, _)| *count).sum();
            let written = self.table.pages.get(id as usize).is_some_and(|page| *page != UNMAPPED);
            if written && !also.contains(&id) && entries <= self.fixups_max() / 4 {
                continue;
            }
            // A page with unknown entries must be loaded before it is written.
            if self.table.first_unknown_page().is_some_and(|first| first <= id) {
                self.load_table_if_written(id)?;
            }
            let old = self.table.pages.get(id as usize).copied().unwrap_or(UNMAPPED);
            self.supersede(old)?;
            let words = self.table.serialize(id);
            let page = self.write_words(Kind::Table, id, &words)?;
            self.write_copy(Kind::Table, id, &words)?;
            if let Some(slot) = self.table.pages.get_mut(id as usize) {
                *slot = page;
            }
        }
        Ok(())
    }

    fn load_table_if_written(&mut self, id: u32) -> Result<()> {
        match self.table.pages.get(id as usize) {
            Some(page) if *page != UNMAPPED => self.load_table(id),
            _ => Ok(()),
        }
    }

    /// Leaves a block that no structure uses, although its count is not zero: the remaining counts
    /// belong to an unreadable page.
    fn leave_leaks(&mut self, emptied: Option<u32>) -> Result<()> {
        let Some(block) = emptied else { return Ok(()) };
        let info = self.block(block)?;
        if info.state == BlockState::Map && !self.is_open(block) {
            self.leave(block, info);
        }
        Ok(())
    }

    /// Chooses structure pages that must move: those in a block with flipped bits, or in a block to
    /// be retired. If the structures use too many blocks, it chooses the pages of the emptiest
    /// block. The number is bounded.
    fn structures_to_move(&mut self) -> Result<Moving> {
        for stream in [Stream::Structure, Stream::Copy] {
            if self.collector.renew.contains(&self.frontiers[stream as usize].block) {
                self.close_frontier(stream)?;
            }
        }
        let mut moving = Moving::default();
        let layout = self.layout;
        let pages = layout.map_pages + 2 * (layout.directory_pages + layout.table_pages);
        let blocks_max = 3 + pages.div_ceil(self.safe_pages()) * 3 / 2;
        let candidates = || {
            let known = self.table.known();
            known.filter(|(block, info)| info.state == BlockState::Map && !self.is_open(*block))
        };
        let due = |block: &u32| {
            self.collector.retire.contains(block) || self.collector.renew.contains(block)
        };
        let worn = candidates().find(|(block, _)| due(block));
        let emptiest = candidates().min_by_key(|(_, info)| info.valid);
        let crowded = candidates().count() as u32 >= blocks_max;
        let victim = match (worn, emptiest) {
            (Some((block, _)), _) => block,
            (None, Some((block, _))) if crowded => block,
            _ => {
                // Blocks that other work has emptied.
                self.collector.renew.clear();
                return Ok(moving);
            }
        };
        let mut room = step_max(self);
        let second = self.second()?.clone();
        let within = |list: &[u32], id: usize| {
            list.get(id).is_some_and(|page| page / self.geometry.pages_per_block == victim)
        };
        for id in 0..layout.directory_pages as usize {
            if within(&self.directory, id) || within(&second.directory, id) {
                moving.directory.insert(id as u32);
            }
        }
        for id in 0..layout.table_pages as usize {
            if within(&self.table.pages, id) || within(&second.table, id) {
                moving.table.insert(id as u32);
            }
        }
        let inside = |page: &u32| self.block_of(*page) == victim;
        moving.spills = self.spills.iter().copied().filter(inside).collect();
        let reads: Vec<u32> = (0..second.reads.len())
            .filter(|id| within(&second.reads, *id))
            .map(|id| id as u32)
            .collect();
        self.reads.due.extend(reads);
        for id in 0..layout.directory_pages {
            let (words, per_block) = (layout.words, self.geometry.pages_per_block);
            let pages = self.map_words(MapPage::Directory(id))?;
            let inside = pages.iter().enumerate().filter(|(_, page)| *page / per_block == victim);
            for (at, _) in inside {
                if room == 0 {
                    return Ok(moving);
                }
                room -= 1;
                moving.map.insert(id * words + at as u32);
            }
        }
        moving.emptied = Some(victim);
        Ok(moving)
    }
}
