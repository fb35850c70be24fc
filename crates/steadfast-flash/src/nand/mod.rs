//! The operations of a NAND part: the trait that drivers implement.
//!
//! The rules of NAND, which a driver exposes and a caller must keep:
//!
//! - A *page* is the unit of reading and programming, an *erase block* the unit of erasing. Only an
//!   erased page (all bits one) can be programmed, at most [`NandGeometry::partial_programs`] times
//!   between two erasures. If [`NandGeometry::in_order`] is set, the pages of a block are
//!   programmed in ascending order.
//! - Each page has *out-of-band* bytes (OOB) that are programmed and read together with its data.
//!   The trait shows only the bytes that are free for the caller: without the bad-block mark and
//!   the parity of an error-correcting code. A software code is a [`Nand`] over another [`Nand`]
//!   and shows fewer bytes than the lower one.
//! - A block may be bad from the factory or go bad. The mark is read and set only through
//!   [`Nand::is_bad`] and [`Nand::mark_bad`].
//! - An operation that a power cut interrupts has any outcome. A page may read as erased, as old,
//!   as new, or differently each time. An earlier page that shares its cells may be damaged
//!   ([`Pairing`]). A block may look erased and not be erased.
//!
//! Methods take `&mut self`: a part performs one operation at a time, and a caller that shares it
//! adds a lock.

mod error;
mod geometry;
mod partition;

pub use error::{NandError, NandOperation};
pub use geometry::{BlockNumber, Ecc, NandGeometry, NandGeometryError, PageAddress, Pairing};
pub use partition::{OutsidePart, Partition};

/// Result of error correction for a page read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EccStatus {
    /// No flipped bit was found (or there is no code: [`Ecc::NONE`]).
    Clean,
    /// Flipped bits were corrected: this many in the worst codeword. The data is correct.
    Corrected(u16),
    /// At least one codeword has more flipped bits than the code corrects. The bytes are returned
    /// as read. A page that was never programmed may report this too; the caller must check its
    /// bytes for that.
    Uncorrectable,
}

impl EccStatus {
    /// The worse of two results, for a page that consists of two parts.
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
/// A request with an address outside the geometry returns a [`NandError`] with its
/// [`NandOperation`] and `os_error` 0. So does a buffer with a wrong length for the page or the
/// visible OOB. Neither causes damage. OOB buffers may be shorter than
/// [`NandGeometry::oob_size`], even empty. Then only the first bytes are read, or the remaining
/// bytes stay erased.
pub trait Nand: Send {
    /// Sizes and rules. They do not change while the part is open.
    fn geometry(&self) -> NandGeometry;

    /// Reads one page into `data` (exactly a page, or empty for the OOB alone) and its visible OOB
    /// into `oob`.
    ///
    /// # Errors
    /// The part or the access to it failed. Flipped bits are not an error but an [`EccStatus`].
    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError>;

    /// Programs one page and its visible OOB; durable when it returns.
    ///
    /// # Errors
    /// [`NandError::Failed`]: the part reports a failed program. The block must be retired; its
    /// other pages remain readable.
    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError>;

    /// Erases one block; durable when it returns.
    ///
    /// # Errors
    /// [`NandError::Failed`]: the part reports a failed erasure. The block must be retired.
    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError>;

    /// Whether the block has a bad-block mark, from the factory or from
    /// [`mark_bad`](Self::mark_bad).
    ///
    /// # Errors
    /// The part or the access to it failed.
    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError>;

    /// Marks the block bad permanently. This is best effort: a worn-out block may not take the
    /// mark, so the bad-block table is authoritative.
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
