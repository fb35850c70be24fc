//! What a NAND part can do: the trait that drivers implement.
//!
//! The rules of NAND, which a driver passes on and a caller keeps:
//!
//! - A *page* is the unit of reading and programming, an *erase block* the unit of erasing.
//!   Programming only works on an erased page (all bits one); the pages of a block are programmed
//!   in rising order where [`NandGeometry::in_order`] says so, each at most
//!   [`NandGeometry::partial_programs`] times between two erasures.
//! - Each page has *out-of-band* bytes (OOB) that are programmed and read together with its data.
//!   The trait shows the bytes that are free for the caller: without the bad-block mark and without
//!   the parity of an error-correcting code. Whoever adds a code in software is a [`Nand`] over a
//!   [`Nand`] and shows fewer bytes above than below.
//! - A block may be bad from the factory or become so. The mark is found and set through
//!   [`Nand::is_bad`] and [`Nand::mark_bad`] only.
//! - An operation that a power cut interrupts leaves anything: a page that reads as erased, as old,
//!   as new, or differently each time; damage to a page programmed earlier that shares its cells
//!   ([`Pairing`]); a block that looks erased and is not.
//!
//! Methods take `&mut self`: a part does one thing at a time, and who shares it brings the lock.

mod error;
mod geometry;
mod partition;

pub use error::{NandError, NandOperation};
pub use geometry::{BlockNumber, Ecc, NandGeometry, NandGeometryError, PageAddress, Pairing};
pub use partition::{OutsidePart, Partition};

/// What error correction says of a page that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EccStatus {
    /// No flipped bit was seen (or there is no code: [`Ecc::NONE`]).
    Clean,
    /// Flipped bits were corrected: this many in the worst codeword. The data is right.
    Corrected(u16),
    /// At least one codeword has more flipped bits than the code corrects. The bytes are given as
    /// they were read. A page that was never programmed may report this too; whether it is erased
    /// is for the caller to see from the bytes.
    Uncorrectable,
}

impl EccStatus {
    /// The worse of two: that of a page which consists of two parts.
    #[must_use]
    pub fn worst(self, other: EccStatus) -> EccStatus {
        match (self, other) {
            (EccStatus::Uncorrectable, _) | (_, EccStatus::Uncorrectable) => {
                EccStatus::Uncorrectable
            }
            _ => match self.bits().max(other.bits()) {
                0 => EccStatus::Clean,
                bits => EccStatus::Corrected(bits),
            },
        }
    }

    /// Corrected bits in the worst codeword.
    #[must_use]
    pub fn bits(self) -> u16 {
        match self {
            EccStatus::Corrected(bits) => bits,
            EccStatus::Clean | EccStatus::Uncorrectable => 0,
        }
    }
}

/// A NAND part or a partition of one.
///
/// Addresses outside the geometry, and buffers whose length is not that of the page or of the
/// visible OOB, are answered with [`NandError`] of [`NandOperation`] and `os_error` 0, never with
/// damage. OOB buffers may be shorter than [`NandGeometry::oob_size`], also empty: then only the
/// first bytes are read, or the rest is left erased.
pub trait Nand: Send {
    /// Sizes and rules. Do not change while the part is open.
    fn geometry(&self) -> NandGeometry;

    /// Reads one page into `data` (exactly a page, or empty for the OOB alone) and its visible OOB
    /// into `oob`.
    ///
    /// # Errors
    /// The part or the way to it failed. Flipped bits are no error but an [`EccStatus`].
    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError>;

    /// Programs one page and its visible OOB; durable when it returns.
    ///
    /// # Errors
    /// [`NandError::Failed`]: the part reports that the program failed; the block is to be retired,
    /// its other pages can still be read.
    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError>;

    /// Erases one block; durable when it returns.
    ///
    /// # Errors
    /// [`NandError::Failed`]: the part reports that the erasure failed; the block is to be retired.
    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError>;

    /// Whether the block carries a bad-block mark, from the factory or by
    /// [`mark_bad`](Self::mark_bad).
    ///
    /// # Errors
    /// The part or the way to it failed.
    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError>;

    /// Marks the block bad for good. Best effort: a block that is worn out may not take the mark,
    /// so the bad-block table is what counts.
    ///
    /// # Errors
    /// The mark could not be set.
    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError>;
}

impl<N: Nand + ?Sized> Nand for &mut N {
    fn geometry(&self) -> NandGeometry {
        (**self).geometry()
    }
    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        (**self).read(page, data, oob)
    }
    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        (**self).program(page, data, oob)
    }
    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        (**self).erase(block)
    }
    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        (**self).is_bad(block)
    }
    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        (**self).mark_bad(block)
    }
}

impl<N: Nand + ?Sized> Nand for alloc::boxed::Box<N> {
    fn geometry(&self) -> NandGeometry {
        (**self).geometry()
    }
    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        (**self).read(page, data, oob)
    }
    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        (**self).program(page, data, oob)
    }
    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        (**self).erase(block)
    }
    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        (**self).is_bad(block)
    }
    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        (**self).mark_bad(block)
    }
}
