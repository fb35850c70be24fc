//! Allocation of the blocks of a part.

use super::error::{FlashError, Result};
use super::tag::TAG_SIZE;
use crate::nand::{NandGeometry, Pairing};

/// Most ring slots that are read one by one.
pub(super) const SLOTS_IN_TURN: u32 = 8;

/// Numbers derived from the geometry alone, for a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Logical pages that the medium offers.
    pub user_pages: u32,
    /// Most logical pages of a volume that another version of this program made.
    pub user_pages_max: u32,
    /// Number of map pages.
    pub map_pages: u32,
    /// Number of directory pages.
    pub directory_pages: u32,
    /// Number of block table pages.
    pub table_pages: u32,
    /// Words of 4 bytes in a page.
    pub words: u32,
    /// Erase blocks of the anchor ring at the start of the part.
    pub ring: u32,
    /// Free blocks below which the host waits for garbage collection.
    pub reserve: u32,
}

/// Journal blocks between two anchors.
pub const BLOCKS_PER_ANCHOR: u32 = 1;
/// Fewest erase blocks of a part.
const BLOCKS_MIN: u32 = 24;

impl Layout {
    /// The layout of a part.
    ///
    /// # Errors
    /// The geometry is invalid, the part is too small, or it offers too few OOB bytes.
    pub fn new(geometry: &NandGeometry) -> Result<Layout> {
        let geometry = geometry.checked().map_err(FlashError::Geometry)?;
        if geometry.oob_size < TAG_SIZE as u32 {
            return Err(FlashError::OobTooSmall(geometry.oob_size));
        }
        let blocks = geometry.blocks;
        if blocks < BLOCKS_MIN {
            return Err(FlashError::TooSmall { blocks, needed: BLOCKS_MIN });
        }
        let words = geometry.page_size / 4;
        let table_pages = blocks.div_ceil(words);
        let map_pages = geometry.pages().div_ceil(words);
        let directory_pages = map_pages.div_ceil(words);
        // With paired pages, structures use only the pages that no other program can damage: half
        // of them.
        let safe = if geometry.pairing == Pairing::None { 1 } else { 2 };
        let structures = map_pages + directory_pages + table_pages + 16;
        // An anchor follows every 64th journal page at 64 pages a block. So a ring block is erased
        // once for 64 anchors in each of its blocks, and another block once for 64 programs. With
        // this size the ring wears no faster than other blocks, from four programs per journal page
        // on.
        let ring = (blocks / 256).max(4);
        // The current block, the next one, and those that wait to be left.
        let journal = 4;
        // Map and table, and their second copies.
        let map = 2 * (structures * safe).div_ceil(geometry.pages_per_block) + 2;
        let reserve = 12;
        // Each additional spare block saves moves: at 90 % full of 92 %, half a percent of all
        // programs.
        let spare = geometry.bad_max + blocks / 32;
        let taken = ring + journal + map + reserve + spare;
        let user = blocks.checked_sub(taken).filter(|user| *user > 0);
        let Some(user) = user else {
            return Err(FlashError::TooSmall { blocks, needed: taken + 1 });
        };
        let user_pages = user * geometry.pages_per_block;
        let map_pages = user_pages.div_ceil(words);
        let directory_pages = map_pages.div_ceil(words);
        let user_pages_max = (user + blocks / 32) * geometry.pages_per_block;
        Ok(Layout {
            user_pages,
            user_pages_max,
            map_pages,
            directory_pages,
            table_pages,
            words,
            ring,
            reserve,
        })
    }

    /// Whether the ring is so long that a mount reads several more pages to find the newest anchor.
    /// Then there are fewer spill pages, and fewer host pages without a journal page.
    #[must_use]
    pub fn has_long_ring(&self) -> bool {
        self.ring > SLOTS_IN_TURN
    }

    /// The layout of a volume on the same part with this many logical pages; `None` if that is
    /// impossible.
    #[must_use]
    pub fn with_user_pages(self, user_pages: u32) -> Option<Layout> {
        let map_pages = user_pages.div_ceil(self.words);
        let directory_pages = map_pages.div_ceil(self.words);
        let possible = (1..=self.user_pages_max).contains(&user_pages);
        possible.then_some(Layout { user_pages, map_pages, directory_pages, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;

    #[test]
    fn at_least_92_percent_can_be_used() {
        for part in Part::ALL {
            let layout = Layout::new(&part.geometry).unwrap();
            let percent = 100.0 * f64::from(layout.user_pages) / f64::from(part.geometry.pages());
            assert!(percent >= 92.0, "{}: {percent}", part.name);
        }
        let large = Part::SLC_1GBIT.with_blocks(65_536).geometry;
        assert!(Layout::new(&large).unwrap().user_pages > large.pages() / 100 * 92);
        assert!(Layout::new(&Part::SLC_1GBIT.with_blocks(20).geometry).is_err());
    }
}
