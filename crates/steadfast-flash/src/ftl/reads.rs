//! Reads of each block since its erasure, kept across mounts, to limit read disturb.
//!
//! Counts are exact in memory. On the part each is a byte in units of a two-hundredth of the limit.
//! They have pages of their own, which the page of second copies names. A count is stored when it
//! has grown by an eighth of the limit since the last time, and at a clean close. So a power cut
//! loses at most that much. A stored count may be too high, if the block was erased since then. So
//! a block may be moved early, but never late.

use alloc::vec;

use super::codec::UNMAPPED;
use super::error::Result;
use super::state::{Ftl, Stream};
use super::tag::Kind;
use crate::nand::Nand;

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
