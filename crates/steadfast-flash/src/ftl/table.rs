//! The block table: state, count of valid pages and erasures of every erase block, 4 bytes each.
//!
//! The count is never too low. Every journal page contains the entries that differ from the table
//! pages on the part (the blocks in `dirty`). Entries are loaded on demand and are [`UNKNOWN`]
//! before.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Use of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// Unused; erased before its use.
    Free,
    /// Logical pages.
    Data,
    /// Map, directory, table, spill pages.
    Map,
    /// Journal or anchors.
    Journal,
    /// Bad.
    Bad,
    /// Not needed by the newest journal page; free after two more journal pages.
    Pending,
}

const STATES: [BlockState; 6] = [
    BlockState::Free,
    BlockState::Data,
    BlockState::Map,
    BlockState::Journal,
    BlockState::Bad,
    BlockState::Pending,
];

/// An entry that is not loaded yet.
pub const UNKNOWN: u32 = u32::MAX;
const ERASES_MAX: u32 = (1 << 19) - 1;

/// An entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its use.
    pub state: BlockState,
    /// Pages in use, at most 512.
    pub valid: u32,
    /// Erasures.
    pub erases: u32,
}

impl BlockInfo {
    /// Encodes the entry: state 3 bits, valid 10 bits, erasures 19 bits.
    #[must_use]
    pub fn encode(self) -> u32 {
        let state = STATES.iter().position(|state| *state == self.state).unwrap_or(0) as u32;
        state << 29 | self.valid.min(1023) << 19 | self.erases.min(ERASES_MAX)
    }

    /// Decodes a stored entry; `None` if the state is invalid.
    #[must_use]
    pub fn decode(word: u32) -> Option<BlockInfo> {
        let state = *STATES.get((word >> 29) as usize)?;
        Some(BlockInfo { state, valid: word >> 19 & 1023, erases: word & ERASES_MAX })
    }
}

/// The table in memory.
#[derive(Debug)]
pub struct Table {
    words: Vec<u32>,
    /// Blocks whose entries changed after their page was written.
    pub dirty: BTreeSet<u32>,
    /// Place of each page of the table.
    pub pages: Vec<u32>,
    /// Blocks in a page of the table.
    pub per_page: u32,
}

impl Table {
    /// A table without known entries.
    #[must_use]
    pub fn new(blocks: u32, per_page: u32, pages: Vec<u32>) -> Table {
        Table { words: vec![UNKNOWN; blocks as usize], dirty: BTreeSet::new(), pages, per_page }
    }

    /// The entry of a block, if it is known.
    #[must_use]
    pub fn get(&self, block: u32) -> Option<BlockInfo> {
        self.words.get(block as usize).copied().and_then(BlockInfo::decode)
    }

    /// Changes an entry and makes it dirty.
    pub fn set(&mut self, block: u32, info: BlockInfo) {
        if let Some(word) = self.words.get_mut(block as usize) {
            *word = info.encode();
            self.dirty.insert(block);
        }
    }

    /// Changes an entry without making it dirty: the old entry on the part is still acceptable.
    pub fn set_quietly(&mut self, block: u32, info: BlockInfo) {
        if let Some(word) = self.words.get_mut(block as usize) {
            *word = info.encode();
        }
    }

    /// Enters stored values where the entries are unknown. Returns the new entries.
    pub fn fill(&mut self, page: u32, stored: &[u32]) -> Vec<(u32, BlockInfo)> {
        let first = page * self.per_page;
        let mut new = Vec::new();
        for (at, stored) in stored.iter().enumerate() {
            let block = first + at as u32;
            let Some(word) = self.words.get_mut(block as usize) else { break };
            if *word == UNKNOWN {
                *word = *stored;
                new.extend(BlockInfo::decode(*stored).map(|info| (block, info)));
            }
        }
        new
    }

    /// The words of a page of the table; its blocks are no longer dirty.
    pub fn serialize(&mut self, page: u32) -> Vec<u32> {
        let first = page * self.per_page;
        let end = (first + self.per_page).min(self.words.len() as u32);
        for block in first..end {
            self.dirty.remove(&block);
        }
        let mut words: Vec<u32> =
            self.words.get(first as usize..end as usize).unwrap_or(&[]).to_vec();
        words.resize(self.per_page as usize, UNKNOWN);
        words
    }

    /// Pages of the table with dirty entries, and the number of these.
    #[must_use]
    pub fn dirty_pages(&self) -> Vec<(usize, u32)> {
        let mut pages: Vec<(usize, u32)> = Vec::new();
        for page in self.dirty.iter().map(|block| block / self.per_page) {
            match pages.last_mut() {
                Some((count, last)) if *last == page => *count += 1,
                _ => pages.push((1, page)),
            }
        }
        pages
    }

    /// All known entries.
    pub fn known(&self) -> impl Iterator<Item = (u32, BlockInfo)> + '_ {
        let known = |(block, word): (usize, &u32)| Some((block as u32, BlockInfo::decode(*word)?));
        self.words.iter().enumerate().filter_map(known)
    }

    /// The first page of the table with an unknown entry.
    #[must_use]
    pub fn first_unknown_page(&self) -> Option<u32> {
        let at = self.words.iter().position(|word| *word == UNKNOWN)?;
        Some(at as u32 / self.per_page)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        4 * (self.words.capacity() + self.pages.capacity()) + 24 * self.dirty.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        for state in STATES {
            let info = BlockInfo { state, valid: 512, erases: 200_000 };
            assert_eq!(BlockInfo::decode(info.encode()), Some(info));
        }
        assert_eq!(BlockInfo::decode(UNKNOWN), None);
        let mut table = Table::new(10, 4, vec![0; 3]);
        let info = BlockInfo { state: BlockState::Data, valid: 3, erases: 9 };
        table.set(5, info);
        let free = BlockInfo { state: BlockState::Free, valid: 0, erases: 1 };
        let new = table.fill(1, &[free.encode(); 4]);
        assert_eq!(new.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [4, 6, 7]);
        assert_eq!((table.get(5), table.get(4), table.get(0)), (Some(info), Some(free), None));
        assert_eq!(table.serialize(1)[1], info.encode());
        assert!(table.dirty.is_empty());
    }
}
