//! Where the programs of a part go, and what its blocks hold.

use steadfast_flash::ftl::{BlockDetail, BlockUse, FtlInfo};
use steadfast_flash::model::OperationCounts;

/// Programs for each overwrite by what they are for, and the blocks at the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    /// File contents, and what the file system does not say it will write again soon.
    pub data: f64,
    /// Nodes of its tree, and records of its log that are too long for the journal.
    pub hot: f64,
    /// Pages that garbage collection moves.
    pub moved: f64,
    /// Of these, hot ones.
    pub moved_hot: f64,
    /// Map, directory, block table, their second copies.
    pub map: f64,
    /// Journal pages.
    pub journal: f64,
    /// Spill pages.
    pub spill: f64,
    /// Anchors.
    pub anchors: f64,
    /// Erasures for each overwrite.
    pub erases: f64,
    /// Blocks by use, in the order of [`BlockUse::ALL`].
    pub blocks: [u32; 7],
    /// Percent of the pages in the blocks with data that something refers to.
    pub valid_percent: f64,
    /// The fewest valid pages in a block with data to which nothing is programmed any more.
    pub valid_least: u32,
}

impl Account {
    /// What was spent from `before` to `after` on so many overwrites; and the blocks, of so many
    /// pages each.
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
