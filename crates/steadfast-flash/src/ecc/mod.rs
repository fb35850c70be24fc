//! Error correction in software, for parts and controllers without it.
//!
//! A [`Code`] protects a codeword: a step of a page's data, and optionally a few bytes of its
//! out-of-band area. Its parity bytes are stored out of band. Data is corrected in place; more
//! flips than the code corrects are [`Uncorrectable`].
//!
//! [`EccNand`] adds a code to a raw part, which then behaves like a part with its own code.
//!
//! - Erased bytes have an erased parity. So an erased page reads without an error, and a few flips
//!   in it are corrected as usual. With possibly more flips, [`flips_if_erased`] tells an erased
//!   page from a written one.
//! - No allocation, no unwinding. The constant tables take about 40 KiB; a program contains only
//!   those of the codes that it uses.
//! - Parities are those of Linux' software codes (their usual byte order for Hamming, a field of 13
//!   bits and left-aligned for BCH).
//!
//! Speed: `cargo run --release -p steadfast-flash --example ecc_speed`.

mod bch;
mod field;
mod hamming;
mod locator;
mod nand;
#[cfg(test)]
mod tests;

use core::fmt;

use bch::{BCH4, BCH8, Bch};

pub use nand::{EccMisfit, EccNand};

/// An error-correcting code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// Hamming: 1 bit per 256 bytes, in 3 bytes; two flips are always detected.
    Hamming256,
    /// Hamming: 1 bit per 512 bytes, in 3 bytes; two flips are always detected.
    Hamming512,
    /// BCH: 4 bits per 512 bytes, in 7 bytes.
    Bch4,
    /// BCH: 8 bits per 512 bytes, in 13 bytes.
    Bch8,
}

/// A codeword has more flipped bits than the code corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncorrectable;

impl fmt::Display for Uncorrectable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("more bits have flipped than the code corrects")
    }
}

impl core::error::Error for Uncorrectable {}

impl Code {
    /// Every code.
    pub const ALL: [Code; 4] = [Code::Hamming256, Code::Hamming512, Code::Bch4, Code::Bch8];

    /// Most parity bytes of any code.
    pub const PARITY_MAX: usize = bch::PARITY_MAX;

    /// Bytes of page data in a codeword.
    pub const fn step_bytes(self) -> usize {
        match self {
            Code::Hamming256 => 256,
            Code::Hamming512 | Code::Bch4 | Code::Bch8 => 512,
        }
    }

    /// Correctable flipped bits of a codeword, its parity included.
    pub const fn strength(self) -> u32 {
        match self {
            Code::Hamming256 | Code::Hamming512 => 1,
            Code::Bch4 => 4,
            Code::Bch8 => 8,
        }
    }

    /// Parity bytes of a codeword.
    pub const fn parity_bytes(self) -> usize {
        match self {
            Code::Hamming256 | Code::Hamming512 => hamming::PARITY_BYTES,
            Code::Bch4 => 7,
            Code::Bch8 => 13,
        }
    }

    /// Most bytes that a codeword protects, data and out-of-band bytes together.
    pub const fn protected_max(self) -> usize {
        match self {
            Code::Hamming256 => 1 << 8,
            Code::Hamming512 => hamming::DATA_MAX,
            Code::Bch4 | Code::Bch8 => bch::DATA_MAX,
        }
    }

    /// Byte-address bits of a Hamming codeword.
    fn rows(self) -> u32 {
        self.step_bytes().trailing_zeros()
    }

    fn bch(self) -> Option<&'static Bch> {
        match self {
            Code::Hamming256 | Code::Hamming512 => None,
            Code::Bch4 => Some(&BCH4),
            Code::Bch8 => Some(&BCH8),
        }
    }

    /// Whether a codeword can have these lengths. An odd number of bytes would have no erased
    /// Hamming parity.
    fn admits(self, protected: usize, parity: usize) -> bool {
        let even = self.bch().is_some() || protected.is_multiple_of(2);
        even && protected <= self.protected_max() && parity == self.parity_bytes()
    }

    /// Writes the parity of `data` followed by `spare`.
    ///
    /// `parity` has [`parity_bytes`](Self::parity_bytes) bytes. Data and spare together have at
    /// most [`protected_max`](Self::protected_max) bytes, an even number for Hamming codes.
    ///
    /// # Errors
    /// [`Uncorrectable`] for other lengths; nothing was written.
    pub fn encode(self, data: &[u8], spare: &[u8], parity: &mut [u8]) -> Result<(), Uncorrectable> {
        if !self.admits(data.len() + spare.len(), parity.len()) {
            return Err(Uncorrectable);
        }
        match self.bch() {
            Some(bch) => bch.encode(data, spare, parity),
            None => {
                let bytes = hamming::encode(data, spare, self.rows());
                parity.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            }
        }
        Ok(())
    }

    /// Corrects data, spare bytes and parity in place. Returns the number of flipped bits.
    ///
    /// # Errors
    /// More flips than [`strength`](Self::strength), or lengths that [`encode`](Self::encode)
    /// refuses. Nothing is changed.
    pub fn decode(
        self,
        data: &mut [u8],
        spare: &mut [u8],
        parity: &mut [u8],
    ) -> Result<u32, Uncorrectable> {
        if !self.admits(data.len() + spare.len(), parity.len()) {
            return Err(Uncorrectable);
        }
        match self.bch() {
            Some(bch) => bch.decode(data, spare, parity),
            None => {
                let parity = parity.first_chunk_mut().ok_or(Uncorrectable)?;
                hamming::decode(data, spare, parity, self.rows())
            }
        }
    }
}

/// The number of zero bits in `bytes`, if it is at most `limit`. `None` if there are more: the
/// bytes were written. Stops as soon as the limit is exceeded.
pub fn flips_if_erased(bytes: &[u8], limit: u32) -> Option<u32> {
    let mut flips = 0;
    for byte in bytes {
        flips += byte.count_zeros();
        if flips > limit {
            return None;
        }
    }
    Some(flips)
}
