//! The positions of a volume's blocks on the part.
//!
//! A volume that was made on its part has block `n` in block `n` of the part. A device programmer
//! puts each next block of an image into the next good block (*skip bad block*). Then block `n` is
//! in the `n`-th block that was good at that time.
//!
//! So the blocks that were bad then are *skipped*: the volume numbers the other blocks first, in
//! order, and the skipped ones last. Every anchor lists them. The list stays the same for the life
//! of the volume, whatever goes bad later.

use alloc::vec::Vec;

use crate::nand::{BlockNumber, EccStatus, Nand, NandError, NandGeometry, PageAddress};

/// A part with its blocks in the order of the volume.
#[derive(Debug)]
pub struct Placed<N> {
    nand: N,
    /// Skipped blocks, in ascending order.
    skipped: Vec<u32>,
    /// Blocks whose bad-block marks are delayed; `None`: marks are set at once.
    waiting: Option<Vec<BlockNumber>>,
}

impl<N: Nand> Placed<N> {
    /// A part without skipped blocks.
    pub fn new(nand: N) -> Placed<N> {
        Placed { nand, skipped: Vec::new(), waiting: None }
    }

    /// Skips these blocks, which are in ascending order and within the part: they come last.
    pub fn skip(&mut self, skipped: Vec<u32>) {
        self.skipped = skipped;
    }

    /// The skipped blocks.
    pub fn skipped(&self) -> &[u32] {
        &self.skipped
    }

    /// The block of the part for block `block` of the volume.
    pub fn place(&self, block: u32) -> u32 {
        let good = self.nand.geometry().blocks.saturating_sub(self.skipped.len() as u32);
        if block >= good {
            // Skipped blocks; numbers outside the part are not changed.
            return self.skipped.get((block - good) as usize).copied().unwrap_or(block);
        }
        // The first `n` skipped blocks come before it if the n-th is at most `block + n`: the sum
        // increases with each of them.
        let (mut before, mut end) = (0, self.skipped.len());
        while before < end {
            let middle = before.midpoint(end);
            match self.skipped.get(middle) {
                Some(skipped) if *skipped <= block + middle as u32 => before = middle + 1,
                _ => end = middle,
            }
        }
        block + before as u32
    }

    /// Delays bad-block marks from now on. No mark may be added while the marks determine which
    /// blocks are skipped.
    pub fn hold_marks(&mut self) {
        self.waiting.get_or_insert_default();
    }

    /// Sets the delayed marks; later marks are set at once.
    ///
    /// # Errors
    /// The access to the part failed. A block that does not take its mark is not an error.
    pub fn release_marks(&mut self) -> Result<(), NandError> {
        for block in self.waiting.take().unwrap_or_default() {
            match self.nand.mark_bad(block) {
                Ok(()) | Err(NandError::Failed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The part itself.
    pub fn inner(&mut self) -> &mut N {
        &mut self.nand
    }

    /// The part itself.
    pub fn into_inner(self) -> N {
        self.nand
    }

    fn page(&self, page: PageAddress) -> PageAddress {
        if self.skipped.is_empty() {
            return page;
        }
        let geometry = self.nand.geometry();
        let block = BlockNumber(self.place(geometry.block_of(page).0));
        geometry.page(block, geometry.page_in_block(page))
    }
}

impl<N: Nand> Nand for Placed<N> {
    fn geometry(&self) -> NandGeometry {
        self.nand.geometry()
    }

    fn read(
        &mut self,
        page: PageAddress,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<EccStatus, NandError> {
        let page = self.page(page);
        self.nand.read(page, data, oob)
    }

    fn program(&mut self, page: PageAddress, data: &[u8], oob: &[u8]) -> Result<(), NandError> {
        let page = self.page(page);
        self.nand.program(page, data, oob)
    }

    fn erase(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let block = BlockNumber(self.place(block.0));
        self.nand.erase(block)
    }

    fn is_bad(&mut self, block: BlockNumber) -> Result<bool, NandError> {
        let block = BlockNumber(self.place(block.0));
        self.nand.is_bad(block)
    }

    fn mark_bad(&mut self, block: BlockNumber) -> Result<(), NandError> {
        let block = BlockNumber(self.place(block.0));
        match &mut self.waiting {
            Some(waiting) => {
                waiting.push(block);
                Ok(())
            }
            None => self.nand.mark_bad(block),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use super::*;
    use crate::model::NandModel;
    use crate::part::Part;

    #[test]
    fn every_block_has_one_place_and_good_ones_keep_their_order() {
        let part = Part::SPI_1GBIT.with_blocks(30);
        for skipped in
            [vec![], vec![0], vec![29], vec![0, 1, 2], vec![3, 4, 10, 28, 29], vec![5, 7, 9, 11]]
        {
            let mut placed = Placed::new(NandModel::new(&part, 1));
            placed.skip(skipped.clone());
            let places: Vec<u32> = (0..30).map(|block| placed.place(block)).collect();
            assert_eq!(
                places.iter().copied().collect::<BTreeSet<_>>(),
                (0..30).collect(),
                "{skipped:?}"
            );
            let (good, last) = places.split_at(30 - skipped.len());
            assert!(
                good.is_sorted() && good.iter().all(|block| !skipped.contains(block)),
                "{places:?}"
            );
            assert_eq!(last, skipped);
            assert_eq!(placed.place(30), 30, "outside stays outside");
        }
    }

    #[test]
    fn marks_wait_until_they_may_be_set() {
        let mut placed = Placed::new(NandModel::new(&Part::SPI_1GBIT.with_blocks(30), 1));
        placed.skip(vec![4]);
        placed.hold_marks();
        placed.mark_bad(BlockNumber(6)).unwrap();
        assert!(!placed.is_bad(BlockNumber(6)).unwrap());
        placed.release_marks().unwrap();
        assert!(placed.inner().is_bad(BlockNumber(7)).unwrap());
        placed.mark_bad(BlockNumber(2)).unwrap();
        assert!(placed.is_bad(BlockNumber(2)).unwrap());
    }
}
