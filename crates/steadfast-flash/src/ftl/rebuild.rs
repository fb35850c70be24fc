//! The last resort: rebuilds the structures from the tags and contents of all pages of the part.
//!
//! It reads the whole part twice. No block with data, or with information about its place, is
//! erased before the first journal page of the new state is written. So after a power cut the
//! rebuild can start again.

use alloc::vec::Vec;

use super::codec::UNMAPPED;
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::recover::RECOVERY_STEP;
use super::scan::Scan;
use super::state::Ftl;
use super::table::{BlockInfo, BlockState};
use crate::nand::Nand;

/// Map pages written for each update of directory and table.
const MAP_PAGES: u32 = 32;

/// Result of a rebuild.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Pages read.
    pub pages_read: u64,
    /// Programmed pages that cannot be corrected, counted for every read: most are left by power
    /// cuts. Reading lost data of such a page is an error.
    pub unreadable_pages: u64,
    /// Logical pages in pages of their own.
    pub data_pages: u32,
    /// Logical pages found in the journal and its spill pages.
    pub short_pages: u32,
    /// Unreadable spill pages that the newest journal page names. Recent small writes may be lost,
    /// with the previous contents in their place; check the file system.
    pub spills_lost: u32,
}

/// Rebuilds map, directory, block table and journal, for a volume that does not mount or has
/// unreadable structures. Logical pages trimmed after the map was written may have their old
/// contents again.
///
/// # Errors
/// [`FlashError::NotFormatted`] if the part has no journal page of a volume; then nothing is
/// written. Errors of the part.
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
    let unstable = ftl.enter_blocks(&scan, tag.sequence);
    ftl.journal.next_block = ftl.take_journal_block()?;
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
    ftl.complete_first_mount(false)?;
    // The last programmed page of a block may be unstable.
    unstable.into_iter().for_each(|block| ftl.refresh(block));
    Ok((ftl, report))
}

impl<N: Nand> Ftl<N> {
    /// Enters every block: data if it has valid pages, pending if it has structures, free
    /// otherwise. Returns the data blocks that are newer than the journal.
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
        let mut unstable = Vec::new();
        for (block, (seen, valid)) in (0..).zip(scan.blocks.iter().zip(valid)) {
            let state = if seen.bad {
                // Valid pages in a block to be retired stay readable.
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
                    unstable.push(block);
                }
                BlockState::Data if seen.newest > journal => unstable.push(block),
                _ => {}
            }
        }
        // With too few free blocks, the oldest structures are freed: newer ones hold the same
        // information.
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
        unstable
    }
}
