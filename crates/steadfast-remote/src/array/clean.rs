//! Cleaning: empties segments that hold few needed blocks, so that there is always a segment to
//! append to.
//!
//! Needed blocks are appended again; a flush and a mark later the segment is free (`mark.rs`). The
//! blocks of the medium are at most four fifths of the capacity, so cleaning the emptiest segment
//! always gains space.
//!
//! Segments of small flushes are mostly padding. The newest of them are packed from memory
//! (`hold.rs`). Other segments are read first: their headers in one round, their blocks in one
//! round for each record that they fill.

use std::sync::Arc;

use parking_lot::MutexGuard;

use super::record::{Meta, RecordHeader, SegmentStream};
use super::seal::Log;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// Free segments below which cleaning begins.
const FREE_MIN: usize = 5;
/// Most segments emptied for one that is needed: bounds the work of a write.
const TURNS_MAX: usize = 64;

/// A segment to empty.
enum Victim {
    /// All its needed blocks are in memory: these.
    Held(Vec<u32>),
    /// The needed blocks are known only after its records are read.
    Stored(u32, Vec<Meta>),
}

impl<F: Fleet> Array<F> {
    /// Makes sure that there are free segments to append to. Called before a change, with the log
    /// locked.
    pub(crate) fn make_room(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        if log.free.len() >= FREE_MIN {
            return Ok(());
        }
        for _ in 0..TURNS_MAX {
            // An obsolete segment is marked after one flush and free after another.
            if !planted(Sabotage::MarkBeforeFlush) {
                self.flush_held(log)?;
            }
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

    /// Appends again the needed blocks of the segment with the best gain. Returns `false` if there
    /// is nothing to gain.
    fn clean_one(&self, log: &mut Log) -> Result<bool, ArrayError> {
        let Some(victim) = self.victim(log) else { return Ok(false) };
        let (blocks, packed) = match victim {
            Victim::Held(blocks) => {
                let packed = blocks.len();
                (blocks, packed)
            }
            Victim::Stored(slot, records) => (self.live_in(slot, &records)?, 0),
        };
        // One record at a time bounds the memory, whatever the size of the segment.
        let mut bytes = Vec::new();
        for part in blocks.chunks(self.shape.batch()) {
            bytes.resize(part.len() * BLOCK, 0);
            self.fetch_each(part, &mut bytes, true)?;
            for (block, bytes) in part.iter().zip(bytes.chunks_exact(BLOCK)) {
                let mut copy = [0; BLOCK];
                copy.copy_from_slice(bytes);
                self.put(log, *block, Arc::new(copy));
            }
            self.seal(log, SegmentStream::Moved, false)?;
        }
        self.tally.cleaned(1);
        self.tally.moved(blocks.len() as u64);
        self.tally.packed(packed as u64);
        Ok(true)
    }

    /// The segment that frees most space for the bytes that cleaning it moves. Needed blocks must
    /// be sent; those not in memory must be read first. If nothing is held, that is the emptiest
    /// segment.
    fn victim(&self, log: &Log) -> Option<Victim> {
        let map = self.map.read();
        let (data, servers) = (self.shape.data as u64, self.shape.servers() as u64);
        let most = self.shape.segment_blocks() as u64;
        let price = |slot: u32, live: u32| {
            let (live, held) = (u64::from(live), u64::from(map.hold.count(slot)));
            let moved = live * servers + live.saturating_sub(held) * data;
            match most.saturating_sub(live) {
                0 => u64::MAX,
                gained => (moved << 16) / gained,
            }
        };
        let used = map.segments.iter().enumerate().map(|(slot, segment)| (slot as u32, segment));
        let (slot, segment) = used
            .filter(|(slot, segment)| !log.is_open(*slot) && !segment.records.is_empty())
            .min_by_key(|(slot, segment)| price(*slot, segment.live))?;
        Some(match map.hold.count(slot) == segment.live {
            true => Victim::Held(map.hold.blocks(slot)),
            false => Victim::Stored(slot, segment.records.clone()),
        })
    }

    /// The needed blocks of a segment, from the headers of its records. If a header is gone, the
    /// whole map is searched instead. A late mark of a dead client, which considered the segment
    /// obsolete, can overwrite a header.
    pub(crate) fn live_in(&self, slot: u32, records: &[Meta]) -> Result<Vec<u32>, ArrayError> {
        let headers = match self.headers_of(slot, records) {
            Err(ArrayError::Invalid(_)) => {
                let map = self.map.read();
                let here = |block: &u32| {
                    map.entry(*block).is_some_and(|entry| entry.slot == slot)
                        && !map.pending.contains_key(block)
                };
                return Ok((0..self.shape.blocks).filter(here).collect());
            }
            headers => headers?,
        };
        let map = self.map.read();
        let mut blocks = Vec::new();
        for (record, header) in records.iter().zip(&headers) {
            for (index, (block, _)) in header.entries.iter().enumerate() {
                let row = record.row((index % header.rows as usize) as u32);
                let shard = index / header.rows as usize;
                let here = map.entry(*block).is_some_and(|entry| {
                    entry.slot == slot && entry.offset == row && usize::from(entry.shard) == shard
                });
                if here && !map.pending.contains_key(block) {
                    blocks.push(*block);
                }
            }
        }
        Ok(blocks)
    }

    /// The headers of the records of a segment. One server after the other is asked for all in
    /// turn; a server that lacks a header is replaced by any other.
    fn headers_of(&self, slot: u32, records: &[Meta]) -> Result<Vec<RecordHeader>, ArrayError> {
        let (seats, uuid) = {
            let members = self.members.read();
            let good = members.in_state(super::State::Good);
            (
                good.map(|member| members.seat(member)).collect::<Vec<usize>>(),
                members.superblock.uuid,
            )
        };
        let start = self.shape.slot_start(slot);
        let mut buffers: Vec<Vec<u8>> =
            records.iter().map(|record| vec![0; record.header as usize]).collect();
        let mut calls: Vec<Call<'_>> = records
            .iter()
            .zip(&mut buffers)
            .zip(seats.iter().cycle())
            .map(|((record, buffer), seat)| {
                Call::new(*seat, start + u64::from(record.offset), Ask::Read(buffer))
            })
            .collect();
        self.insist(&mut calls);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let found = buffers.iter().zip(done).map(|(bytes, done)| done.then_some(&bytes[..]));
        let mut headers = Vec::with_capacity(records.len());
        for (record, bytes) in records.iter().zip(found) {
            let header = bytes
                .and_then(|bytes| {
                    RecordHeader::decode(bytes, &self.shape, &uuid, slot, record.offset)
                })
                .filter(|header| header.sequence == record.sequence);
            headers.push(match header {
                Some(header) => header,
                None => self.header_of(slot, record)?,
            });
        }
        Ok(headers)
    }

    /// The header of a record, from any good server that has a valid one.
    pub(crate) fn header_of(&self, slot: u32, record: &Meta) -> Result<RecordHeader, ArrayError> {
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
                && let Some(header) =
                    RecordHeader::decode(&bytes, &self.shape, &uuid, slot, record.offset)
                && header.sequence == record.sequence
            {
                return Ok(header);
            }
        }
        self.alive()?;
        Err(ArrayError::Invalid(format!("no server has the header of record {}", record.sequence)))
    }
}
