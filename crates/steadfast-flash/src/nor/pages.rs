//! NOR as a NAND part: each erase sector is an erase block of pages with out-of-band bytes.
//!
//! ```text
//! page 0 | page 1 | … | unused | … | slot 1 | slot 0 | mark
//! slot, 32 bytes: out-of-band bytes 0..16 | CRC-32C u32 of page and out-of-band bytes | unused
//! mark, 32 bytes: all ones, or begins with MARK where the sector is worn out
//! ```
//!
//! - The slot is programmed after its page. A page whose CRC does not match was torn, or has bits
//!   that have changed: [`EccStatus::Uncorrectable`].
//! - What was programmed or erased is read again, because many parts do not report a failure.
//! - The mark has 16 bytes, because an interrupted erasure can leave zeros in any byte.

use alloc::vec;
use alloc::vec::Vec;

use crc::{CRC_32_ISCSI, Crc, Table};

use super::{Nor, NorMisfit};
use crate::nand::{
    BlockNumber, Ecc, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress, Pairing,
};
use crate::sabotage::{Sabotage, planted};

const CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of a slot, and of the mark. They divide the size of every program.
const SLOT: u32 = 32;
/// Out-of-band bytes of a page.
const OOB: usize = 16;
/// Out-of-band bytes and CRC.
const SLOT_USED: usize = OOB + 4;
/// What the mark of a worn-out sector begins with.
const MARK: [u8; 16] = *b"\x00worn out sector";

/// A NOR part as a NAND part.
#[derive(Debug, Clone)]
pub struct NorNand<D> {
    part: D,
    sector_size: u32,
    program_size: u32,
    geometry: NandGeometry,
    /// The page and the slot that are read or verified.
    buffer: Vec<u8>,
}

impl<D: Nor> NorNand<D> {
    /// Puts pages of `page_size` bytes into the sectors of a part.
    ///
    /// # Errors
    /// [`NorMisfit`] names what is out of range.
    pub fn new(part: D, page_size: u32) -> Result<NorNand<D>, NorMisfit> {
        let below = part.geometry();
        let power = |size: u32, least: u32, most: u32| {
            size.is_power_of_two() && (least..=most).contains(&size)
        };
        if !power(below.sector_size, 4096, 65_536) {
            return Err(NorMisfit::SectorSize(below.sector_size));
        }
        if !(1..=NandGeometry::BLOCKS_MAX).contains(&below.sectors)
            || u64::from(below.sectors) * u64::from(below.sector_size) > 1 << 32
        {
            return Err(NorMisfit::Sectors(below.sectors));
        }
        if !power(below.program_size, 64, below.sector_size) {
            return Err(NorMisfit::ProgramSize(below.program_size));
        }
        if !power(page_size, 512, below.sector_size / 8) {
            return Err(NorMisfit::PageSize(page_size));
        }
        let geometry = NandGeometry {
            page_size,
            oob_size: OOB as u32,
            pages_per_block: (below.sector_size - SLOT) / (page_size + SLOT),
            blocks: below.sectors,
            partial_programs: 1,
            in_order: true,
            ecc: Ecc::NONE,
            pairing: Pairing::None,
            cycles: below.cycles,
            bad_max: 2,
        };
        let buffer = vec![0; page_size as usize + SLOT_USED];
        let (sector_size, program_size) = (below.sector_size, below.program_size);
        Ok(NorNand { part, sector_size, program_size, geometry, buffer })
    }

    /// The part.
    pub fn part(&self) -> &D {
        &self.part
    }

    /// The part. Operations on it bypass this layer.
    pub fn part_mut(&mut self) -> &mut D {
        &mut self.part
    }

    fn page_address(&self, page: PageAddress) -> u32 {
        self.geometry.block_of(page).0 * self.sector_size
            + self.geometry.page_in_block(page) * self.geometry.page_size
    }

    fn slot_address(&self, page: PageAddress) -> u32 {
        let from_end = (self.geometry.page_in_block(page) + 2) * SLOT;
        self.geometry.block_of(page).0 * self.sector_size + (self.sector_size - from_end)
    }

    fn mark_address(&self, block: BlockNumber) -> u32 {
        block.0 * self.sector_size + (self.sector_size - SLOT)
    }

    /// Programs bytes in as many programs as the part needs, and reads them.
    fn write(
        &mut self,
        (operation, block): (NandOperation, BlockNumber),
        address: u32,
        data: &[u8],
    ) -> Result<(), NandError> {
        let mut at = address;
        for part in data.chunks(self.program_size as usize) {
            self.part.program(at, part)?;
            let found = self.buffer.get_mut(..part.len()).unwrap_or_default();
            self.part.read(at, found)?;
            if found != part {
                return Err(NandError::Failed { operation, block: block.0 });
            }
            at += part.len() as u32;
        }
        Ok(())
    }

    fn check_page(
        &self,
        operation: NandOperation,
        page: PageAddress,
        data: usize,
        oob: usize,
    ) -> Result<BlockNumber, NandError> {
        let block = self.geometry.block_of(page);
        let refused = |rule| Err(NandError::Refused { operation, block: block.0, rule });
        if page.0 >= self.geometry.pages() {
            return refused("the page is outside the part");
        }
        let whole = data == self.geometry.page_size as usize;
        if !whole && (data != 0 || operation == NandOperation::Program) {
            return refused("data is not a page long");
        }
        if oob > OOB {
            return refused("more out-of-band bytes than the page has");
        }
        Ok(block)
    }

    fn check_block(&self, operation: NandOperation, block: BlockNumber) -> Result<(), NandError> {
        if block.0 < self.geometry.blocks {
            return Ok(());
        }
        let rule = "the block is outside the part";
        Err(NandError::Refused { operation, block: block.0, rule })
    }

    fn is_erased(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        let (begin, end) = (block.0 * self.sector_size, self.sector_size);
        let step = self.geometry.page_size;
        for at in (0..end).step_by(step as usize) {
            let found = self.buffer.get_mut(..step as usize).unwrap_or_default();
            self.part.read(begin + at, found)?;
            if found.iter().any(|byte| *byte != 0xff) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<D: Nor> Nand for NorNand<D> {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        self.check_page(NandOperation::Read, page, data.len(), oob.len())?;
        let (at, slot_at) = (self.page_address(page), self.slot_address(page));
        let size = self.geometry.page_size as usize;
        let (content, slot) = self.buffer.split_at_mut(size);
        self.part.read(at, content)?;
        self.part.read(slot_at, slot)?;
        if !data.is_empty() {
            data.copy_from_slice(content);
        }
        let (spare, sum) = slot.split_at(OOB);
        for (to, from) in oob.iter_mut().zip(spare) {
            *to = *from;
        }
        if sum_of(content, spare) == sum || self.buffer.iter().all(|byte| *byte == 0xff) {
            return Ok(EccStatus::Clean);
        }
        Ok(EccStatus::Uncorrectable)
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        let block = self.check_page(NandOperation::Program, page, data.len(), oob.len())?;
        let mut slot = [0xff; SLOT_USED];
        for (to, from) in slot.iter_mut().zip(oob) {
            *to = *from;
        }
        let (spare, sum) = slot.split_at_mut(OOB);
        sum.copy_from_slice(&sum_of(data, spare));
        let what = (NandOperation::Program, block);
        self.write(what, self.page_address(page), data)?;
        self.write(what, self.slot_address(page), &slot)
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.check_block(NandOperation::Erase, block)?;
        if planted(Sabotage::TrustErased) && self.is_erased(block)? {
            return Ok(());
        }
        self.part.erase(block)?;
        if !self.is_erased(block)? {
            return Err(NandError::Failed { operation: NandOperation::Erase, block: block.0 });
        }
        Ok(())
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        self.check_block(NandOperation::IsBad, block)?;
        let mut found = [0; MARK.len()];
        self.part.read(self.mark_address(block), &mut found)?;
        Ok(found == MARK)
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        self.check_block(NandOperation::MarkBad, block)?;
        self.write((NandOperation::MarkBad, block), self.mark_address(block), &MARK)
    }
}

fn sum_of(data: &[u8], oob: &[u8]) -> [u8; 4] {
    let mut digest = CASTAGNOLI.digest();
    digest.update(data);
    digest.update(oob);
    digest.finalize().to_le_bytes()
}
