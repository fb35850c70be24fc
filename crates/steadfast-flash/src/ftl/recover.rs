//! Recovery after an unclean stop: finds pages that the journal does not name, and replaces pages
//! that may be unstable.
//!
//! At most [`JOURNAL_EVERY`] host pages follow the newest journal page, in the two open blocks that
//! it names for them. They are read once. The last programmed page may be unstable. With paired
//! pages, so may the pages that its program could damage. These pages are programmed again
//! elsewhere. Only then a new journal page and an anchor commit the result; a power cut before that
//! leaves everything unchanged.
//!
//! Pages that garbage collection moved after the journal page are not searched: their sources are
//! still there and counted.

use alloc::vec;
use alloc::vec::Vec;

use super::JOURNAL_EVERY;
use super::codec::{Frontier, UNMAPPED};
use super::error::Result;
use super::state::{Ftl, Stream};
use super::tag::{Kind, Tag};
use crate::nand::{Nand, Pairing};

/// More than the number of pages programmed between two journal pages.
pub(super) const RECOVERY_STEP: u64 = 1 << 20;

/// A data page written after the journal page.
struct Found {
    tag: Tag,
    page: u32,
    data: Vec<u8>,
}

impl<N: Nand> Ftl<N> {
    pub(super) fn recover(&mut self, read_only: bool) -> Result<()> {
        let journal = self.sequence;
        let mut found = Vec::new();
        for stream in Stream::OF_HOST {
            self.look_past(self.frontiers[stream as usize], journal, &mut found)?;
        }
        found.sort_by_key(|found| found.tag.sequence);
        for Found { tag, page, .. } in &found {
            self.set_place(tag.id, *page)?;
        }
        if read_only {
            found
                .into_iter()
                .for_each(|Found { tag, page, data }| self.note_recent(&tag, page, data));
            return Ok(());
        }
        let newest = found.last().map_or(journal, |found| found.tag.sequence);
        // Higher than any unreadable page.
        self.sequence = newest + RECOVERY_STEP;
        for stream in [Stream::Host, Stream::Moved, Stream::Structure, Stream::Copy, Stream::Hot] {
            self.close_frontier(stream)?;
        }
        self.leave_journal_block()?;
        let suspects = if self.geometry.pairing == Pairing::None { 1 } else { found.len() };
        let first = found.len() - suspects.min(found.len());
        for (at, Found { tag, mut page, data }) in found.into_iter().enumerate() {
            if at >= first && self.place(tag.id)? == page {
                page = self.program_data(Stream::Host, tag.kind, tag.id, &data)?;
            }
            // The file system reads the end of its log next.
            self.note_recent(&tag, page, data);
        }
        // A page of the ring block may have been started: the next anchor goes to the next block.
        self.journal.ring.1 = self.geometry.pages_per_block;
        self.begin()?;
        // With few free blocks, the blocks that this session has left become free now, while its
        // journal page still needs no more room than before.
        for _ in 0..2 {
            if self.free.len() <= self.free_min() && !self.pending.is_empty() {
                self.write_journal(0)?;
            }
        }
        // Each recovery changes entries of the block table. Without writes between many recoveries
        // only this step stores them, and all must fit into a journal page.
        if self.table.dirty.len() > self.fixups_max() * 3 / 2 {
            self.write_map_step(false)?;
        }
        Ok(())
    }

    fn look_past(
        &mut self,
        frontier: Frontier,
        journal: u64,
        found: &mut Vec<Found>,
    ) -> Result<()> {
        if frontier.block == UNMAPPED {
            return Ok(());
        }
        let reach = self.geometry.pairing.reach();
        let mut erased = 0;
        // With paired pages some pages are skipped.
        let end = (frontier.page + JOURNAL_EVERY * (reach + 1)).min(self.geometry.pages_per_block);
        let mut data = vec![0; self.geometry.page_size as usize];
        for at in frontier.page..end {
            let page = self.page(frontier.block, at).0;
            let tag = self.read_tagged(page, &mut data)?;
            if tag.is_none() && Self::looks_erased(&data) {
                erased += 1;
                if erased > reach {
                    break;
                }
                continue;
            }
            erased = 0;
            let ours = |tag: &Tag| {
                matches!(tag.kind, Kind::Data | Kind::Lost)
                    && tag.sequence > journal
                    && tag.id < self.layout.user_pages
            };
            if let Some(tag) = tag.filter(ours) {
                found.push(Found { tag, page, data: data.clone() });
            }
        }
        Ok(())
    }
}
