//! Images for device programmers, and the first mount of a part that holds one.
//!
//! A programmer puts each next block of an image into the next good block of the part. Such an
//! image states this in its anchors (`in_good_blocks`), and its last blocks are empty: as many as
//! may be bad. The first mount finds the bad blocks, and from then on every anchor lists them: see
//! [`Placed`](super::placed::Placed).
//!
//! - Until the part has two anchors with the list, nothing is changed that the image needs, and no
//!   block is marked bad. After a power cut the first mount starts again and skips the same blocks.
//! - Afterwards the marks are not read any more.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::anchor::Anchor;
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::table::{BlockInfo, BlockState};
use super::tag::{Kind, Tag};
use crate::nand::{BlockNumber, Nand};

/// The first readable page of a block of structures.
#[derive(Debug)]
pub(super) enum First {
    /// Tag, page number in the block, data.
    Page(Tag, u32, Vec<u8>),
    /// The block looks erased.
    Erased,
    /// A programmed page is unreadable.
    Torn,
}
/// First pages of blocks of the part that were already read.
pub(super) type FirstPages = BTreeMap<u32, First>;

/// Blocks at the start of the part that are searched for an anchor with the list of skipped blocks.
const LOOK_FIRST: u32 = 3;

/// Further blocks to search if the first ones have no anchor, or only that of an image. So many bad
/// blocks at the start of a part can be skipped.
const LOOK_BEYOND: u32 = 12;

impl<N: Nand> Ftl<N> {
    /// Finds the positions of the volume's blocks, from the newest anchor at the start of the part.
    /// Without an anchor nothing changes. Returns the first pages that it has read, so that they
    /// are not read again.
    pub(super) fn find_places(&mut self) -> Result<FirstPages> {
        let mut pages = FirstPages::new();
        let mut newest: Option<(u64, Anchor)> = None;
        let look = self.layout.ring.min(LOOK_FIRST);
        for block in 0..(look + LOOK_BEYOND).min(self.geometry.blocks) {
            // Usually no more pages are read here.
            if block == look && newest.as_ref().is_some_and(|(_, anchor)| !anchor.in_good_blocks) {
                break;
            }
            let first = self.first(block)?;
            let found = match &first {
                First::Page(tag, _, data) if tag.kind == Kind::Anchor => {
                    let anchor = Anchor::decode(data, &self.geometry).ok().flatten();
                    anchor.map(|anchor| (tag.sequence, anchor))
                }
                _ => None,
            };
            if let Some(found) = found
                && newest.as_ref().is_none_or(|(sequence, _)| *sequence < found.0)
            {
                newest = Some(found);
            }
            pages.insert(block, first);
        }
        let Some((_, anchor)) = newest else { return Ok(pages) };
        if !anchor.in_good_blocks {
            self.nand.skip(anchor.skipped);
            return Ok(pages);
        }
        let skipped = self.bad_blocks()?;
        let (blocks, bad) = (self.geometry.blocks, skipped.len() as u32);
        if bad > self.geometry.bad_max {
            return Err(FlashError::TooSmall {
                blocks: blocks - bad,
                needed: blocks - self.geometry.bad_max,
            });
        }
        self.nand.skip(skipped);
        self.nand.hold_marks();
        self.in_good_blocks = true;
        Ok(pages)
    }

    /// The first readable page of a ring block.
    pub(super) fn first_of_ring(&mut self, slot: u32, pages: &mut FirstPages) -> Result<First> {
        if let Some(read) = pages.remove(&self.nand.place(slot)) {
            return Ok(read);
        }
        self.first(slot)
    }

    fn first(&mut self, block: u32) -> Result<First> {
        let mut data = vec![0; self.geometry.page_size as usize];
        Ok(match self.first_readable(block, &mut data)? {
            Some((tag, page)) => First::Page(tag, page, data),
            None if Self::looks_erased(&data) => First::Erased,
            None => First::Torn,
        })
    }

    /// The block of the part for block `block` of the volume. It differs only if an image was put
    /// on a part with bad blocks.
    #[must_use]
    pub fn place_of(&self, block: BlockNumber) -> BlockNumber {
        BlockNumber(self.nand.place(block.0))
    }

    /// All blocks with a bad-block mark.
    fn bad_blocks(&mut self) -> Result<Vec<u32>> {
        let mut bad = Vec::new();
        for block in 0..self.geometry.blocks {
            if self.nand.is_bad(BlockNumber(block))? {
                bad.push(block);
            }
        }
        Ok(bad)
    }

    /// Completes the first mount of an image. It enters the bad blocks among the empty last blocks
    /// into the table, and writes anchors with the list of skipped blocks.
    pub(super) fn complete_first_mount(&mut self, read_only: bool) -> Result<()> {
        if !self.in_good_blocks {
            return Ok(());
        }
        let blocks = self.geometry.blocks;
        let good = blocks - self.nand.skipped().len() as u32;
        for block in blocks - self.geometry.bad_max..blocks {
            let info = self.block(block)?;
            match (block < good, info.state) {
                (true, BlockState::Bad) => {
                    let info = BlockInfo { state: BlockState::Free, valid: 0, ..info };
                    self.table.set(block, info);
                    self.free.insert((info.erases, block));
                }
                (false, state) if state != BlockState::Bad => {
                    self.free.remove(&(info.erases, block));
                    self.table.set(block, BlockInfo { state: BlockState::Bad, valid: 0, ..info });
                }
                _ => {}
            }
        }
        if read_only {
            return Ok(());
        }
        if self.table.dirty.len() > self.fixups_max() {
            self.close_frontier(Stream::Structure)?;
            self.close_frontier(Stream::Copy)?;
            self.write_structures()?;
        }
        self.begin()?;
        self.write_journal(0)?;
        self.in_good_blocks = false;
        // Each in a block of its own: the next mount uses the first page of one of them, and there
        // are two. They are in the first slots, which that mount reads; but not in the slot of the
        // image's own anchor.
        if self.journal.ring.0 >= 2 {
            self.journal.ring.0 = self.layout.ring - 1;
        }
        for _ in 0..2 {
            self.journal.ring.1 = self.geometry.pages_per_block;
            self.write_anchor()?;
        }
        Ok(self.nand.release_marks()?)
    }
}
