//! Reads of each block since its erasure, in memory: exact, and as the bytes that are stored.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Units in the limit.
const UNITS: u32 = 200;
/// Growth, in units, after which a count is stored again.
const STORE_EVERY: u32 = UNITS / 8;

/// The counts in memory.
#[derive(Debug)]
pub struct ReadCounts {
    /// Reads since the erasure; or since the mount, until the stored count is added.
    counts: Vec<u32>,
    /// Stored counts, where known.
    stored: Vec<u8>,
    /// Blocks erased before their stored counts were loaded: these counts are void.
    erased: BTreeSet<u32>,
    /// Whether each page of counts was loaded.
    loaded: Vec<bool>,
    /// Pages of counts to store.
    pub due: BTreeSet<u32>,
    /// Counts in a page.
    per_page: u32,
    /// Reads after which the contents of a block are moved.
    pub bound: u32,
}

impl ReadCounts {
    /// All counts zero.
    #[must_use]
    pub fn new(blocks: u32, page_size: u32, bound: u32) -> ReadCounts {
        let pages = blocks.div_ceil(page_size);
        ReadCounts {
            counts: vec![0; blocks as usize],
            stored: vec![0; blocks as usize],
            erased: BTreeSet::new(),
            loaded: vec![false; pages as usize],
            due: BTreeSet::new(),
            per_page: page_size,
            bound,
        }
    }

    fn unit(&self) -> u32 {
        (self.bound / UNITS).max(1)
    }

    /// Number of pages for the counts.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.loaded.len() as u32
    }

    /// Reads of a block since its erasure, as far as known.
    #[must_use]
    pub fn get(&self, block: u32) -> u32 {
        self.counts.get(block as usize).copied().unwrap_or(0)
    }

    /// Counts a read. Returns whether the block was read too often.
    pub fn add(&mut self, block: u32) -> bool {
        let (unit, page) = (self.unit(), block / self.per_page);
        let Some(count) = self.counts.get_mut(block as usize) else { return false };
        *count = count.saturating_add(1);
        let count = *count;
        if count.is_multiple_of(unit) {
            let stored = self.stored.get(block as usize).map_or(0, |stored| u32::from(*stored));
            if (count / unit).min(255) >= (stored + STORE_EVERY).min(255) {
                self.due.insert(page);
            }
        }
        count >= self.bound
    }

    /// Resets the count of an erased block.
    pub fn erased(&mut self, block: u32) {
        if let Some(count) = self.counts.get_mut(block as usize) {
            *count = 0;
        }
        if self.loaded.get((block / self.per_page) as usize) == Some(&false) {
            self.erased.insert(block);
        }
    }

    /// Whether the stored counts of this page were added.
    #[must_use]
    pub fn is_loaded(&self, page: u32) -> bool {
        self.loaded.get(page as usize).copied().unwrap_or(true)
    }

    /// Adds the stored counts of a page.
    pub fn load(&mut self, page: u32, bytes: &[u8]) {
        let unit = self.unit();
        for (block, byte) in (page * self.per_page..).zip(bytes) {
            let known = !self.erased.remove(&block);
            let (Some(count), Some(stored)) =
                (self.counts.get_mut(block as usize), self.stored.get_mut(block as usize))
            else {
                break;
            };
            *stored = *byte;
            if known {
                *count = count.saturating_add(u32::from(*byte) * unit);
            }
        }
        if let Some(loaded) = self.loaded.get_mut(page as usize) {
            *loaded = true;
        }
    }

    /// The bytes of a page, which then count as stored.
    pub fn store(&mut self, page: u32) -> Vec<u8> {
        let unit = self.unit();
        let first = (page * self.per_page) as usize;
        let end = (first + self.per_page as usize).min(self.counts.len());
        let bytes: Vec<u8> = self
            .counts
            .get(first..end)
            .unwrap_or(&[])
            .iter()
            .map(|count| u8::try_from(count / unit).unwrap_or(u8::MAX))
            .collect();
        if let Some(stored) = self.stored.get_mut(first..end) {
            stored.copy_from_slice(&bytes);
        }
        self.due.remove(&page);
        bytes
    }

    /// Pages with a count that exceeds the stored one by a unit or more.
    pub fn changed(&self) -> BTreeSet<u32> {
        let unit = self.unit();
        let differs = |(count, stored): (&u32, &u8)| count / unit > u32::from(*stored);
        let blocks = self.counts.iter().zip(&self.stored).enumerate();
        blocks
            .filter(|(_, pair)| differs(*pair))
            .map(|(block, _)| block as u32 / self.per_page)
            .collect()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        5 * self.counts.capacity() + self.loaded.capacity() + 24 * self.erased.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_through_bytes() {
        let mut counts = ReadCounts::new(20, 16, 2000);
        for _ in 0..1999 {
            assert!(!counts.add(17));
        }
        assert!(counts.add(17));
        counts.add(3);
        assert_eq!((counts.due.clone(), counts.pages()), (BTreeSet::from([1]), 2));
        let bytes = counts.store(1);
        assert_eq!((bytes[1], counts.due.len()), (200, 0));
        let mut again = ReadCounts::new(20, 16, 2000);
        again.add(17);
        again.erased(18);
        again.load(1, &[9, 200, 200, 0]);
        assert_eq!((again.get(17), again.get(16), again.get(18)), (2001, 90, 0));
        assert!(again.is_loaded(1) && !again.is_loaded(0));
    }
}
