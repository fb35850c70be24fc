//! Formatting: makes an empty volume on a part.

use alloc::vec;
use alloc::vec::Vec;

use super::codec::UNMAPPED;
use super::error::{FlashError, Result};
use super::layout::Layout;
use super::state::Ftl;
use super::table::{BlockInfo, BlockState};
use crate::nand::{BlockNumber, Nand};

/// Makes an empty volume with this number, which should be random. Existing data is lost. Blocks
/// with a bad-block mark are not touched. Erase counts of an existing volume are kept.
///
/// # Errors
/// The part is too small or has too many bad blocks, or an error of the part.
pub fn format<N: Nand>(nand: N, volume: u64) -> Result<Ftl<N>> {
    make(nand, volume, false)
}

/// Makes an empty volume for an image. Device programmers put such an image into the good blocks of
/// parts, in order. So the last blocks stay empty: as many as may be bad. `nand` has no bad blocks.
/// The first mount of a programmed part finds the positions of the blocks.
///
/// # Errors
/// As [`format()`].
pub fn format_image<N: Nand>(nand: N, volume: u64) -> Result<Ftl<N>> {
    make(nand, volume, true)
}

fn make<N: Nand>(nand: N, volume: u64, image: bool) -> Result<Ftl<N>> {
    let layout = Layout::new(&nand.geometry())?;
    make_with(nand, volume, image, layout)
}

pub(super) fn make_with<N: Nand>(
    mut nand: N,
    volume: u64,
    image: bool,
    layout: Layout,
) -> Result<Ftl<N>> {
    let (before, newest) = earlier(&mut nand);
    let mut ftl = Ftl::empty(nand, layout, volume);
    ftl.born = match newest {
        Some(newest) => newest + GENERATION,
        None => ftl.newest_tag()? + GENERATION,
    };
    ftl.sequence = ftl.born;
    ftl.in_good_blocks = image;
    let held_back = if image { ftl.geometry.bad_max } else { 0 };
    let mut bad = 0;
    for block in 0..ftl.geometry.blocks {
        let is_bad = ftl.nand.is_bad(BlockNumber(block))?;
        bad += u32::from(is_bad);
        let erases = before.get(block as usize).copied().unwrap_or(0);
        let state = match (is_bad, block < layout.ring) {
            (true, _) => BlockState::Bad,
            _ if block >= ftl.geometry.blocks - held_back => BlockState::Bad,
            (false, true) => BlockState::Journal,
            (false, false) => BlockState::Free,
        };
        ftl.table.set_quietly(block, BlockInfo { state, valid: 0, erases });
        if state == BlockState::Free {
            ftl.free.insert((erases, block));
        }
    }
    if bad > ftl.geometry.bad_max {
        let blocks = ftl.geometry.blocks - bad;
        return Err(FlashError::TooSmall {
            blocks,
            needed: ftl.geometry.blocks - ftl.geometry.bad_max,
        });
    }
    // Without its anchors an earlier volume is not found.
    let mut first = None;
    for slot in 0..layout.ring {
        let usable = ftl.block(slot)?.state == BlockState::Journal;
        if usable && ftl.erase(slot, BlockState::Journal)? && first.is_none() {
            first = Some(slot);
        }
    }
    let Some(slot) = first else { return Err(FlashError::WornOut) };
    ftl.journal.ring = (slot, 0);
    ftl.journal.next_block = ftl.take_journal_block()?;
    ftl.table.dirty.extend((0..layout.table_pages).map(|page| page * layout.words));
    ftl.write_structures()?;
    debug_assert!(ftl.table.pages.iter().all(|page| *page != UNMAPPED));
    ftl.begin()?;
    Ok(ftl)
}

/// More than the difference of sequence numbers between the first and the last page of a block.
const GENERATION: u64 = 1 << 24;

/// The erase counts of an existing volume, by blocks of the part (empty without a volume), and its
/// newest sequence number.
fn earlier<N: Nand>(nand: &mut N) -> (Vec<u32>, Option<u64>) {
    let Ok(mut old) = Ftl::mount(nand, true) else { return (Vec::new(), None) };
    let blocks = old.geometry.blocks;
    let mut erases = vec![0; blocks as usize];
    for block in 0..blocks {
        let counted = old.block(block).map_or(0, |info| info.erases);
        if let Some(erases) = erases.get_mut(old.nand.place(block) as usize) {
            *erases = counted;
        }
    }
    (erases, Some(old.sequence))
}

impl<N: Nand> Ftl<N> {
    /// The newest sequence number in the first pages of blocks, for an earlier volume that does not
    /// open.
    fn newest_tag(&mut self) -> Result<u64> {
        let mut data = vec![0; self.geometry.page_size as usize];
        let mut newest = 1;
        for block in 0..self.geometry.blocks {
            if let Some(tag) = self.read_tagged(self.page(block, 0).0, &mut data)? {
                newest = newest.max(tag.sequence);
            }
        }
        Ok(newest)
    }
}
