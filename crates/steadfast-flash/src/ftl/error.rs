//! Errors of the translation layer.

use core::fmt;

use crate::nand::{NandError, NandGeometryError};

/// Why an operation of the translation layer failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FlashError {
    /// The part or the access to it failed.
    Nand(NandError),
    /// The geometry is invalid.
    Geometry(NandGeometryError),
    /// The part has too few good blocks.
    TooSmall {
        /// Good erase blocks.
        blocks: u32,
        /// Erase blocks needed.
        needed: u32,
    },
    /// The part offers fewer OOB bytes than a tag needs.
    OobTooSmall(u32),
    /// No anchor of this translation layer was found: the part is not formatted, or holds a foreign
    /// image.
    NotFormatted,
    /// The part is formatted for another geometry.
    OtherGeometry {
        /// Erase blocks.
        blocks: u32,
        /// Pages of an erase block.
        pages_per_block: u32,
        /// Bytes of a page.
        page_size: u32,
    },
    /// A structure has an unsupported version.
    Version(u16),
    /// A structure of the translation layer at this page is unreadable or inconsistent.
    Damaged {
        /// Address of the page.
        page: u32,
        /// The expected structure.
        what: &'static str,
    },
    /// The data of this logical page is unreadable: more flipped bits than the code corrects.
    Uncorrectable {
        /// Number of the logical page.
        page: u32,
    },
    /// No spare erase block is left: the part is worn out. All data is still readable.
    WornOut,
    /// After an earlier failure the state in memory is older than the one on the part: mount again.
    /// All data is still readable.
    ReadOnly,
}

impl From<NandError> for FlashError {
    fn from(error: NandError) -> FlashError {
        FlashError::Nand(error)
    }
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashError::Nand(error) => error.fmt(f),
            FlashError::Geometry(error) => error.fmt(f),
            FlashError::TooSmall { blocks, needed } => {
                write!(f, "the flash has {blocks} good erase blocks; at least {needed} are needed")
            }
            FlashError::OobTooSmall(bytes) => {
                write!(f, "the flash has {bytes} free out-of-band bytes a page; 16 are needed")
            }
            FlashError::NotFormatted => {
                f.write_str("no flash volume found; make one with `steadfast flash format`")
            }
            FlashError::OtherGeometry { blocks, pages_per_block, page_size } => write!(
                f,
                "the flash volume was made for {blocks} erase blocks of {pages_per_block} pages of {page_size} bytes"
            ),
            FlashError::Version(version) => {
                write!(
                    f,
                    "the flash volume has version {version} and this program knows version 3; format it anew or use the program that made it"
                )
            }
            FlashError::Damaged { page, what } => write!(f, "flash page {page} is damaged: {what}"),
            FlashError::Uncorrectable { page } => {
                write!(f, "logical page {page} has more flipped bits than can be corrected")
            }
            FlashError::WornOut => f.write_str(
                "no spare erase block is left: the flash is worn out and can only be read",
            ),
            FlashError::ReadOnly => {
                f.write_str("the flash failed earlier and can only be read; mount it again")
            }
        }
    }
}

impl core::error::Error for FlashError {}

/// Result of the translation layer.
pub type Result<T> = core::result::Result<T, FlashError>;
