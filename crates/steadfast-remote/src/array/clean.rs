//! Cleaning: the emptiest segments are emptied, so that there is always one to append to.
//!
//! Blocks that are still needed are appended again, a flush and a mark later the segment is free (see `mark.rs`). Blocks of
//! the medium are at most four fifths of what fits, so the emptiest segment always has room to gain.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::record::{Header, Meta};
use super::seal::Log;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;

/// Free segments below which cleaning begins.
const FREE_MIN: usize = 5;
/// Segments emptied for one that is needed, at most: bounds the work of a write.
const TURNS_MAX: usize = 64;

impl<F: Fleet> Array<F> {
    /// Sees to it that there are segments to append to. Called before a change, with the log held.
    pub(crate) fn make_room(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        if log.free.len() >= FREE_MIN {
            return Ok(());
        }
        for _ in 0..TURNS_MAX {
            // What is done with is marked after a flush and free after another.
            self.flush_held(log)?;
            self.mark(log)?;
            if !log.marked.is_empty() {
                self.flush_held(log)?;
            }
            if log.free.len() >= FREE_MIN {
                return Ok(());
            }
            if !self.clean_one(log)? {
                break;
            }
        }
        match log.free.is_empty() {
            true => Err(ArrayError::NoSpace),
            false => Ok(()),
        }
    }

    /// Appends the live blocks of the emptiest segment again. `false`: there is nothing to gain.
    fn clean_one(&self, log: &mut Log) -> Result<bool, ArrayError> {
        let open = log.open.map(|open| open.slot);
        let victim = {
            let map = self.map.read();
            map.segments
                .iter()
                .enumerate()
                .filter(|(slot, segment)| Some(*slot as u32) != open && !segment.records.is_empty())
                .min_by_key(|(_, segment)| segment.live)
                .map(|(slot, segment)| (slot as u32, segment.records.clone()))
        };
        let Some((slot, records)) = victim else { return Ok(false) };
        let mut bytes = vec![0; BLOCK];
        for record in records {
            let header = self.header_of(slot, &record)?;
            for (index, (block, _)) in header.entries.iter().enumerate() {
                let row = record.row((index % header.rows as usize) as u32);
                let shard = index / header.rows as usize;
                let live = {
                    let map = self.map.read();
                    map.entry(*block).is_some_and(|entry| {
                        entry.slot == slot && entry.offset == row && usize::from(entry.shard) == shard
                    }) && !map.pending.contains_key(block)
                };
                if live {
                    self.fetch(*block, &mut bytes, true)?;
                    let mut copy = [0; BLOCK];
                    copy.copy_from_slice(&bytes);
                    self.put(log, *block, Arc::new(copy));
                }
            }
        }
        self.tally.cleaned(1);
        self.seal(log, false)?;
        Ok(true)
    }

    /// The header of a record, from whichever good server has it whole.
    pub(crate) fn header_of(&self, slot: u32, record: &Meta) -> Result<Header, ArrayError> {
        let (seats, uuid) = {
            let members = self.members.read();
            let seats: Vec<usize> =
                members.in_state(super::State::Good).map(|member| members.seat(member)).collect();
            (seats, members.superblock.uuid)
        };
        let offset = self.shape.slot_start(slot) + u64::from(record.offset);
        let mut bytes = vec![0; record.header as usize];
        for seat in seats {
            let mut calls = [Call::new(seat, offset, Ask::Read(&mut bytes))];
            self.insist(&mut calls);
            if calls[0].outcome == Outcome::Done
                && let Some(header) = Header::decode(&bytes, &self.shape, &uuid, slot, record.offset)
                && header.sequence == record.sequence
            {
                return Ok(header);
            }
        }
        self.alive()?;
        Err(ArrayError::Invalid(format!("no server has the header of record {}", record.sequence)))
    }
}
