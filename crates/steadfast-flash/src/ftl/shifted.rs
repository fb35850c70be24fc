//! Images for device programmers, and the first mount of a part that one was put on.
//!
//! A programmer puts each next block of an image into the next good block of the part. Such an
//! image says so in its anchors (`in_good_blocks`), and nothing is in its last blocks, as many as
//! may be bad. The first mount looks once which blocks are bad, and from then on every anchor names
//! them: see [`Placed`](super::placed::Placed).
//!
//! - Until two anchors that name them are on the part, nothing of the image has been changed that
//!   it needs, and no block is marked bad: a power cut begins the first mount again, with the same
//!   blocks to be skipped.
//! - Afterwards the marks are not asked any more.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::anchor::Anchor;
use super::error::{FlashError, Result};
use super::state::{Ftl, Stream};
use super::table::{BlockInfo, BlockState};
use super::tag::{Kind, Tag};
use crate::nand::{BlockNumber, Nand};

/// The first page of a block of structures that can be read.
#[derive(Debug)]
pub(super) enum First {
    /// Its tag, its place in the block, its data.
    Page(Tag, u32, Vec<u8>),
    /// The block looks erased.
    Erased,
    /// Something was programmed that cannot be read.
    Torn,
}
/// Those of blocks of the part that were read already.
pub(super) type FirstPages = BTreeMap<u32, First>;

/// Blocks at the start of the part that are looked at for an anchor that says where the blocks are.
const LOOK_FIRST: u32 = 3;

/// Blocks behind those of the ring that are looked at for an anchor, where there is none in the
/// first ones, or only that of an image: so many bad blocks at the start of a part can be skipped.
const LOOK_BEYOND: u32 = 12;

impl<N: Nand> Ftl<N> {
    /// Finds out where the blocks of the volume are, from the newest anchor at the start of the
    /// part. Where there is none, nothing is changed. Returns what it has read: the first pages of
    /// blocks of the part, so that nobody reads them again.
    pub(super) fn find_places(&mut self) -> Result<FirstPages> {
        let mut pages = FirstPages::new();
        let mut newest: Option<(u64, Anchor)> = None;
        let look = self.layout.ring.min(LOOK_FIRST);
        for block in 0..(look + LOOK_BEYOND).min(self.geometry.blocks) {
            // As a rule that is all that is read here.
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

    /// The first page of a block of the ring that can be read.
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

    /// The block of the part that is block `block` of the volume: another one only where an image
    /// was put on a part with bad blocks.
    #[must_use]
    pub fn place_of(&self, block: BlockNumber) -> BlockNumber {
        BlockNumber(self.nand.place(block.0))
    }

    /// Every block with a bad-block mark.
    fn bad_blocks(&mut self) -> Result<Vec<u32>> {
        let mut bad = Vec::new();
        for block in 0..self.geometry.blocks {
            if self.nand.is_bad(BlockNumber(block))? {
                bad.push(block);
            }
        }
        Ok(bad)
    }

    /// The first mount of an image that was put into the good blocks of this part: enters which of
    /// the blocks that were left free for them are bad, and has anchors say from now on which are
    /// skipped.
    pub(super) fn settle(&mut self, read_only: bool) -> Result<()> {
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
        // In blocks of their own: the first page of one is what the next mount goes by, and there
        // are two. Among the first slots, where that mount looks; but not where the image has its
        // own anchor.
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
