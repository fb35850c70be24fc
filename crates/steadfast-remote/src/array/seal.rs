//! The log: blocks gather, become a record, and go to the servers.
//!
//! Blocks wait in memory until a record is full or a flush comes. A block that is written again while it waits is
//! replaced where it is. A flush makes a short record of what has gathered: a stripe is never read back to be filled.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::map::Bytes;
use super::record::Header;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, crc32c};
use crate::client::Ask;

/// The segment that records are appended to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) slot: u32,
    generation: u64,
    offset: u32,
}

/// What only who appends needs to know.
pub(crate) struct Log {
    pub(crate) open: Option<Open>,
    /// Sequence number of the next record.
    pub(crate) next: u64,
    /// Every record up to this one is flushed.
    pub(crate) durable: u64,
    /// Blocks that wait, in the order in which they came.
    pub(crate) waiting: Vec<u32>,
    /// Segments without anything in them that is needed.
    pub(crate) free: VecDeque<u32>,
    /// Segments that will be free with the next flush.
    pub(crate) emptied: Vec<u32>,
    /// Something was sent that no flush covers.
    pub(crate) unflushed: bool,
}

impl Log {
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }
}

impl<F: Fleet> Array<F> {
    /// Takes blocks in. They are readable at once and durable with the next flush.
    pub(crate) fn append(&self, first: u32, data: &[u8]) -> Result<(), ArrayError> {
        self.alive()?;
        let mut log = self.log.lock();
        self.make_room(&mut log)?;
        for (index, bytes) in data.chunks_exact(BLOCK).enumerate() {
            let mut copy = [0; BLOCK];
            copy.copy_from_slice(bytes);
            self.put(&mut log, first + index as u32, Arc::new(copy));
            if log.waiting.len() >= self.shape.batch() {
                self.seal(&mut log, false)?;
                self.make_room(&mut log)?;
            }
        }
        self.tally.written(data.len());
        Ok(())
    }

    /// A block waits.
    pub(crate) fn put(&self, log: &mut Log, block: u32, bytes: Bytes) {
        if self.map.write().pending.insert(block, bytes).is_none() {
            log.waiting.push(block);
        }
    }

    /// Makes everything durable that was taken in.
    pub(crate) fn flush_all(&self) -> Result<(), ArrayError> {
        self.alive()?;
        let mut log = self.log.lock();
        self.flush_held(&mut log)?;
        self.tally.flushed();
        Ok(())
    }

    /// As [`flush_all`](Self::flush_all), where the log is held.
    pub(crate) fn flush_held(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        self.seal(log, true)?;
        if log.unflushed {
            let (seats, before) = {
                let members = self.members.read();
                let seats: Vec<(usize, usize)> =
                    members.writable().into_iter().map(|member| (member, members.seat(member))).collect();
                (seats, members.breaks.clone())
            };
            // A connection that broke may have been a server that forgot what it had not flushed.
            let mut lost: Vec<usize> = seats
                .iter()
                .filter(|(_, seat)| before.get(*seat).is_none_or(|count| self.fleet.breaks(*seat) != *count))
                .map(|(member, _)| *member)
                .collect();
            let mut calls: Vec<Call<'_>> =
                seats.iter().map(|(_, seat)| Call::new(*seat, 0, Ask::Flush)).collect();
            // Once only: an answer on a new connection says nothing of what went over the old one.
            self.fleet.round(&mut calls, 2 * self.options.patience_ms);
            lost.extend(
                seats
                    .iter()
                    .zip(&calls)
                    .filter(|(_, call)| call.outcome != Outcome::Done)
                    .map(|((member, _), _)| *member),
            );
            self.lose(&lost)?;
            log.unflushed = false;
        }
        self.note_breaks();
        log.durable = log.next - 1;
        let emptied = std::mem::take(&mut log.emptied);
        log.free.extend(emptied);
        self.collect_empty(log);
        Ok(())
    }

    /// From here on a connection that breaks matters.
    fn note_breaks(&self) {
        let mut members = self.members.write();
        members.breaks = (0..self.fleet.servers()).map(|server| self.fleet.breaks(server)).collect();
    }

    /// Segments whose blocks all have newer versions: free at once where those are flushed, with the next flush otherwise.
    pub(crate) fn collect_empty(&self, log: &mut Log) {
        let flushed = log.durable == log.next - 1;
        let mut map = self.map.write();
        for slot in 0..map.segments.len() as u32 {
            if log.open.is_some_and(|open| open.slot == slot) {
                continue;
            }
            let Some(segment) = map.segments.get_mut(slot as usize) else { continue };
            if segment.live == 0 && !segment.records.is_empty() {
                segment.records = Vec::new();
                match flushed {
                    true => log.free.push_back(slot),
                    false => log.emptied.push(slot),
                }
            }
        }
    }

    /// Sends what waits, in as many records as it takes; with `durable` each is durable where servers can do that in one
    /// request.
    pub(crate) fn seal(&self, log: &mut Log, durable: bool) -> Result<(), ArrayError> {
        while !log.waiting.is_empty() {
            let open = self.room(log)?;
            let fits = self.fits(&open);
            let count = log.waiting.len().min(fits);
            let blocks: Vec<u32> = log.waiting.iter().take(count).copied().collect();
            let header = self.send(log, open, &blocks, durable)?;
            {
                let mut map = self.map.write();
                map.place(&header, &self.shape);
                for block in &blocks {
                    map.pending.remove(block);
                }
            }
            log.waiting.drain(..count);
            let offset = open.offset + header.record_bytes(&self.shape) as u32;
            log.open = Some(Open { offset: offset.next_multiple_of(SECTOR as u32), ..open });
            self.tally.records(1);
        }
        Ok(())
    }

    /// How many blocks the rest of a segment takes in one record.
    fn fits(&self, open: &Open) -> usize {
        let left = (self.shape.segment - open.offset) as usize;
        (1..=self.shape.rows_max())
            .rev()
            .find(|rows| self.shape.header_bytes(rows * self.shape.data) + rows * BLOCK <= left)
            .map_or(0, |rows| rows * self.shape.data)
    }

    /// The open segment if it has room for a record, or else the next.
    fn room(&self, log: &mut Log) -> Result<Open, ArrayError> {
        if let Some(open) = log.open
            && self.fits(&open) > 0
        {
            return Ok(open);
        }
        log.open = None;
        let slot = log.free.pop_front().ok_or(ArrayError::NoSpace)?;
        let open = Open { slot, generation: log.next, offset: 0 };
        self.map.write().begin(slot, open.generation);
        log.open = Some(open);
        Ok(open)
    }

    /// Makes a record of waiting blocks and sends it to every member. It counts once `k` of the good ones have it, and
    /// those that have it not are out of the array.
    fn send(&self, log: &mut Log, open: Open, blocks: &[u32], durable: bool) -> Result<Header, ArrayError> {
        let shape = &self.shape;
        let rows = blocks.len().div_ceil(shape.data);
        let mut shards = vec![vec![0; rows * BLOCK]; shape.data];
        let mut entries = Vec::with_capacity(blocks.len());
        {
            let map = self.map.read();
            for (index, block) in blocks.iter().enumerate() {
                let bytes = map.pending.get(block).ok_or(ArrayError::Unreadable(*block))?;
                let place = (index / rows, index % rows * BLOCK);
                if let Some(target) =
                    shards.get_mut(place.0).and_then(|shard| shard.get_mut(place.1..place.1 + BLOCK))
                {
                    target.copy_from_slice(&bytes[..]);
                }
                entries.push((*block, crc32c(&bytes[..])));
            }
        }
        let parity = self.code.encode(&shards).ok_or_else(|| ArrayError::Invalid("no parity".to_owned()))?;
        let filled = blocks.len().div_ceil(rows);
        shards.extend(parity);
        let checksums = shards
            .iter()
            .enumerate()
            .map(|(index, shard)| if index >= filled && index < shape.data { 0 } else { crc32c(shard) })
            .collect();
        let (seats, fua, uuid, session) = {
            let members = self.members.read();
            let seats: Vec<(usize, usize)> =
                members.writable().into_iter().map(|member| (member, members.seat(member))).collect();
            (seats, members.fua.clone(), members.superblock.uuid, members.superblock.session)
        };
        let header = Header {
            uuid,
            session,
            generation: open.generation,
            sequence: log.next,
            durable: log.durable,
            slot: open.slot,
            offset: open.offset,
            rows: rows as u32,
            shards: checksums,
            entries,
        };
        log.next += 1;
        let head = header.encode(shape);
        let pieces: Vec<Vec<&[u8]>> = seats
            .iter()
            .map(|(member, _)| {
                let shard = shape.shard_of(*member, header.sequence);
                match shards.get(shard) {
                    Some(bytes) if shard < filled || shard >= shape.data => vec![&head[..], &bytes[..]],
                    _ => vec![&head[..]],
                }
            })
            .collect();
        let offset = shape.slot_start(open.slot) + u64::from(open.offset);
        let mut calls: Vec<Call<'_>> = seats
            .iter()
            .zip(&pieces)
            .map(|((_, seat), pieces)| {
                let now = durable && fua.get(*seat).copied().unwrap_or(false);
                log.unflushed |= !now;
                Call::new(*seat, offset, Ask::Write(pieces, now))
            })
            .collect();
        self.insist(&mut calls);
        let lost: Vec<usize> = seats
            .iter()
            .zip(&calls)
            .filter(|(_, call)| call.outcome != Outcome::Done)
            .map(|((member, _), _)| *member)
            .collect();
        drop(calls);
        self.lose(&lost)?;
        Ok(header)
    }
}
