//! A bounded cache of map and directory pages, with the same contents as on the part.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A page of the map or the directory, with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapPage {
    /// Places of logical pages.
    Map(u32),
    /// Places of map pages.
    Directory(u32),
}

/// The cache, with least-recently-used eviction.
#[derive(Debug)]
pub struct MapCache {
    pages: BTreeMap<MapPage, (Vec<u32>, u64)>,
    clock: u64,
    capacity: usize,
}

impl MapCache {
    /// A cache of this many pages, at least 2.
    #[must_use]
    pub fn new(capacity: usize) -> MapCache {
        MapCache { pages: BTreeMap::new(), clock: 0, capacity: capacity.max(2) }
    }

    /// The words of a page, if it is cached.
    pub fn get(&mut self, page: MapPage) -> Option<&Vec<u32>> {
        self.clock += 1;
        let (words, used) = self.pages.get_mut(&page)?;
        *used = self.clock;
        Some(words)
    }

    /// Adds or replaces a page.
    pub fn put(&mut self, page: MapPage, words: Vec<u32>) {
        self.clock += 1;
        self.pages.insert(page, (words, self.clock));
        if self.pages.len() > self.capacity {
            let oldest =
                self.pages.iter().min_by_key(|(_, (_, used))| *used).map(|(page, _)| *page);
            oldest.map(|page| self.pages.remove(&page));
        }
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.pages.values().map(|(words, _)| 4 * words.capacity() + 64).sum()
    }
}
