//! Which blocks the tree uses, and what the allocation bitmaps say.

use alloc::format;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::report::Reporter;
use crate::extent::decode_run;
use crate::key::{Key, Kind};
use crate::layout::Superblock;
use crate::space::{Bitmap, decode_group};
use crate::types::BlockAddress;

/// Bitmaps by group, only for groups in which something is used.
pub(super) struct Usage<'a> {
    superblock: &'a Superblock,
    found: HashMap<u64, Bitmap>,
    stored: HashMap<u64, Bitmap>,
}

impl<'a> Usage<'a> {
    pub fn new(superblock: &'a Superblock) -> Self {
        Usage { superblock, found: HashMap::new(), stored: HashMap::new() }
    }

    /// `count` blocks from `start` on belong to `owner`.
    pub fn take(&mut self, start: BlockAddress, count: u64, owner: &str, reporter: &mut Reporter<'_>) {
        let size = u64::from(self.superblock.group_blocks);
        let end = start.0.saturating_add(count);
        if start.0 < self.superblock.first_block() || end > self.superblock.end_block() {
            reporter.damaged(format!("{owner} uses blocks {}..{end}, which are no data blocks", start.0));
            return;
        }
        let mut block = start.0;
        while block < end {
            let stop = end.min((block / size + 1) * size);
            let bitmap = self.found.entry(block / size).or_insert_with(|| Bitmap::new(size));
            let low = block % size;
            if bitmap.set(low, low + stop - block, true) != stop - block {
                reporter
                    .damaged(format!("{owner} uses blocks {block}..{stop}, of which some are used twice"));
            }
            block = stop;
        }
    }

    /// Looks at an item for blocks that it uses, or for a stored bitmap.
    pub fn item(&mut self, key: &Key, value: &[u8], reporter: &mut Reporter<'_>) {
        match key.kind() {
            Some(Kind::Extent) => {
                if let Some(run) = decode_run(value) {
                    let owner = format!("inode {}", key.inode_number().0);
                    self.take(run.start, run.count, &owner, reporter);
                }
            }
            Some(Kind::Group) => match decode_group(Some(value), &self.allocatable(key.suffix())) {
                Ok(bitmap) => {
                    self.stored.insert(key.suffix(), bitmap);
                }
                Err(reason) => reporter.damaged(format!("bitmap of group {}: {reason}", key.suffix())),
            },
            _ => {}
        }
    }

    fn allocatable(&self, index: u64) -> Bitmap {
        let size = u64::from(self.superblock.group_blocks);
        let start = index.saturating_mul(size);
        let clamp = |block: u64| block.clamp(start, start.saturating_add(size)) - start;
        let mut bitmap = Bitmap::new(size);
        bitmap.set(clamp(self.superblock.first_block()), clamp(self.superblock.end_block()), true);
        bitmap
    }

    /// Compares what was found with the bitmaps and with the metaroot's count.
    pub fn compare(&self, counted: u64, reporter: &mut Reporter<'_>) {
        let size = u64::from(self.superblock.group_blocks);
        let empty = Bitmap::new(size);
        let mut groups: Vec<u64> = self.found.keys().chain(self.stored.keys()).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            let found = self.found.get(&group).unwrap_or(&empty);
            let stored = self.stored.get(&group).unwrap_or(&empty);
            let differs = |used: bool| {
                (0..size).filter(|bit| found.get(*bit) == used && stored.get(*bit) != used).count()
            };
            let first = (0..size).find(|bit| found.get(*bit) != stored.get(*bit));
            if let Some(first) = first {
                let (missing, leaked) = (differs(true), differs(false));
                reporter.damaged(format!(
                    "allocation bitmap of group {group}: {missing} used blocks are marked free, {leaked} free blocks \
                     are marked used, the first at block {}",
                    group * size + first
                ));
            }
        }
        let used: u64 = self.found.values().map(Bitmap::count).sum();
        reporter.report.used_blocks = used;
        if used != counted {
            reporter.damaged(format!("the metaroot counts {counted} used blocks, {used} are in use"));
        }
    }
}

/// Blocks of data that an item stands for.
pub(super) fn blocks_of(key: &Key, value: &[u8]) -> u64 {
    match key.kind() {
        Some(Kind::Extent) => decode_run(value).map_or(0, |run| run.count),
        _ => 0,
    }
}
