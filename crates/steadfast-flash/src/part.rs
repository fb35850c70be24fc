//! Known parts: geometry, timing, and rate of bit flips, from their data sheets.
//!
//! The geometry of a [`Part`] is that of the bare part. [`Part::ecc_on_die`] says whether reads
//! return corrected data; otherwise a software code goes between the part and the translation
//! layer.

use crate::nand::{Ecc, NandGeometry, Pairing};

/// Times of a part, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NandTiming {
    /// Moves a page from the cells into the page register.
    pub read_ns: u64,
    /// Moves a page from the register into the cells.
    pub program_ns: u64,
    /// Erases a block.
    pub erase_ns: u64,
    /// Transfers one byte over the bus, in either direction.
    pub byte_ns: u64,
}

/// A known part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// Description for users.
    pub about: &'static str,
    /// Sizes and rules of the bare part. `geometry.ecc` is the code that it needs, on the die or in
    /// software.
    pub geometry: NandGeometry,
    /// OOB bytes of a page on the part itself, bad-block mark and parity included.
    pub oob_raw: u32,
    /// Whether the error-correcting code is on the die.
    pub ecc_on_die: bool,
    /// Times.
    pub timing: NandTiming,
    /// Page reads of a block since its erasure that flip one bit of it on average.
    pub reads_per_flip: u32,
}

impl Part {
    /// 1 Gbit SLC, such as K9F1G08U0A.
    pub const SLC_1GBIT: Part = Part {
        name: "slc-1gbit",
        about: "1 Gbit SLC, 2048+64 x 64 x 1024, 1-bit ECC in software",
        geometry: NandGeometry {
            page_size: 2048,
            oob_size: 32,
            pages_per_block: 64,
            blocks: 1024,
            partial_programs: 4,
            in_order: true,
            ecc: Ecc { bits: 1, codeword: 512 },
            pairing: Pairing::None,
            cycles: 100_000,
            bad_max: 20,
        },
        oob_raw: 64,
        ecc_on_die: false,
        timing: NandTiming {
            read_ns: 25_000,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            byte_ns: 30,
        },
        reads_per_flip: 1_000_000,
    };

    /// 1 Gbit SPI NAND with an on-die code, such as MT29F1G01ABAFD.
    pub const SPI_1GBIT: Part = Part {
        name: "spi-1gbit",
        about: "1 Gbit SPI NAND, 2048+128 x 64 x 1024, 8-bit ECC on the die, up to 20 bad blocks",
        geometry: NandGeometry {
            oob_size: 64,
            ecc: Ecc { bits: 8, codeword: 512 },
            ..Self::SLC_1GBIT.geometry
        },
        oob_raw: 128,
        ecc_on_die: true,
        timing: NandTiming {
            read_ns: 70_000,
            program_ns: 220_000,
            erase_ns: 2_000_000,
            byte_ns: 20,
        },
        reads_per_flip: 1_000_000,
    };

    /// 4 Gbit SLC with pages of 4 KiB.
    pub const SLC_4K: Part = Part {
        name: "slc-4k",
        about: "4 Gbit SLC, 4096+224 x 64 x 2048, 4-bit ECC in software",
        geometry: NandGeometry {
            page_size: 4096,
            oob_size: 64,
            blocks: 2048,
            ecc: Ecc { bits: 4, codeword: 512 },
            bad_max: 40,
            ..Self::SLC_1GBIT.geometry
        },
        oob_raw: 224,
        ecc_on_die: false,
        timing: NandTiming {
            read_ns: 25_000,
            program_ns: 200_000,
            erase_ns: 2_000_000,
            byte_ns: 25,
        },
        reads_per_flip: 1_000_000,
    };

    /// 16 Gbit MLC with paired pages, such as MT29F16G08MAA.
    pub const MLC_16GBIT: Part = Part {
        name: "mlc-16gbit",
        about: "16 Gbit MLC, 4096+218 x 128 x 4096, pages paired 0/3 1/4 2/5, 8-bit ECC in software, 10,000 cycles",
        geometry: NandGeometry {
            page_size: 4096,
            oob_size: 64,
            pages_per_block: 128,
            blocks: 4096,
            partial_programs: 1,
            in_order: true,
            ecc: Ecc { bits: 8, codeword: 512 },
            pairing: Pairing::Distance3,
            cycles: 10_000,
            bad_max: 100,
        },
        oob_raw: 218,
        ecc_on_die: false,
        timing: NandTiming {
            read_ns: 50_000,
            program_ns: 900_000,
            erase_ns: 3_500_000,
            byte_ns: 25,
        },
        reads_per_flip: 100_000,
    };

    /// Every part.
    pub const ALL: [Part; 4] = [Self::SLC_1GBIT, Self::SPI_1GBIT, Self::SLC_4K, Self::MLC_16GBIT];

    /// The part with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Part> {
        Self::ALL.into_iter().find(|part| part.name == name)
    }

    /// The same part with another number of erase blocks, for tests and for larger parts of the
    /// family.
    #[must_use]
    pub fn with_blocks(mut self, blocks: u32) -> Part {
        let bad_max =
            u64::from(self.geometry.bad_max) * u64::from(blocks) / u64::from(self.geometry.blocks);
        self.geometry.bad_max = (bad_max as u32).max(2);
        self.geometry.blocks = blocks;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_possible_and_found_by_its_name() {
        for part in Part::ALL {
            assert!(part.geometry.checked().is_ok(), "{}", part.name);
            assert_eq!(Part::from_name(part.name), Some(part));
            assert!(part.geometry.oob_size < part.oob_raw);
        }
        assert_eq!(Part::from_name("core memory"), None);
        assert_eq!(Part::SLC_1GBIT.with_blocks(65_536).geometry.bytes(), 8 << 30);
    }
}
