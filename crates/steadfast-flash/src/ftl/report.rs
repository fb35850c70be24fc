//! What a translation layer can tell of its part: for `info`, `map` and `top`.

use alloc::vec::Vec;

use super::error::Result;
use super::layout::Layout;
use super::state::{Ftl, FtlInfo, Stream};
use super::table::{BlockInfo, BlockState};
use crate::nand::{Nand, NandGeometry};

/// What an erase block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockUse {
    /// Nothing.
    Free,
    /// Logical pages.
    Data,
    /// Map, directory, block table, spilled changes, counts of reads.
    Structures,
    /// The journal.
    Journal,
    /// The ring of the anchors.
    Anchors,
    /// Free after two more journal pages.
    Pending,
    /// Not to be used.
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

    /// Its name for people, a word.
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
    /// What it is used for.
    pub usage: BlockUse,
    /// Something is still programmed into it.
    pub open: bool,
    /// Pages that something refers to; never below the truth.
    pub valid_pages: u32,
    /// Erasures; never below the truth but for formats that found no volume.
    pub erases: u32,
    /// Page reads since its erasure; after a power cut up to an eighth of the bound too few.
    pub reads: u32,
}

/// The state of a part. Counts since the mount are in [`FlashReport::counts`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashReport {
    /// Number of the volume.
    pub volume: u64,
    /// Sizes of the part.
    pub geometry: NandGeometry,
    /// How it is shared out.
    pub layout: Layout,
    /// Erase blocks by use, in the order of [`BlockUse::ALL`].
    pub blocks: [u32; 7],
    /// The blocks that are bad.
    pub bad_blocks: Vec<u32>,
    /// Erasures of a good block: fewest, most, sum over all.
    pub erases: (u32, u32, u64),
    /// Good blocks by erasures: so many erasures at least (and fewer than the next entry says), so
    /// many blocks. Sixteen entries of equal width or fewer.
    pub erase_histogram: Vec<(u32, u32)>,
    /// Page reads since its erasure of the block that was read most.
    pub reads_max: u32,
    /// Page reads after which a block is moved.
    pub reads_bound: u32,
    /// Corrected bits of a codeword from which on a block is moved.
    pub bits_bound: u16,
    /// The block that the patrol goes on with.
    pub patrol_position: u32,
    /// Blocks that wait to be moved for flipped bits, many reads, a failure, or wear.
    pub blocks_waiting: u32,
    /// Counts since the mount.
    pub counts: FtlInfo,
    /// Bytes of memory in use.
    pub memory_bytes: usize,
}

impl FlashReport {
    /// Erase blocks that are used like this.
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
    /// Whether this is the block into which garbage collection moves pages now.
    #[must_use]
    pub fn collects_into(&self, block: u32) -> bool {
        self.frontiers[Stream::Moved as usize].block == block
    }

    /// Every erase block. Reads the pages of the block table that were not needed so far.
    ///
    /// # Errors
    /// The part's; both copies of a page of the block table cannot be read.
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

    /// The state of the part. Reads as [`blocks`](Self::blocks) does.
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
