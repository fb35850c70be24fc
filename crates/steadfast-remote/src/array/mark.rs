//! Marks obsolete segments on the servers and trims them.
//!
//! A segment is obsolete once newer versions of all its blocks are flushed, or its blocks were
//! discarded. Its contents still look like records, and the next client would have to accept them.
//! A server that was rebuilt meanwhile does not even have them. So a **mark** is written to the
//! front of the segment on every server, and the rest is trimmed. A mark is a header without blocks
//! that is newer than everything in the segment.
//!
//! # Invariants
//! - A mark is written only after everything that makes the segment obsolete is flushed. The
//!   segment is reused only after its mark is flushed. So a server never comes back without both.
//! - Until all servers have answered the mark, the segment is copied to a member that is being
//!   rebuilt.

use super::record::RecordHeader;
use super::seal::Log;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// Segments marked in one round: bounds the work under the log lock.
const MARKS_MAX: usize = 16;
/// The same before a large write, which takes many segments at once.
const MARKS_AHEAD_MAX: usize = 64;
/// Fewer segments are not worth the round trips before a large write.
const MARKS_AHEAD_MIN: usize = 4;
/// Most rounds in one call of [`Array::tidy`].
const TURNS_MAX: usize = 16;

impl<F: Fleet> Array<F> {
    /// Marks obsolete segments. They are free after the next flush.
    pub(crate) fn mark(&self, log: &mut Log) -> Result<(), ArrayError> {
        self.mark_some(log, 1, MARKS_MAX)
    }

    /// The same before a large write. The servers get obsolete segments back, so the write goes
    /// into memory that is warm there instead of fresh memory.
    pub(crate) fn mark_ahead(&self, log: &mut Log) -> Result<(), ArrayError> {
        self.mark_some(log, MARKS_AHEAD_MIN, MARKS_AHEAD_MAX)
    }

    fn mark_some(&self, log: &mut Log, least: usize, most: usize) -> Result<(), ArrayError> {
        // Newer versions may not be flushed yet.
        if log.durable + 1 != log.next && !planted(Sabotage::MarkBeforeFlush) {
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
        let mut heads = Vec::with_capacity(slots.len());
        for slot in &slots {
            let head = RecordHeader::mark(&self.shape, &superblock, log.next, log.durable, *slot);
            heads.push((*slot, log.next, head.encode(&self.shape)));
            log.next += 1;
        }
        let pieces: Vec<[&[u8]; 1]> = heads.iter().map(|(_, _, head)| [&head[..]]).collect();
        let mut calls = Vec::with_capacity(seats.len() * heads.len());
        for (_, seat) in &seats {
            for ((slot, _, _), pieces) in heads.iter().zip(&pieces) {
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
        self.lose_after_write(&lost)?;
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
                heads
                    .iter()
                    .map(move |(slot, ..)| Call::new(*seat, start(*slot), Ask::Trim(length)))
            })
            .collect();
        debug_assert!(heads.iter().all(|(_, _, head)| head.len() <= SECTOR));
        // Trims are advice, so a refusal is harmless. An unanswered trim is not: it may run after
        // the segment is reused.
        self.insist(&mut calls);
        let lost =
            without(&calls, &|outcome| matches!(outcome, Outcome::Done | Outcome::Refused(_)));
        drop(calls);
        self.tally.trimmed(heads.len() as u64 * length);
        self.lose(&lost)
    }

    /// Obsolete segments, at most `most`. The first ones were left unmarked by an earlier client;
    /// their number is the second result.
    fn done_with(&self, log: &Log, most: usize) -> (Vec<u32>, usize) {
        let taken = log.unmarked.len().min(most);
        let mut slots: Vec<u32> = log.unmarked.iter().take(taken).copied().collect();
        let map = self.map.read();
        let empty = map.segments.iter().enumerate().filter(|(slot, segment)| {
            segment.live == 0 && !segment.records.is_empty() && !log.is_open(*slot as u32)
        });
        slots.extend(empty.map(|(slot, _)| slot as u32).take(most - taken));
        (slots, taken)
    }

    /// Marks and trims what it can while no write is waiting. The tender of the array calls it now
    /// and then.
    ///
    /// # Errors
    /// More servers were lost than the policy survives.
    pub fn tidy(&self) -> Result<(), ArrayError> {
        for _ in 0..TURNS_MAX {
            let mut log = self.log_to_write()?;
            self.mark(&mut log)?;
            // The owner of waiting blocks flushes them; without waiting blocks there is no such
            // flush.
            if log.marked.is_empty() || !log.waiting.is_empty() {
                break;
            }
            self.flush_held(&mut log)?;
        }
        Ok(())
    }
}
