//! Status of a part for `info`, `map` and `top`.

use alloc::vec::Vec;

use super::error::Result;
use super::layout::Layout;
use super::state::{Ftl, FtlInfo, Stream};
use super::table::{BlockInfo, BlockState};
use crate::nand::{Nand, NandGeometry};

/// Use of an erase block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockUse {
    /// Unused.
    Free,
    /// Logical pages.
    Data,
    /// Map, directory, block table, spill pages, read counts.
    Structures,
    /// The journal.
    Journal,
    /// The anchor ring.
    Anchors,
    /// Free after two more journal pages.
    Pending,
    /// Bad.
    Bad,
}

impl BlockUse {
    /// Every use.
    pub const ALL: [BlockUse; 7] = [
        BlockUse::Free,
        BlockUse::Data,
        BlockUse::Structures,
        BlockUse::Journal,
        BlockUse::Anchors,
        BlockUse::Pending,
        BlockUse::Bad,
    ];

    /// Its name for users, one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            BlockUse::Free => "free",
            BlockUse::Data => "data",
            BlockUse::Structures => "structures",
            BlockUse::Journal => "journal",
            BlockUse::Anchors => "anchors",
            BlockUse::Pending => "pending",
            BlockUse::Bad => "bad",
        }
    }
}

/// An erase block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockDetail {
    /// Its use.
    pub usage: BlockUse,
    /// It is still being programmed.
    pub open: bool,
    /// Pages in use; never too low.
    pub valid_pages: u32,
    /// Erasures; too low only if a format found no earlier volume.
    pub erases: u32,
    /// Page reads since its erasure; after a power cut it may be too low by up to an eighth of the
    /// limit.
    pub reads: u32,
}

/// Status of a part. Counts since the mount are in [`FlashReport::counts`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashReport {
    /// Number of the volume.
    pub volume: u64,
    /// Sizes of the part.
    pub geometry: NandGeometry,
    /// Allocation of the blocks.
    pub layout: Layout,
    /// Erase blocks by use, in the order of [`BlockUse::ALL`].
    pub blocks: [u32; 7],
    /// The bad blocks.
    pub bad_blocks: Vec<u32>,
    /// Erasures of good blocks: minimum, maximum, sum.
    pub erases: (u32, u32, u64),
    /// Histogram of good blocks: lower limit of erasures, and number of blocks. The next entry's
    /// limit is the upper limit. At most sixteen entries of equal width.
    pub erase_histogram: Vec<(u32, u32)>,
    /// Page reads since its erasure of the most read block.
    pub reads_max: u32,
    /// Page reads after which a block is moved.
    pub reads_bound: u32,
    /// Corrected bits in a codeword from which on a block is moved.
    pub bits_bound: u16,
    /// The next block of the patrol.
    pub patrol_position: u32,
    /// Blocks that wait to be moved because of flipped bits, many reads, a failure, or wear.
    pub blocks_waiting: u32,
    /// Counts since the mount.
    pub counts: FtlInfo,
    /// Bytes of memory in use.
    pub memory_bytes: usize,
}

impl FlashReport {
    /// Number of erase blocks with this use.
    #[must_use]
    pub fn count(&self, usage: BlockUse) -> u32 {
        BlockUse::ALL
            .iter()
            .zip(self.blocks)
            .find(|(other, _)| **other == usage)
            .map_or(0, |(_, count)| count)
    }
}

impl<N: Nand> Ftl<N> {
    /// Whether garbage collection currently moves pages into this block.
    #[must_use]
    pub fn collects_into(&self, block: u32) -> bool {
        self.frontiers[Stream::Moved as usize].block == block
    }

    /// Details of every erase block. Reads the pages of the block table that are not loaded yet.
    ///
    /// # Errors
    /// Errors of the part; both copies of a block table page are unreadable.
    pub fn blocks(&mut self) -> Result<Vec<BlockDetail>> {
        for page in 0..self.reads.pages() {
            self.load_reads(page)?;
        }
        let mut blocks = Vec::with_capacity(self.geometry.blocks as usize);
        for block in 0..self.geometry.blocks {
            let BlockInfo { state, valid, erases } = self.block(block)?;
            let usage = match state {
                BlockState::Free => BlockUse::Free,
                BlockState::Data => BlockUse::Data,
                BlockState::Map => BlockUse::Structures,
                BlockState::Journal if block < self.layout.ring => BlockUse::Anchors,
                BlockState::Journal => BlockUse::Journal,
                BlockState::Bad => BlockUse::Bad,
                BlockState::Pending => BlockUse::Pending,
            };
            let open =
                self.is_open(block) || block == self.journal.block || block == self.journal.ring.0;
            let reads = self.reads.get(block);
            blocks.push(BlockDetail { usage, open, valid_pages: valid, erases, reads });
        }
        Ok(blocks)
    }

    /// Status of the part. Reads as [`blocks`](Self::blocks) does.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks).
    pub fn report(&mut self) -> Result<FlashReport> {
        let blocks = self.blocks()?;
        let good = || blocks.iter().filter(|block| block.usage != BlockUse::Bad);
        let least = good().map(|block| block.erases).min().unwrap_or(0);
        let most = good().map(|block| block.erases).max().unwrap_or(0);
        let width = (most - least + 1).div_ceil(16).max(1);
        let mut histogram: Vec<(u32, u32)> =
            (0..=(most - least) / width).map(|at| (least + at * width, 0)).collect();
        for block in good() {
            if let Some(entry) = histogram.get_mut(((block.erases - least) / width) as usize) {
                entry.1 += 1;
            }
        }
        let count =
            |usage: BlockUse| blocks.iter().filter(|block| block.usage == usage).count() as u32;
        let bad = |(number, block): (usize, &BlockDetail)| {
            (block.usage == BlockUse::Bad).then_some(number as u32)
        };
        let collector = &self.collector;
        Ok(FlashReport {
            volume: self.volume,
            geometry: self.geometry,
            layout: self.layout,
            blocks: BlockUse::ALL.map(count),
            bad_blocks: blocks.iter().enumerate().filter_map(bad).collect(),
            erases: (least, most, good().map(|block| u64::from(block.erases)).sum()),
            erase_histogram: histogram,
            reads_max: good().map(|block| block.reads).max().unwrap_or(0),
            reads_bound: self.reads.bound,
            bits_bound: self.bits_bound(),
            patrol_position: self.patrol.block,
            blocks_waiting: (collector.queue.len() + collector.renew.len()) as u32,
            counts: self.info,
            memory_bytes: self.memory_bytes(),
        })
    }
}
