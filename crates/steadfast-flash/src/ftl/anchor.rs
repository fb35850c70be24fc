//! The layout of an anchor: the position of the journal, and everything needed to read it. All
//! integers are little-endian.
//!
//! ```text
//! magic "SFAN" | version u16 | flags u16 | volume u64 | block u32 | chain u32 | blocks u32
//! | pages_per_block u32 | page_size u32 | user_pages u32 | first u64 | skipped n u16, blocks u32…
//! ```
//! The only flag, bit 0: block numbers of the volume count only good blocks, according to the marks
//! on the part.

use alloc::vec::Vec;

use super::codec::{VERSION, VERSION_LEAST, put_list};
use super::error::{FlashError, Result};
use super::fields::Reader;
use crate::nand::NandGeometry;

const ANCHOR: [u8; 4] = *b"SFAN";
const FLAG_IN_GOOD_BLOCKS: u16 = 1;

/// Sizes that a volume was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Erase blocks.
    pub blocks: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Data bytes of a page.
    pub page_size: u32,
}

impl Shape {
    /// The shape of a part.
    #[must_use]
    pub fn of(geometry: &NandGeometry) -> Shape {
        let NandGeometry { blocks, pages_per_block, page_size, .. } = *geometry;
        Shape { blocks, pages_per_block, page_size }
    }
}

/// Contents of an anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Number of the volume.
    pub volume: u64,
    /// A block of the journal.
    pub block: u32,
    /// Its position in the chain.
    pub chain: u32,
    /// Sequence number of its first page.
    pub first: u64,
    /// Sizes that the volume was made for.
    pub shape: Shape,
    /// Number of logical pages.
    pub user_pages: u32,
    /// Block numbers count the blocks without a bad-block mark: the volume is an image that was not
    /// mounted on a part yet.
    pub in_good_blocks: bool,
    /// Otherwise: the blocks of the part that block numbers skip, in ascending order.
    pub skipped: Vec<u32>,
}

impl Anchor {
    /// Encodes the page.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = ANCHOR.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let flags = if self.in_good_blocks { FLAG_IN_GOOD_BLOCKS } else { 0 };
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&self.volume.to_le_bytes());
        let Shape { blocks, pages_per_block, page_size } = self.shape;
        for word in [self.block, self.chain, blocks, pages_per_block, page_size, self.user_pages] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.first.to_le_bytes());
        put_list(&mut bytes, &self.skipped);
        bytes
    }

    /// Decodes a page; `None` if it is not an anchor.
    ///
    /// # Errors
    /// The anchor has an unsupported version or was made for another geometry.
    pub fn decode(bytes: &[u8], geometry: &NandGeometry) -> Result<Option<Anchor>> {
        let Some((version, anchor)) = Anchor::parse(bytes) else { return Ok(None) };
        if !(VERSION_LEAST..=VERSION).contains(&version) {
            return Err(FlashError::Version(version));
        }
        let Shape { blocks, pages_per_block, page_size } = anchor.shape;
        if anchor.shape != Shape::of(geometry) {
            return Err(FlashError::OtherGeometry { blocks, pages_per_block, page_size });
        }
        let rising = anchor.skipped.windows(2).all(|pair| pair.first() < pair.last());
        let within = anchor.skipped.iter().all(|block| *block < blocks);
        Ok(Some(anchor).filter(|anchor| anchor.block < blocks && rising && within))
    }

    /// The version, and the contents if this version is supported.
    fn parse(bytes: &[u8]) -> Option<(u16, Anchor)> {
        let mut reader = Reader(bytes);
        if reader.take(4)? != ANCHOR {
            return None;
        }
        let word = reader.u32()?;
        let (version, flags) = (word as u16, (word >> 16) as u16);
        let (volume, block, chain) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (blocks, pages_per_block, page_size) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let shape = Shape { blocks, pages_per_block, page_size };
        let user_pages = reader.u32()?;
        let first = reader.u64()?;
        let in_good_blocks = flags & FLAG_IN_GOOD_BLOCKS != 0;
        let skipped = reader.list()?;
        Some((
            version,
            Anchor { volume, block, chain, first, shape, user_pages, in_good_blocks, skipped },
        ))
    }
}

/// The sizes that a volume was made for, from the data of a page that may be one of its anchors.
/// The page is not verified: this is a hint for tools.
#[must_use]
pub fn shape(page: &[u8]) -> Option<Shape> {
    Anchor::parse(page).map(|(_, anchor)| anchor.shape)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::part::Part;

    #[test]
    fn anchors_round_trip_and_garbage_is_refused() {
        let geometry = Part::SLC_1GBIT.geometry;
        let anchor = Anchor {
            volume: 9,
            block: 4,
            chain: 7,
            first: 1 << 40,
            shape: Shape::of(&geometry),
            user_pages: 3,
            in_good_blocks: false,
            skipped: vec![0, 5, 1023],
        };
        let bytes = anchor.encode();
        assert_eq!(Anchor::decode(&bytes, &geometry), Ok(Some(anchor.clone())));
        assert_eq!(
            shape(&bytes),
            Some(Shape { blocks: 1024, pages_per_block: 64, page_size: 2048 })
        );
        for length in 0..bytes.len() {
            assert_eq!(Anchor::decode(&bytes[..length], &geometry), Ok(None));
        }
        assert!(Anchor::decode(&bytes, &Part::SLC_4K.geometry).is_err());
        let fresh = Anchor { in_good_blocks: true, skipped: vec![], ..anchor.clone() };
        assert_eq!(Anchor::decode(&fresh.encode(), &geometry), Ok(Some(fresh)));
        for skipped in [vec![5, 5], vec![7, 3], vec![1024]] {
            let wrong = Anchor { skipped, ..anchor.clone() };
            assert_eq!(Anchor::decode(&wrong.encode(), &geometry), Ok(None));
        }
    }
}
