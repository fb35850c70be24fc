//! Serial NOR flash: the trait that drivers implement, and NOR as a NAND part.
//!
//! The rules of NOR, which a driver exposes:
//!
//! - An *erase sector* becomes all ones. A program changes ones to zeros, in at most
//!   [`NorGeometry::program_size`] bytes that do not cross a multiple of it.
//! - Every byte can be read alone. There are no out-of-band bytes, no bad blocks from the factory,
//!   and no error-correcting code.
//! - A program that a power cut interrupts leaves any of its bits changed, and some that read
//!   differently each time. An interrupted erasure leaves old bytes, zeros and ones, and bits that
//!   only look erased.
//!
//! [`NorNand`] puts pages with out-of-band bytes into sectors. So the translation layer
//! ([`ftl`](crate::ftl)) serves NOR, too, with the same proof. With the feature `embedded-storage`
//! a driver of that crate is a part, through `EmbeddedNor`.

#[cfg(feature = "embedded-storage")]
mod embedded;
mod pages;

#[cfg(feature = "embedded-storage")]
pub use embedded::{DriverMisfit, EmbeddedNor};
pub use pages::NorNand;

use core::fmt;

use crate::nand::{BlockNumber, NandError};

/// Sizes of a NOR part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NorGeometry {
    /// Bytes of an erase sector: a power of two, 4,096 to 65,536.
    pub sector_size: u32,
    /// Erase sectors: at most 65,536.
    pub sectors: u32,
    /// Most bytes of one program: a power of two, 64 to the size of a sector.
    pub program_size: u32,
    /// Rated erasures of a sector.
    pub cycles: u32,
}

impl NorGeometry {
    /// A part of this many bytes with sectors of 4 KiB, programs of 256 bytes and 100,000 cycles,
    /// as most serial NOR parts have.
    #[must_use]
    pub fn serial(bytes: u32) -> NorGeometry {
        NorGeometry { sector_size: 4096, sectors: bytes / 4096, program_size: 256, cycles: 100_000 }
    }
}

/// Why pages do not fit into the sectors of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum NorMisfit {
    /// Not a power of two from 4,096 to 65,536.
    SectorSize(u32),
    /// Not from 1 to 65,536.
    Sectors(u32),
    /// Not a power of two from 64 to the size of a sector.
    ProgramSize(u32),
    /// Not a power of two from 512 to an eighth of a sector.
    PageSize(u32),
}

impl fmt::Display for NorMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NorMisfit::SectorSize(size) => {
                write!(f, "sector size {size} is not a power of two from 4096 to 65536")
            }
            NorMisfit::Sectors(count) => write!(f, "{count} sectors are not from 1 to 65536"),
            NorMisfit::ProgramSize(size) => {
                write!(f, "program size {size} is not a power of two from 64 to a sector")
            }
            NorMisfit::PageSize(size) => {
                write!(
                    f,
                    "page size {size} is not a power of two from 512 to an eighth of a sector"
                )
            }
        }
    }
}

impl core::error::Error for NorMisfit {}

/// A NOR part.
///
/// The caller keeps requests inside the part, and programs inside [`NorGeometry::program_size`].
/// The methods take `&mut self`: a part performs one operation at a time.
pub trait Nor: Send {
    /// Sizes. They do not change while the part is open.
    fn geometry(&self) -> NorGeometry;

    /// Reads bytes.
    ///
    /// # Errors
    /// The access to the part failed.
    fn read(&mut self, address: u32, buffer: &mut [u8]) -> Result<(), NandError>;

    /// Programs bytes; durable when it returns. Bits that are zero stay zero.
    ///
    /// # Errors
    /// [`NandError::Failed`] if the part reports a failed program. Parts without such a report may
    /// return success: [`NorNand`] reads what it has programmed.
    fn program(&mut self, address: u32, data: &[u8]) -> Result<(), NandError>;

    /// Erases a sector; durable when it returns.
    ///
    /// # Errors
    /// As [`program`](Self::program).
    fn erase(&mut self, sector: BlockNumber) -> Result<(), NandError>;
}

impl<D: Nor + ?Sized> Nor for &mut D {
    fn geometry(&self) -> NorGeometry {
        (**self).geometry()
    }
    fn read(&mut self, address: u32, buffer: &mut [u8]) -> Result<(), NandError> {
        (**self).read(address, buffer)
    }
    fn program(&mut self, address: u32, data: &[u8]) -> Result<(), NandError> {
        (**self).program(address, data)
    }
    fn erase(&mut self, sector: BlockNumber) -> Result<(), NandError> {
        (**self).erase(sector)
    }
}
