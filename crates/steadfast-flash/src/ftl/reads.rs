//! Reads of each block since its erasure, kept across mounts, to limit read disturb.
//!
//! Counts are exact in memory. On the part each is a byte in units of a two-hundredth of the limit.
//! They have pages of their own, which the page of second copies names. A count is stored when it
//! has grown by an eighth of the limit since the last time, and at a clean close. So a power cut
//! loses at most that much. A stored count may be too high, if the block was erased since then. So
//! a block may be moved early, but never late.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::codec::UNMAPPED;
use super::error::Result;
use super::state::{Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

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
    fn changed(&self) -> BTreeSet<u32> {
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

impl<N: Nand> Ftl<N> {
    /// Adds the stored counts of a page. Unreadable counts are lost: they start from zero.
    pub(super) fn load_reads(&mut self, page: u32) -> Result<()> {
        if self.reads.is_loaded(page) {
            return Ok(());
        }
        let address = self.second()?.reads.get(page as usize).copied().unwrap_or(UNMAPPED);
        let mut bytes = vec![0; self.geometry.page_size as usize];
        if address != UNMAPPED {
            let tag = self.read_tagged(address, &mut bytes)?;
            if tag.is_none_or(|tag| tag.kind != Kind::Reads || tag.id != page) {
                bytes.fill(0);
            }
        }
        self.reads.load(page, &bytes);
        Ok(())
    }

    /// Stores counts that are due, even without a write. If that fails, the read is still valid.
    pub(super) fn store_reads_due(&mut self) {
        if !self.reads.due.is_empty() && self.failed.is_none() {
            let stored = self.guarded(|ftl| ftl.upkeep());
            debug_assert!(stored.is_ok() || self.failed.is_some());
        }
    }

    /// Stores the counts that differ from the stored ones.
    pub(super) fn store_reads_at_close(&mut self) -> Result<()> {
        for page in self.reads.changed() {
            self.load_reads(page)?;
        }
        let changed = self.reads.changed();
        self.reads.due.extend(changed);
        Ok(())
    }

    /// Writes the pages of counts that are due.
    pub(super) fn write_reads(&mut self) -> Result<()> {
        while let Some(page) = self.reads.due.first().copied() {
            self.load_reads(page)?;
            let mut bytes = self.reads.store(page);
            bytes.resize(self.geometry.page_size as usize, 0);
            let address = self.program(Stream::Copy, Kind::Reads, page, &bytes)?;
            self.increment(self.block_of(address))?;
            self.info.map_pages += 1;
            let slot = self.second()?.reads.get_mut(page as usize);
            let old = slot.map_or(UNMAPPED, |slot| core::mem::replace(slot, address));
            self.supersede(old)?;
        }
        Ok(())
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
