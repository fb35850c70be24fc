//! Reads pages: verifies tags, counts flipped bits and reads, and schedules a move of blocks with
//! too many.

use super::error::Result;
use super::state::Ftl;
use super::table::BlockState;
use super::tag::{TAG_SIZE, Tag};
use crate::nand::{EccStatus, Nand, PageAddress};

impl<N: Nand> Ftl<N> {
    /// Reads a page into `data` and verifies its tag. `None`: erased, torn, or uncorrectable.
    pub(super) fn read_tagged(&mut self, page: u32, data: &mut [u8]) -> Result<Option<Tag>> {
        let mut oob = [0; TAG_SIZE];
        // An unstable page may be readable at another try.
        for _ in 0..3 {
            self.info.page_reads += 1;
            let status = self.nand.read(PageAddress(page), data, &mut oob)?;
            self.count_read(page, status);
            if status != EccStatus::Uncorrectable {
                return Ok(Tag::decode(data, &oob));
            }
        }
        Ok(Tag::decode(data, &oob))
    }

    /// Whether the last page that [`read_tagged`](Self::read_tagged) read into `data` looks
    /// unprogrammed.
    pub(super) fn looks_erased(data: &[u8]) -> bool {
        let zeros: u32 = data.iter().map(|byte| byte.count_zeros()).sum();
        (zeros as usize) < data.len() / 64
    }

    /// Corrected bits in a codeword from which on a block is moved.
    pub(super) fn bits_bound(&self) -> u16 {
        (self.geometry.ecc.bits * 3).div_ceil(4).max(1)
    }

    fn count_read(&mut self, page: u32, status: EccStatus) {
        let block = self.block_of(page);
        let bits = status.bits();
        if bits > 0 {
            self.info.corrected_pages += 1;
            self.info.corrected_bits += u64::from(bits);
            self.info.corrected_bits_max = self.info.corrected_bits_max.max(bits);
        }
        let disturbed = self.reads.add(block);
        if bits >= self.bits_bound() || disturbed {
            self.refresh(block);
        }
    }

    /// Schedules a move of the contents of a block.
    pub(super) fn refresh(&mut self, block: u32) {
        let Some(info) = self.table.get(block) else { return };
        match info.state {
            BlockState::Data if !self.is_open(block) && !self.collector.knows(block) => {
                self.collector.queue.push_back(block);
                self.info.refreshed_blocks += 1;
            }
            BlockState::Map if self.collector.renew.insert(block) => {
                self.info.refreshed_blocks += 1
            }
            BlockState::Journal if self.journal.block == block || self.journal.ring.0 == block => {
                self.journal.renew = true;
            }
            _ => {}
        }
    }
}
