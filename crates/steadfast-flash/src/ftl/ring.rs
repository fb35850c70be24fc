//! The anchor ring: finds the block with the newest anchor.
//!
//! Anchors rotate in order, so a ring with many blocks is searched by halves. Unreadable or bad
//! slots give no information. If that misleads the search, all slots are read.

use super::anchor::Anchor;
use super::error::{FlashError, Result};
use super::layout::SLOTS_IN_TURN;
use super::mount::{JournalPage, Last};
use super::shifted::{First, FirstPages};
use super::state::Ftl;
use super::tag::Kind;
use crate::nand::{BlockNumber, Nand};

/// A block of the ring.
enum Slot {
    Anchor(Last),
    Erased,
    /// Torn, lost, or foreign.
    Unreadable,
}

impl<N: Nand> Ftl<N> {
    pub(super) fn find_journal(&mut self) -> Result<JournalPage> {
        let mut refused = FlashError::NotFormatted;
        let mut pages = self.find_places()?;
        let mut found = None;
        if self.layout.has_long_ring() {
            found = self.newest_slot_by_halves(&mut pages, &mut refused)?;
        }
        // One by one in a small ring, and after a binary search that failed, which many bad blocks
        // can cause.
        for in_turn in [false, true] {
            if in_turn || found.is_none() {
                found = self.newest_slot_in_turn(&mut pages, &mut refused)?;
            }
            let Some((slot, first)) = found.take() else { return Err(refused) };
            if let Some(journal) = self.journal_of_slot(slot, first)? {
                return Ok(journal);
            }
            refused = FlashError::Damaged {
                page: self.page(slot, 0).0,
                what: "no anchor leads to a journal",
            };
        }
        Err(refused)
    }

    /// The first anchor in a slot of the ring.
    fn slot_anchor(
        &mut self,
        slot: u32,
        pages: &mut FirstPages,
        refused: &mut FlashError,
    ) -> Result<Slot> {
        let (tag, page, data) = match self.first_of_ring(slot, pages)? {
            First::Page(tag, page, data) => (tag, page, data),
            First::Erased => return Ok(Slot::Erased),
            First::Torn => return Ok(Slot::Unreadable),
        };
        if tag.kind != Kind::Anchor {
            return Ok(Slot::Unreadable);
        }
        match Anchor::decode(&data, &self.geometry) {
            Ok(Some(_)) => return Ok(Slot::Anchor(Last { tag, data, page })),
            Ok(None) => {}
            Err(error) => *refused = error,
        }
        Ok(Slot::Unreadable)
    }

    fn newest_slot_in_turn(
        &mut self,
        pages: &mut FirstPages,
        refused: &mut FlashError,
    ) -> Result<Option<(u32, Last)>> {
        let mut newest: Option<(u32, Last)> = None;
        for slot in 0..self.layout.ring {
            if let Slot::Anchor(last) = self.slot_anchor(slot, pages, refused)?
                && newest.as_ref().is_none_or(|(_, newest)| newest.tag.sequence < last.tag.sequence)
            {
                newest = Some((slot, last));
            }
        }
        Ok(newest)
    }

    /// Anchors rotate in order. After the first slot their numbers increase up to the newest one;
    /// then come older ones or none. A bad block or an unreadable page gives no information, so the
    /// next slot is used instead.
    fn newest_slot_by_halves(
        &mut self,
        pages: &mut FirstPages,
        refused: &mut FlashError,
    ) -> Result<Option<(u32, Last)>> {
        let mut best: Option<(u32, Last)> = None;
        for slot in 0..SLOTS_IN_TURN {
            if let Slot::Anchor(last) = self.slot_anchor(slot, pages, refused)? {
                best = Some((slot, last));
                break;
            }
        }
        let Some((mut newest, mut last)) = best else { return Ok(None) };
        let base = last.tag.sequence;
        let mut end = self.layout.ring;
        loop {
            while newest + 1 < end {
                // The first slots were read already, so they are checked one by one.
                let next = newest + 1;
                let middle = if pages.contains_key(&self.nand.place(next)) {
                    next
                } else {
                    newest.midpoint(end)
                };
                match self.later_anchor(middle..end, base, pages, refused)? {
                    Some(found) => (newest, last) = found,
                    None => end = middle,
                }
            }
            // Only a good block can end the search.
            if end >= self.layout.ring || !self.nand.is_bad(BlockNumber(end))? {
                break;
            }
            match self.later_anchor(end + 1..self.layout.ring, base, pages, refused)? {
                Some(found) => ((newest, last), end) = (found, self.layout.ring),
                None => break,
            }
        }
        Ok(Some((newest, last)))
    }

    /// The first of these slots that gives information, if that is an anchor of this round.
    fn later_anchor(
        &mut self,
        slots: core::ops::Range<u32>,
        base: u64,
        pages: &mut FirstPages,
        refused: &mut FlashError,
    ) -> Result<Option<(u32, Last)>> {
        for slot in slots.take(SLOTS_IN_TURN as usize) {
            match self.slot_anchor(slot, pages, refused)? {
                Slot::Anchor(found) if found.tag.sequence >= base => {
                    return Ok(Some((slot, found)));
                }
                Slot::Unreadable => {}
                Slot::Anchor(_) | Slot::Erased => break,
            }
        }
        Ok(None)
    }

    /// Follows the newest anchor in a slot whose journal is readable. An older anchor leads there
    /// too, along a longer chain.
    fn journal_of_slot(&mut self, slot: u32, first: Last) -> Result<Option<JournalPage>> {
        let Some(mut last) = self.last_in_block(slot, Kind::Anchor, Some(first))? else {
            return Ok(None);
        };
        self.journal.ring = (slot, last.page + 1);
        loop {
            if let Some(anchor) = Anchor::decode(&last.data, &self.geometry)?
                && let Some(found) = self.follow(&anchor)?
            {
                return Ok(Some(found));
            }
            match self.before(slot, Kind::Anchor, last.page)? {
                Some(before) => last = before,
                None => return Ok(None),
            }
        }
    }
}
