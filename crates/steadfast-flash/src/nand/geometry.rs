//! Sizes and rules of a part, and its addresses.

use core::fmt;

/// Number of an erase block, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u32);

/// Number of a page, counted through all blocks: `block * pages_per_block + page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress(pub u32);

/// Strength of the error-correcting code inside a [`Nand`](super::Nand).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ecc {
    /// Correctable bits of a codeword; 0: no code, bytes are returned as read.
    pub bits: u16,
    /// Data bytes in a codeword.
    pub codeword: u16,
}

impl Ecc {
    /// No code: a raw part.
    pub const NONE: Ecc = Ecc { bits: 0, codeword: 512 };
}

/// Which pages share cells. An interrupted program of one page can damage the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// One bit per cell: no two pages share cells.
    None,
    /// Two bits per cell, pages paired 0/3, 1/4, 2/5, 6/9, 7/10, 8/11 and so on.
    Distance3,
}

impl Pairing {
    /// The earlier page of the same block that an interrupted program of `page` can damage.
    #[must_use]
    pub fn damaged_by(self, page: u32) -> Option<u32> {
        match self {
            Pairing::None => None,
            Pairing::Distance3 => (page % 6 >= 3).then(|| page - 3),
        }
    }

    /// Size of the page groups, in order of programming, that share no cells with later pages.
    #[must_use]
    pub fn group(self) -> u32 {
        match self {
            Pairing::None => 1,
            Pairing::Distance3 => 6,
        }
    }

    /// The largest distance between a page and the earlier page that it can damage.
    #[must_use]
    pub fn reach(self) -> u32 {
        match self {
            Pairing::None => 0,
            Pairing::Distance3 => 3,
        }
    }
}

/// Sizes and rules of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NandGeometry {
    /// Data bytes of a page: a power of two, 512 to 16,384.
    pub page_size: u32,
    /// OOB bytes of a page that the caller may use (see [`Nand`](super::Nand)).
    pub oob_size: u32,
    /// Pages of an erase block: 4 to 512.
    pub pages_per_block: u32,
    /// Erase blocks, bad ones included: 1 to 65,536.
    pub blocks: u32,
    /// How often a page may be programmed between two erasures (each part of it once); at least 1.
    pub partial_programs: u32,
    /// Whether the pages of a block must be programmed in ascending order.
    pub in_order: bool,
    /// The code that already corrects the data of [`Nand::read`](super::Nand::read).
    pub ecc: Ecc,
    /// Which pages share cells.
    pub pairing: Pairing,
    /// Rated erasures of a block.
    pub cycles: u32,
    /// Most blocks that are bad from the factory or go bad within the rated life.
    pub bad_max: u32,
}

impl NandGeometry {
    /// Most erase blocks.
    pub const BLOCKS_MAX: u32 = 65_536;
    /// Most pages of an erase block.
    pub const PAGES_PER_BLOCK_MAX: u32 = 512;

    /// The geometry, if it is valid.
    ///
    /// # Errors
    /// [`NandGeometryError`] names what is out of range.
    pub fn checked(self) -> Result<NandGeometry, NandGeometryError> {
        if !self.page_size.is_power_of_two() || !(512..=16_384).contains(&self.page_size) {
            return Err(NandGeometryError::PageSize(self.page_size));
        }
        if !(4..=Self::PAGES_PER_BLOCK_MAX).contains(&self.pages_per_block) {
            return Err(NandGeometryError::PagesPerBlock(self.pages_per_block));
        }
        if self.blocks == 0 || self.blocks > Self::BLOCKS_MAX {
            return Err(NandGeometryError::Blocks(self.blocks));
        }
        if self.partial_programs == 0 {
            return Err(NandGeometryError::PartialPrograms);
        }
        Ok(self)
    }

    /// Pages of the whole part.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.blocks * self.pages_per_block
    }

    /// Data bytes of an erase block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.page_size) * u64::from(self.pages_per_block)
    }

    /// Data bytes of the whole part, bad blocks included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block_bytes() * u64::from(self.blocks)
    }

    /// The address of page `page` of `block`.
    #[must_use]
    pub fn page(&self, block: BlockNumber, page: u32) -> PageAddress {
        PageAddress(block.0 * self.pages_per_block + page)
    }

    /// The block of a page.
    #[must_use]
    pub fn block_of(&self, page: PageAddress) -> BlockNumber {
        BlockNumber(page.0 / self.pages_per_block)
    }

    /// The number of a page within its block.
    #[must_use]
    pub fn page_in_block(&self, page: PageAddress) -> u32 {
        page.0 % self.pages_per_block
    }
}

/// An invalid geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NandGeometryError {
    /// Not a power of two from 512 to 16,384.
    PageSize(u32),
    /// Not from 4 to 512.
    PagesPerBlock(u32),
    /// Not from 1 to 65,536.
    Blocks(u32),
    /// A page must be programmable at least once.
    PartialPrograms,
}

impl fmt::Display for NandGeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NandGeometryError::PageSize(size) => {
                write!(f, "page size {size} is not a power of two from 512 to 16384")
            }
            NandGeometryError::PagesPerBlock(pages) => {
                write!(f, "{pages} pages in an erase block are not from 4 to 512")
            }
            NandGeometryError::Blocks(blocks) => {
                write!(f, "{blocks} erase blocks are not from 1 to 65536")
            }
            NandGeometryError::PartialPrograms => {
                f.write_str("a page that may be programmed 0 times")
            }
        }
    }
}

impl core::error::Error for NandGeometryError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;

    #[test]
    fn pairs_follow_the_data_sheet() {
        let pairs: [(u32, Option<u32>); 10] = [
            (0, None),
            (1, None),
            (2, None),
            (3, Some(0)),
            (4, Some(1)),
            (5, Some(2)),
            (6, None),
            (9, Some(6)),
            (10, Some(7)),
            (11, Some(8)),
        ];
        for (page, partner) in pairs {
            assert_eq!(Pairing::Distance3.damaged_by(page), partner, "page {page}");
            assert_eq!(Pairing::None.damaged_by(page), None);
        }
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let good = Part::SLC_1GBIT.geometry;
        assert!(good.checked().is_ok());
        assert!(NandGeometry { page_size: 3000, ..good }.checked().is_err());
        assert!(NandGeometry { pages_per_block: 2, ..good }.checked().is_err());
        let largest = NandGeometry { blocks: 65_536, pages_per_block: 512, ..good };
        assert_eq!(largest.checked().map(|geometry| geometry.pages()), Ok(1 << 25));
        let larger = NandGeometry { pages_per_block: 513, ..largest }.checked();
        assert_eq!(larger, Err(NandGeometryError::PagesPerBlock(513)));
        assert!(NandGeometry { blocks: 65_537, ..good }.checked().is_err());
        assert!(NandGeometry { partial_programs: 0, ..good }.checked().is_err());
        assert_eq!(good.page(BlockNumber(3), 5), PageAddress(197));
        assert_eq!(
            (good.block_of(PageAddress(197)), good.page_in_block(PageAddress(197))),
            (BlockNumber(3), 5)
        );
    }
}
