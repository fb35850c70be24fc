//! The last resort: making the structures anew from what every page of the part says of itself.
//!
//! It reads the whole part twice. Nothing that holds data, or that says where data is, is erased
//! before the first journal page of the new state is there: a power cut in it leaves what another
//! one can be made from.

use alloc::vec::Vec;

use super::codec::UNMAPPED;
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::recover::RECOVERY_STEP;
use super::scan::Scan;
use super::state::Ftl;
use super::table::{BlockInfo, BlockState};
use crate::nand::Nand;

/// Pages of the map that are written with one writing of directory and table.
const MAP_PAGES: u32 = 32;

/// What a rebuilding found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Pages read.
    pub pages_read: u64,
    /// Pages that were programmed and cannot be corrected, counted each time that they were read:
    /// most are what power cuts left. Data that was in them is an error when it is read.
    pub unreadable_pages: u64,
    /// Logical pages that are in pages of their own.
    pub data_pages: u32,
    /// Logical pages that were found in the journal and its spill pages.
    pub short_pages: u32,
    /// Spill pages that the newest journal page names and that cannot be read: small writes shortly
    /// before may be as they were before; check the file system.
    pub spills_lost: u32,
}

/// Makes map, directory, block table and journal anew: for a volume that does not mount, or that
/// cannot read some of them. Logical pages that were trimmed since the map was written may be as
/// they were before.
///
/// # Errors
/// [`FlashError::NotFormatted`] where no journal page of a volume is on the part; then nothing was
/// written. The part's.
pub fn rebuild<N: Nand>(nand: N) -> Result<(Ftl<N>, RebuildReport)> {
    let layout = Layout::new(&nand.geometry())?;
    let mut ftl = Ftl::empty(nand, layout, 0);
    ftl.find_places()?;
    let scan = ftl.scan()?;
    let Some((tag, state)) = &scan.journal else { return Err(FlashError::NotFormatted) };
    let layout = ftl.layout;
    let mut report = RebuildReport {
        pages_read: scan.pages_read,
        unreadable_pages: scan.unreadable,
        ..RebuildReport::default()
    };
    let mut data = alloc::vec![0; ftl.geometry.page_size as usize];
    for spill in &state.spills {
        report.spills_lost += u32::from(ftl.read_tagged(*spill, &mut data)?.is_none());
    }
    (ftl.volume, ftl.born) = (state.volume, state.born);
    ftl.sequence = scan.newest + RECOVERY_STEP;
    ftl.journal.chain_number = scan.chain + 1;
    ftl.journal.ring = (scan.slot, ftl.geometry.pages_per_block);
    ftl.journal.first = tag.sequence;
    let unsettled = ftl.enter_blocks(&scan, tag.sequence);
    ftl.journal.next_block = ftl.reserve_journal_block()?;
    ftl.table.dirty.extend((0..layout.table_pages).map(|page| page * layout.words));
    for id in 0..layout.map_pages {
        for logical in id * layout.words..((id + 1) * layout.words).min(layout.user_pages) {
            let (place, short) = scan.resolve(logical, layout.words);
            if place != UNMAPPED {
                report.data_pages += 1;
                ftl.set_place(logical, place)?;
            }
            if let Some(contents) = short.filter(|contents| !contents.is_empty()) {
                report.short_pages += 1;
                ftl.set_short(logical, contents)?;
            }
        }
        if (id + 1).is_multiple_of(MAP_PAGES) || id + 1 == layout.map_pages {
            ftl.write_structures()?;
        }
    }
    ftl.begin()?;
    ftl.settle(false)?;
    // What was programmed last may be unstable.
    unsettled.into_iter().for_each(|block| ftl.refresh(block));
    Ok((ftl, report))
}

impl<N: Nand> Ftl<N> {
    /// Enters every block: data where something is valid, pending where a structure was, free
    /// otherwise. Returns those with data that is newer than the journal.
    fn enter_blocks(&mut self, scan: &Scan, journal: u64) -> Vec<u32> {
        let mut valid = alloc::vec![false; self.geometry.blocks as usize];
        for logical in 0..self.layout.user_pages {
            let (place, _) = scan.resolve(logical, self.layout.words);
            if place != UNMAPPED
                && let Some(valid) = valid.get_mut(self.block_of(place) as usize)
            {
                *valid = true;
            }
        }
        let average = |scan: &Scan| {
            let sum: u64 = scan.blocks.iter().map(|seen| u64::from(seen.erases)).sum();
            (sum / scan.blocks.len().max(1) as u64) as u32
        };
        let average = average(scan);
        let mut structures = Vec::new();
        let mut unsettled = Vec::new();
        for (block, (seen, valid)) in (0..).zip(scan.blocks.iter().zip(valid)) {
            let state = if seen.bad {
                // What is valid in a block that was to be retired stays readable.
                if valid { BlockState::Data } else { BlockState::Bad }
            } else if block < self.layout.ring {
                BlockState::Journal
            } else if valid {
                BlockState::Data
            } else if seen.structures {
                BlockState::Pending
            } else {
                BlockState::Free
            };
            let erases = if seen.erases == 0 { average } else { seen.erases };
            self.table.set_quietly(block, BlockInfo { state, valid: 0, erases });
            match state {
                BlockState::Free => drop(self.free.insert((erases, block))),
                BlockState::Pending => structures.push((seen.newest, block)),
                BlockState::Data if seen.bad => {
                    self.collector.retire.insert(block);
                    unsettled.push(block);
                }
                BlockState::Data if seen.newest > journal => unsettled.push(block),
                _ => {}
            }
        }
        // Where too few are free: the oldest structures, which say nothing that newer ones do not.
        structures.sort_unstable();
        for (_, block) in structures {
            if self.free.len() <= self.layout.reserve as usize
                && let Some(info) = self.table.get(block)
            {
                self.table.set_quietly(block, BlockInfo { state: BlockState::Free, ..info });
                self.free.insert((info.erases, block));
            } else {
                self.pending.push_back((block, 2));
            }
        }
        unsettled
    }
}
