//! The purposes of a part's programs, and the contents of its blocks.

use steadfast_flash::ftl::{BlockDetail, BlockUse, FtlInfo};
use steadfast_flash::model::OperationCounts;

/// Programs per overwrite by purpose, and the blocks at the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    /// File contents, and other pages that the file system does not mark as soon to be rewritten.
    pub data: f64,
    /// Nodes of the tree, and log records that are too long for the journal.
    pub hot: f64,
    /// Pages that garbage collection moves.
    pub moved: f64,
    /// Moved pages that are hot.
    pub moved_hot: f64,
    /// Pages of map, directory and block table, and their second copies.
    pub map: f64,
    /// Journal pages.
    pub journal: f64,
    /// Spill pages.
    pub spill: f64,
    /// Anchors.
    pub anchors: f64,
    /// Erasures per overwrite.
    pub erases: f64,
    /// Blocks by use, in the order of [`BlockUse::ALL`].
    pub blocks: [u32; 7],
    /// Referenced pages in the blocks with data, percent.
    pub valid_percent: f64,
    /// The fewest valid pages in a closed data block, that is, one that receives no more programs.
    pub valid_least: u32,
}

impl Account {
    /// The cost of `overwrites` overwrites, from `before` to `after`, and the blocks, each with
    /// `pages` pages.
    #[must_use]
    pub fn new(
        before: &(OperationCounts, FtlInfo),
        after: &(OperationCounts, FtlInfo),
        overwrites: f64,
        blocks: &[BlockDetail],
        pages: u32,
    ) -> Account {
        let each = |of: fn(&FtlInfo) -> u64| (of(&after.1) - of(&before.1)) as f64 / overwrites;
        let data = || blocks.iter().filter(|block| block.usage == BlockUse::Data);
        let count =
            |usage: BlockUse| blocks.iter().filter(|block| block.usage == usage).count() as u32;
        let valid: u32 = data().map(|block| block.valid_pages).sum();
        let closed = data().filter(|block| !block.open);
        Account {
            data: each(|info| info.cold_pages),
            hot: each(|info| info.hot_pages),
            moved: each(|info| info.moved_pages),
            moved_hot: each(|info| info.moved_hot_pages),
            map: each(|info| info.map_pages),
            journal: each(|info| info.journal_pages),
            spill: each(|info| info.spill_pages),
            anchors: each(|info| info.anchors),
            erases: each(|info| info.erases),
            blocks: BlockUse::ALL.map(count),
            valid_percent: 100.0 * f64::from(valid) / f64::from(count(BlockUse::Data) * pages),
            valid_least: closed.map(|block| block.valid_pages).min().unwrap_or(0),
        }
    }
}
