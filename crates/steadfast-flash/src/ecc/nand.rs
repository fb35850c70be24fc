//! A raw part with a software code, as a part with a code of its own.
//!
//! Layout of the out-of-band bytes of the raw part, which begin after the bad-block mark:
//!
//! | bytes | what |
//! |---|---|
//! | `0 .. spare` | the out-of-band bytes that the upper part shows |
//! | up to the parities | erased, not used |
//! | the last ones | the parity of each data step in order, then the parity of the spare bytes |
//!
//! The spare bytes are a codeword of their own. So they can be read without the data, and are
//! protected as well as the data. A page is programmed once between erasures: a second program
//! would need another parity in the same bytes.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{Code, Uncorrectable};
use crate::nand::{
    BlockNumber, Ecc, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress,
};

/// Why a code cannot be put over a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum EccMisfit {
    /// Spare bytes and parities need more out-of-band bytes than the part has.
    Room {
        /// Bytes needed.
        needed: u32,
        /// Bytes available.
        has: u32,
    },
    /// The number of spare bytes is odd or more than a codeword protects.
    Spare(u32),
    /// The page size is not a multiple of the code's step.
    Page(u32),
    /// The part has a code of its own.
    NotRaw,
}

impl fmt::Display for EccMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EccMisfit::Room { needed, has } => {
                write!(f, "the code needs {needed} out-of-band bytes of a page, the part has {has}")
            }
            EccMisfit::Spare(spare) => {
                write!(f, "{spare} spare bytes are odd or more than a codeword protects")
            }
            EccMisfit::Page(size) => {
                write!(f, "a page of {size} bytes is no multiple of the code's step")
            }
            EccMisfit::NotRaw => f.write_str("the part has a code of its own"),
        }
    }
}

impl core::error::Error for EccMisfit {}

/// A raw part with a software code.
#[derive(Debug)]
pub struct EccNand<N> {
    raw: N,
    code: Code,
    /// The geometry with the code.
    geometry: NandGeometry,
    /// Out-of-band bytes of the page that is being read or programmed.
    oob: Vec<u8>,
}

impl<N: Nand> EccNand<N> {
    /// Puts `code` over `raw`, with `spare` out-of-band bytes for the caller (an even number).
    ///
    /// # Errors
    /// [`EccMisfit`]: the part has no room for the code, or has one already.
    pub fn new(raw: N, code: Code, spare: u32) -> Result<EccNand<N>, EccMisfit> {
        let below = raw.geometry();
        let step = code.step_bytes() as u32;
        if below.ecc.bits != 0 {
            return Err(EccMisfit::NotRaw);
        }
        if !below.page_size.is_multiple_of(step) {
            return Err(EccMisfit::Page(below.page_size));
        }
        if !spare.is_multiple_of(2) || spare as usize > code.protected_max() {
            return Err(EccMisfit::Spare(spare));
        }
        let parities = (below.page_size / step + 1) * code.parity_bytes() as u32;
        let needed = spare + parities;
        if needed > below.oob_size {
            return Err(EccMisfit::Room { needed, has: below.oob_size });
        }
        let geometry = NandGeometry {
            oob_size: spare,
            partial_programs: 1,
            ecc: Ecc { bits: code.strength() as u16, codeword: step as u16 },
            ..below
        };
        Ok(EccNand { raw, code, geometry, oob: vec![0xff; below.oob_size as usize] })
    }

    /// The raw part.
    pub fn raw(&self) -> &N {
        &self.raw
    }

    /// The raw part. Operations on it bypass the code.
    pub fn raw_mut(&mut self) -> &mut N {
        &mut self.raw
    }

    /// Returns the raw part.
    pub fn into_raw(self) -> N {
        self.raw
    }

    fn refused(
        &self,
        operation: NandOperation,
        page: PageAddress,
        rule: &'static str,
    ) -> NandError {
        NandError::Refused { operation, block: self.geometry.block_of(page).0, rule }
    }

    fn check(
        &self,
        operation: NandOperation,
        page: PageAddress,
        data: usize,
        oob: usize,
    ) -> Result<(), NandError> {
        let page_size = self.geometry.page_size as usize;
        if data != page_size && (data != 0 || operation == NandOperation::Program) {
            return Err(self.refused(operation, page, "data is not a page long"));
        }
        if oob > self.geometry.oob_size as usize {
            return Err(self.refused(operation, page, "more out-of-band bytes than the page has"));
        }
        Ok(())
    }
}

/// Splits the raw out-of-band bytes: spare bytes, parities of the data, parity of the spare bytes.
fn parts(
    oob: &mut [u8],
    spare: usize,
    steps: usize,
    code: Code,
) -> Option<(&mut [u8], &mut [u8], &mut [u8])> {
    let (spare, rest) = oob.split_at_mut_checked(spare)?;
    let parities = (steps + 1) * code.parity_bytes();
    let (_, parities) = rest.split_at_mut_checked(rest.len().checked_sub(parities)?)?;
    let (data, last) = parities.split_at_mut_checked(steps * code.parity_bytes())?;
    Some((spare, data, last))
}

impl<N: Nand> Nand for EccNand<N> {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        self.check(NandOperation::Read, page, data.len(), oob.len())?;
        let raw = self.raw.read(page, data, &mut self.oob)?;
        let (code, steps) = (self.code, self.geometry.page_size as usize / self.code.step_bytes());
        let too_short = NandError::Refused {
            operation: NandOperation::Read,
            block: self.geometry.block_of(page).0,
            rule: "the part has become smaller",
        };
        let (spare, parities, last) =
            parts(&mut self.oob, self.geometry.oob_size as usize, steps, code).ok_or(too_short)?;
        let mut status = raw;
        let mut add = |decoded: Result<u32, Uncorrectable>| {
            status = status.worst(match decoded {
                Ok(0) => EccStatus::Clean,
                Ok(bits) => EccStatus::Corrected(bits as u16),
                Err(Uncorrectable) => EccStatus::Uncorrectable,
            });
        };
        let codewords = data.chunks_exact_mut(code.step_bytes());
        for (data, parity) in codewords.zip(parities.chunks_exact_mut(code.parity_bytes())) {
            add(code.decode(data, &mut [], parity));
        }
        if !oob.is_empty() {
            add(code.decode(spare, &mut [], last));
            oob.iter_mut().zip(spare).for_each(|(to, from)| *to = *from);
        }
        Ok(status)
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        self.check(NandOperation::Program, page, data.len(), oob.len())?;
        let (code, steps) = (self.code, self.geometry.page_size as usize / self.code.step_bytes());
        let misfit = self.refused(NandOperation::Program, page, "the part has become smaller");
        self.oob.fill(0xff);
        let (spare, parities, last) =
            parts(&mut self.oob, self.geometry.oob_size as usize, steps, code).ok_or(misfit)?;
        spare.iter_mut().zip(oob).for_each(|(to, from)| *to = *from);
        let codewords = data.chunks_exact(code.step_bytes());
        for (data, parity) in codewords.zip(parities.chunks_exact_mut(code.parity_bytes())) {
            code.encode(data, &[], parity).map_err(|Uncorrectable| misfit)?;
        }
        code.encode(spare, &[], last).map_err(|Uncorrectable| misfit)?;
        self.raw.program(page, data, &self.oob)
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.raw.erase(block)
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        self.raw.is_bad(block)
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.raw.mark_bad(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;

    /// A raw part in memory; a test can flip its bits.
    struct Bare {
        geometry: NandGeometry,
        /// Data and out-of-band bytes of each page.
        pages: Vec<Vec<u8>>,
    }

    impl Bare {
        fn of(part: Part) -> Bare {
            let part = part.with_blocks(2);
            let geometry =
                NandGeometry { oob_size: part.oob_raw - 2, ecc: Ecc::NONE, ..part.geometry };
            let page = vec![0xff; (geometry.page_size + geometry.oob_size) as usize];
            Bare { geometry, pages: vec![page; geometry.pages() as usize] }
        }

        fn flip(&mut self, page: u32, bit: usize) {
            self.pages[page as usize][bit / 8] ^= 1 << (bit % 8);
        }
    }

    impl Nand for Bare {
        fn geometry(&self) -> NandGeometry {
            self.geometry
        }
        fn read(
            &mut self,
            page: PageAddress,
            data: &mut [u8],
            oob: &mut [u8],
        ) -> Result<EccStatus, NandError> {
            let page = &self.pages[page.0 as usize];
            data.copy_from_slice(&page[..data.len()]);
            oob.copy_from_slice(&page[self.geometry.page_size as usize..][..oob.len()]);
            Ok(EccStatus::Clean)
        }
        fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
            self.pages[page.0 as usize] = [data, oob].concat();
            Ok(())
        }
        fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
            let first = self.geometry.page(block, 0).0 as usize;
            self.pages[first..first + self.geometry.pages_per_block as usize]
                .iter_mut()
                .for_each(|page| page.fill(0xff));
            Ok(())
        }
        fn is_bad(&mut self, _: BlockNumber) -> Result<bool, NandError> {
            Ok(false)
        }
        fn mark_bad(&mut self, _: BlockNumber) -> Result<(), NandError> {
            Ok(())
        }
    }

    fn covered() -> impl Iterator<Item = (Part, Code)> {
        [
            (Part::SLC_1GBIT, Code::Hamming512),
            (Part::SLC_1GBIT, Code::Hamming256),
            (Part::SLC_4K, Code::Bch4),
            (Part::MLC_16GBIT, Code::Bch8),
        ]
        .into_iter()
    }

    #[test]
    fn every_part_has_room_for_its_code() {
        for part in Part::ALL.into_iter().filter(|part| !part.ecc_on_die) {
            let code = match part.geometry.ecc.bits {
                1 => Code::Hamming512,
                4 => Code::Bch4,
                _ => Code::Bch8,
            };
            let nand = EccNand::new(Bare::of(part), code, part.geometry.oob_size).unwrap();
            assert_eq!(nand.geometry().ecc, part.geometry.ecc, "{}", part.name);
            assert_eq!(nand.geometry().oob_size, part.geometry.oob_size);
        }
    }

    #[test]
    fn flips_anywhere_are_corrected_and_counted() {
        for (part, code) in covered() {
            let spare = 24;
            let mut nand = EccNand::new(Bare::of(part), code, spare).unwrap();
            let size = nand.geometry().page_size as usize;
            let data: Vec<u8> = (0..size).map(|i| (i * i / 7) as u8).collect();
            let oob: Vec<u8> = (0..spare as u8).collect();
            nand.program(PageAddress(3), &data, &oob).unwrap();
            let (mut read, mut read_oob) = (vec![0; size], vec![0; spare as usize]);
            assert_eq!(nand.read(PageAddress(3), &mut read, &mut read_oob), Ok(EccStatus::Clean));
            // Flips the correctable number of bits in the second codeword and in the spare bytes,
            // and one in the last codeword.
            let strength = code.strength() as usize;
            for flip in 0..strength {
                nand.raw_mut().flip(3, (code.step_bytes() + 5 * flip) * 8 + flip);
                nand.raw_mut().flip(3, (size + flip) * 8 + 3);
            }
            nand.raw_mut().flip(3, size * 8 - 1);
            let status = nand.read(PageAddress(3), &mut read, &mut read_oob).unwrap();
            assert_eq!(status, EccStatus::Corrected(strength as u16), "{code:?}");
            assert!(read == data && read_oob == oob, "{code:?}");
            // The out-of-band bytes alone, and only a few of them.
            let mut few = [0; 4];
            assert_eq!(
                nand.read(PageAddress(3), &mut [], &mut few).unwrap().bits(),
                strength as u16
            );
            assert_eq!(few, [0, 1, 2, 3]);
            // One more flip in the second codeword.
            nand.raw_mut().flip(3, (code.step_bytes() + 200) * 8);
            let status = nand.read(PageAddress(3), &mut read, &mut []).unwrap();
            // The stronger codes detect most patterns, this one included.
            assert_eq!(status, EccStatus::Uncorrectable, "{code:?}");
        }
    }

    #[test]
    fn erased_pages_are_erased() {
        for (part, code) in covered() {
            let mut nand = EccNand::new(Bare::of(part), code, 16).unwrap();
            let mut page = vec![0; nand.geometry().page_size as usize];
            let mut oob = [0; 16];
            nand.raw_mut().flip(0, 77);
            assert_eq!(nand.read(PageAddress(0), &mut page, &mut oob), Ok(EccStatus::Corrected(1)));
            assert!(page.iter().chain(&oob).all(|byte| *byte == 0xff), "{code:?}");
            nand.program(PageAddress(0), &vec![0; page.len()], &[]).unwrap();
            nand.erase(BlockNumber(0)).unwrap();
            assert_eq!(nand.read(PageAddress(0), &mut page, &mut oob), Ok(EccStatus::Clean));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let slc = || Bare::of(Part::SLC_1GBIT);
        assert_eq!(
            EccNand::new(slc(), Code::Bch8, 32).err(),
            Some(EccMisfit::Room { needed: 97, has: 62 })
        );
        assert_eq!(EccNand::new(slc(), Code::Hamming512, 31).err(), Some(EccMisfit::Spare(31)));
        let corrected = EccNand::new(slc(), Code::Hamming512, 32).unwrap();
        assert_eq!(EccNand::new(corrected, Code::Hamming512, 2).err(), Some(EccMisfit::NotRaw));
        let mut nand = EccNand::new(slc(), Code::Hamming512, 32).unwrap();
        assert!(nand.read(PageAddress(0), &mut [0; 100], &mut []).is_err());
        assert!(nand.program(PageAddress(0), &[], &[0; 8]).is_err());
        assert!(nand.program(PageAddress(0), &[0; 2048], &[0; 33]).is_err());
    }
}
