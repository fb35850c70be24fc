//! Segments that are needed no more say so on the servers, and their room is given back there.
//!
//! A segment is done with once newer versions of all its blocks are flushed, or the blocks were
//! discarded. What is in it still looks like records, and whoever opens the array later would have
//! to take them for such, though a server that was rebuilt meanwhile was not given them. So a
//! **mark**, a header without blocks and newer than everything in the segment, is written to its
//! front on every server, and the rest is trimmed.
//!
//! # Invariants
//! - A mark is written only after everything that makes the segment unneeded is flushed, and the
//!   segment is used again only after the mark is: no server can come back without both.
//! - Where blocks have homes the order matters, and marks of one round may survive in any. So a
//!   mark says up to where segments are not needed, and one that is found stands for all of them.
//! - Until all servers have answered the mark, the segment is given to a member that is being
//!   rebuilt.

use super::map::{Map, Segment};
use super::record::Header;
use super::seal::{Log, Stream};
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// Segments marked at once: bounds the work under the lock of the log.
const MARKS_MAX: usize = 16;
/// The same before a large write, which takes segments at once.
const MARKS_AHEAD_MAX: usize = 64;
/// Fewer are not worth the round trips before a large write.
const MARKS_AHEAD_MIN: usize = 4;
/// So often one after the other.
const TURNS_MAX: usize = 16;

impl<F: Fleet> Array<F> {
    /// Marks segments that are done with. They are free after the next flush.
    pub(crate) fn mark(&self, log: &mut Log) -> Result<(), ArrayError> {
        self.mark_some(log, 1, MARKS_MAX)
    }

    /// The same before a large write that takes segments of its own: the servers get back what is
    /// done with, and that write goes into memory that is warm there, not into fresh one.
    pub(crate) fn mark_ahead(&self, log: &mut Log) -> Result<(), ArrayError> {
        self.mark_some(log, MARKS_AHEAD_MIN, MARKS_AHEAD_MAX)
    }

    fn mark_some(&self, log: &mut Log, least: usize, most: usize) -> Result<(), ArrayError> {
        // What is newer than something in them may not be flushed, or, where groups were written,
        // not be known to be there.
        let covered = log.places.are_committed() || planted(Sabotage::MarkUncommitted);
        if (log.durable + 1 != log.next || !covered) && !planted(Sabotage::MarkBeforeFlush) {
            return Ok(());
        }
        let (slots, unmarked) = self.done_with(log, most);
        if slots.len() < least {
            return Ok(());
        }
        let (seats, trims, superblock) = {
            let members = self.members.read();
            (members.writable_seats(), members.trim.clone(), members.superblock.clone())
        };
        let forgetful = planted(Sabotage::MarksLost) || planted(Sabotage::OldRecordCounts);
        let arrives = |slot: u32| !forgetful || !slot.is_multiple_of(4);
        if self.shape.has_homes() && !planted(Sabotage::MarkYounger) && !forgetful {
            let map = self.map.read();
            let marked = slots.iter().filter_map(|slot| map.segments.get(*slot as usize));
            // Of those that are marked already, or never counted, the generation says nothing.
            let done = marked
                .filter(|segment| segment.stream == Stream::Fresh && !segment.records.is_empty());
            log.floor = log.floor.max(done.map(|segment| segment.generation).max().unwrap_or(0));
        }
        let mut heads = Vec::with_capacity(slots.len());
        for slot in &slots {
            let head =
                Header::mark(&self.shape, &superblock, log.next, log.durable, *slot, log.floor);
            heads.push((*slot, log.next, head.encode(&self.shape)));
            log.next += 1;
        }
        let pieces: Vec<[&[u8]; 1]> = heads.iter().map(|(_, _, head)| [&head[..]]).collect();
        let mut calls = Vec::with_capacity(seats.len() * heads.len());
        for (_, seat) in &seats {
            let sent = heads.iter().zip(&pieces).filter(|((slot, ..), _)| arrives(*slot));
            for ((slot, _, _), pieces) in sent {
                calls.push(Call::new(
                    *seat,
                    self.shape.slot_start(*slot),
                    Ask::Write(pieces, false),
                ));
            }
        }
        self.insist_unflushed(log, &mut calls);
        let refused = |calls: &[Call<'_>], seat: usize, right: &dyn Fn(Outcome) -> bool| {
            calls.iter().any(|call| call.server == seat && !right(call.outcome))
        };
        let without = |calls: &[Call<'_>], right: &dyn Fn(Outcome) -> bool| -> Vec<usize> {
            let lost = seats.iter().filter(|(_, seat)| refused(calls, *seat, right));
            lost.map(|(member, _)| *member).collect()
        };
        let lost = without(&calls, &|outcome| outcome == Outcome::Done);
        drop(calls);
        self.lose_behind(&lost)?;
        log.unmarked.drain(..unmarked);
        {
            let mut map = self.map.write();
            for (slot, generation, _) in &heads {
                map.begin(*slot, *generation);
                log.marked.push(*slot);
            }
        }
        let trimmed = seats.iter().filter(|(member, seat)| {
            !lost.contains(member) && trims.get(*seat).copied().unwrap_or(false)
        });
        let length = u64::from(self.shape.segment) - BLOCK as u64;
        let mut calls: Vec<Call<'_>> = trimmed
            .flat_map(|(_, seat)| {
                let start = |slot: u32| self.shape.slot_start(slot) + BLOCK as u64;
                let sent = heads.iter().filter(move |(slot, ..)| arrives(*slot));
                sent.map(move |(slot, ..)| Call::new(*seat, start(*slot), Ask::Trim(length)))
            })
            .collect();
        debug_assert!(heads.iter().all(|(_, _, head)| head.len() <= SECTOR));
        // Advice, so a refusal is no harm. One that may be carried out later is: the segment is
        // another one by then.
        self.insist(&mut calls);
        let lost =
            without(&calls, &|outcome| matches!(outcome, Outcome::Done | Outcome::Refused(_)));
        drop(calls);
        self.tally.trimmed(heads.len() as u64 * length);
        self.lose(&lost)
    }

    /// Segments whose blocks all have newer versions, or none, and those of which only a dead
    /// client knew what they are: how many of the latter, which are first.
    fn done_with(&self, log: &Log, most: usize) -> (Vec<u32>, usize) {
        let taken = log.unmarked.len().min(most);
        let mut slots: Vec<u32> = log.unmarked.iter().take(taken).copied().collect();
        let map = self.map.read();
        if self.shape.has_homes() && !planted(Sabotage::MarkYounger) {
            slots.extend(self.done_with_in_order(log, &map).into_iter().take(most - taken));
            return (slots, taken);
        }
        let empty = map.segments.iter().enumerate().filter(|(slot, segment)| {
            segment.live == 0 && !segment.records.is_empty() && !log.is_open(*slot as u32)
        });
        slots.extend(empty.map(|(slot, _)| slot as u32).take(most - taken));
        (slots, taken)
    }

    /// The same where blocks have homes: a block that is at home may have older versions in older
    /// segments, so none is marked before those that are older. Staged segments have what is at
    /// home, and are marked before anything else that is newer. Of checksums the newest are always
    /// in the log, so theirs are marked whenever nothing in them is needed.
    fn done_with_in_order(&self, log: &Log, map: &Map) -> Vec<u32> {
        let used = |stream: Stream| {
            let segments =
                map.segments.iter().enumerate().map(|(slot, segment)| (slot as u32, segment));
            segments
                .filter(move |(_, segment)| !segment.records.is_empty() && segment.stream == stream)
        };
        let done = |(slot, segment): &(u32, &Segment)| segment.live == 0 && !log.is_open(*slot);
        let staged_first =
            used(Stream::Moved).map(|(_, segment)| segment.generation).min().unwrap_or(u64::MAX);
        let mut fresh: Vec<_> = used(Stream::Fresh).collect();
        fresh.sort_unstable_by_key(|(_, segment)| segment.generation);
        let older = |segment: &Segment| {
            segment.records.last().is_none_or(|last| last.sequence < staged_first)
        };
        let fresh = fresh.into_iter().take_while(|pair| done(pair) && older(pair.1));
        let others = used(Stream::Moved).chain(used(Stream::Sums)).filter(done);
        others.chain(fresh).map(|(slot, _)| slot).collect()
    }

    /// Gives back what can be given back while nobody waits for it: for whoever looks after the
    /// array, now and then.
    ///
    /// # Errors
    /// More servers were lost than the policy survives.
    pub fn tidy(&self) -> Result<(), ArrayError> {
        for _ in 0..TURNS_MAX {
            let mut log = self.log_to_write()?;
            self.mark(&mut log)?;
            // What waits is for its owner to flush; where nothing does, nobody would.
            if log.marked.is_empty() || !log.waiting.is_empty() {
                break;
            }
            self.flush_held(&mut log)?;
        }
        Ok(())
    }
}
