//! A partition: consecutive erase blocks of a part, used like a part of their own.
//!
//! Block 0 of the partition is its first block. No request reaches blocks outside the partition,
//! and errors name blocks of the partition. So a caller need not know the position of the
//! partition.

use core::fmt;
use core::ops::Range;

use super::{BlockNumber, EccStatus, Nand, NandError, NandGeometry, NandOperation, PageAddress};

/// Consecutive erase blocks of a part.
#[derive(Debug)]
pub struct Partition<N> {
    nand: N,
    first: u32,
    /// Geometry of the partition.
    geometry: NandGeometry,
}

/// The range of erase blocks is empty or not within the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsidePart {
    /// The requested range.
    pub wanted: Range<u32>,
    /// Erase blocks of the part.
    pub blocks: u32,
}

impl fmt::Display for OutsidePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.wanted;
        write!(
            f,
            "erase blocks {start}..{end} are not a run of the {} that the part has",
            self.blocks
        )
    }
}

impl core::error::Error for OutsidePart {}

impl<N: Nand> Partition<N> {
    /// A partition of these blocks.
    ///
    /// # Errors
    /// The range is empty or not within the part.
    pub fn new(nand: N, blocks: Range<u32>) -> Result<Partition<N>, OutsidePart> {
        let whole = nand.geometry();
        if blocks.is_empty() || blocks.end > whole.blocks {
            return Err(OutsidePart { wanted: blocks, blocks: whole.blocks });
        }
        let count = blocks.end - blocks.start;
        let geometry = NandGeometry { blocks: count, bad_max: bad_max(&whole, count), ..whole };
        Ok(Partition { nand, first: blocks.start, geometry })
    }

    /// Number of the first block in the part.
    pub fn first(&self) -> BlockNumber {
        BlockNumber(self.first)
    }

    /// The part.
    pub fn into_inner(self) -> N {
        self.nand
    }

    fn block(
        &self,
        operation: NandOperation,
        block: BlockNumber,
    ) -> Result<BlockNumber, NandError> {
        if block.0 < self.geometry.blocks {
            return Ok(BlockNumber(self.first + block.0));
        }
        Err(NandError::Refused {
            operation,
            block: block.0,
            rule: "the block is outside of the partition",
        })
    }

    fn page(&self, operation: NandOperation, page: PageAddress) -> Result<PageAddress, NandError> {
        self.block(operation, self.geometry.block_of(page))?;
        Ok(PageAddress(self.first * self.geometry.pages_per_block + page.0))
    }

    /// Translates an error of the part to blocks of the partition.
    fn own(&self, error: NandError) -> NandError {
        let own = |block: u32| block.saturating_sub(self.first);
        match error {
            NandError::Failed { operation, block } => {
                NandError::Failed { operation, block: own(block) }
            }
            NandError::Io { operation, block, os_error } => {
                NandError::Io { operation, block: own(block), os_error }
            }
            NandError::Refused { operation, block, rule } => {
                NandError::Refused { operation, block: own(block), rule }
            }
            NandError::Gone => NandError::Gone,
        }
    }
}

/// Bad blocks that a partition of `count` blocks must tolerate. Bad blocks may be uneven, so this
/// is twice its share of those of the part, and at least 2.
fn bad_max(whole: &NandGeometry, count: u32) -> u32 {
    let share = u64::from(whole.bad_max) * u64::from(count) * 2 / u64::from(whole.blocks.max(1));
    whole.bad_max.min((share as u32).max(2))
}

impl<N: Nand> Nand for Partition<N> {
    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        let page = self.page(NandOperation::Read, page)?;
        self.nand.read(page, data, oob).map_err(|error| self.own(error))
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        let page = self.page(NandOperation::Program, page)?;
        self.nand.program(page, data, oob).map_err(|error| self.own(error))
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let block = self.block(NandOperation::Erase, block)?;
        self.nand.erase(block).map_err(|error| self.own(error))
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        let block = self.block(NandOperation::IsBad, block)?;
        self.nand.is_bad(block).map_err(|error| self.own(error))
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let block = self.block(NandOperation::MarkBad, block)?;
        self.nand.mark_bad(block).map_err(|error| self.own(error))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::ftl::{self, Ftl};
    use crate::model::NandModel;
    use crate::part::Part;

    #[test]
    fn two_volumes_on_one_part_do_not_see_each_other() {
        let mut nand = NandModel::new(&Part::SPI_1GBIT.with_blocks(160), 7);
        let size = nand.geometry().page_size as usize;
        let ranges = [8..72, 72..160];
        let page = |number: u8, at: u32| -> Vec<u8> { vec![number ^ at as u8 | 1; size] };
        for round in 0..3_u8 {
            for (number, range) in ranges.iter().enumerate() {
                let partition = Partition::new(&mut nand, range.clone()).unwrap();
                let mut ftl = match round {
                    0 => ftl::format(partition, number as u64).unwrap(),
                    _ => Ftl::mount(partition, false).unwrap(),
                };
                // More pages than the smaller partition has, so that both need garbage collection.
                for at in 0..6000 {
                    ftl.write_page(at % 900, &page(round + number as u8 * 16, at)).unwrap();
                }
                ftl.close().unwrap();
            }
        }
        for (number, range) in ranges.iter().enumerate() {
            let mut ftl =
                Ftl::mount(Partition::new(&mut nand, range.clone()).unwrap(), true).unwrap();
            let mut data = vec![0; size];
            for at in 0..900 {
                ftl.read_page(at, &mut data).unwrap();
                let last = (0..6000).rev().find(|write| write % 900 == at).unwrap();
                assert_eq!(data, page(2 + number as u8 * 16, last), "volume {number} page {at}");
            }
        }
        // The blocks before the partitions were never touched.
        let mut before = Partition::new(&mut nand, 0..8).unwrap();
        let mut data = vec![0; size];
        for at in 0..before.geometry().pages() {
            before.read(PageAddress(at), &mut data, &mut []).unwrap();
            assert!(data.iter().filter(|byte| **byte != 0xff).count() < 8, "page {at}");
        }
    }

    #[test]
    fn it_keeps_to_its_blocks() {
        let part = Part::SPI_1GBIT.with_blocks(64);
        let outside = |range: Range<u32>| {
            let error = Partition::new(NandModel::new(&part, 1), range).map(drop).unwrap_err();
            alloc::format!("{error}")
        };
        assert_eq!(
            outside(10..65),
            "erase blocks 10..65 are not a run of the 64 that the part has"
        );
        assert_eq!(
            outside(10..10),
            "erase blocks 10..10 are not a run of the 64 that the part has"
        );
        let mut partition = Partition::new(NandModel::new(&part, 1), 32..48).unwrap();
        let geometry = partition.geometry();
        assert_eq!((geometry.blocks, partition.first()), (16, BlockNumber(32)));
        let data = vec![0; geometry.page_size as usize];
        let end = PageAddress(geometry.pages());
        assert!(matches!(
            partition.program(end, &data, &[]),
            Err(NandError::Refused { block: 16, .. })
        ));
        assert!(matches!(
            partition.erase(BlockNumber(16)),
            Err(NandError::Refused { block: 16, .. })
        ));
        assert!(
            partition.is_bad(BlockNumber(16)).is_err()
                && partition.mark_bad(BlockNumber(16)).is_err()
        );
        assert!(partition.read(end, &mut [], &mut []).is_err());
        // An error of the part names the block of the partition.
        let good = (0..16).find(|block| !partition.is_bad(BlockNumber(*block)).unwrap()).unwrap();
        let page = geometry.page(BlockNumber(good), 0);
        partition.erase(BlockNumber(good)).unwrap();
        partition.program(page, &data, &[]).unwrap();
        for _ in 0..geometry.partial_programs {
            if let Err(error) = partition.program(page, &data, &[]) {
                assert!(
                    matches!(error, NandError::Refused { block, .. } if block == good),
                    "{error:?}"
                );
                return;
            }
        }
        panic!("a page was programmed too often");
    }
}
