//! What a client finds when it opens an array: where every block is, and what was under way.
//!
//! The map of blocks is not kept anywhere: it is put together from the headers of all records, segment by segment, all
//! servers at once. The newest record of a block counts.
//!
//! Records that no flush covers are looked at in full. Where `k` shards are there the record is completed on every good
//! server; otherwise it is voided on all of them. Either way it stays so, whoever comes back later.

use std::collections::BTreeMap;

use super::members::State;
use super::record::Header;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, crc32c};
use crate::client::Ask;

/// Segments whose headers are read at once.
const SLOTS_AT_ONCE: u32 = 32;
/// Bytes read where a header may be: no header is longer.
const HEADER_MAX: usize = 4096;

impl<F: Fleet> Array<F> {
    /// Puts the map together, settles what was under way, and begins a session.
    pub(crate) fn replay(&self) -> Result<(), ArrayError> {
        let mut log = self.log.lock();
        let superblock = self.members.read().superblock.clone();
        let mut records: Vec<(Header, u32)> = Vec::new();
        let mut first = 0;
        while first < self.shape.slots {
            let behind = (first + SLOTS_AT_ONCE).min(self.shape.slots);
            self.scan(first..behind, &mut records)?;
            first = behind;
        }
        // Also of records that do not count: their numbers are never used again.
        let last = records.iter().map(|(header, _)| header.sequence).max().unwrap_or(0);
        let durable = records.iter().map(|(header, _)| header.durable).max().unwrap_or(0);
        records.retain(|(header, _)| superblock.admits(header.session, header.sequence));
        records.sort_by_key(|(header, _)| header.sequence);
        for (header, _) in records.iter_mut().filter(|(header, _)| header.sequence > durable) {
            if !header.entries.is_empty() {
                self.settle(header)?;
            }
        }
        {
            let mut map = self.map.write();
            let mut begun: BTreeMap<u32, u64> = BTreeMap::new();
            for (header, _) in &records {
                if begun.insert(header.slot, header.generation) != Some(header.generation) {
                    map.begin(header.slot, header.generation);
                }
                map.place(header, &self.shape);
            }
            // Records of different segments are ordered among each other by their numbers alone.
            let free = |slot: &u32| {
                map.segments.get(*slot as usize).is_some_and(|segment| segment.records.is_empty())
            };
            log.free = (0..self.shape.slots).filter(free).collect();
        }
        self.lose_stale(&records, durable)?;
        log.next = last + 1;
        log.durable = last;
        if self.options.read_only {
            return Ok(());
        }
        self.flush_servers()?;
        self.members.write().superblock.next_session(last);
        self.publish()?;
        self.collect_empty(&mut log);
        Ok(())
    }

    /// A member without the header of a record that was flushed, and of which something is still needed, has an old state,
    /// whatever its superblock says. It is out of the array, unless there are just enough: then it is read from with the
    /// caution that every read takes.
    fn lose_stale(&self, records: &[(Header, u32)], durable: u64) -> Result<(), ArrayError> {
        let needed: Vec<u32> = {
            let map = self.map.read();
            let live = |header: &Header| {
                let meta = super::record::Meta::of(header, &self.shape);
                header.entries.iter().enumerate().any(|(index, (block, _))| {
                    let row = meta.row((index % header.rows as usize) as u32);
                    map.entry(*block).is_some_and(|entry| entry.slot == header.slot && entry.offset == row)
                })
            };
            let flushed = records.iter().filter(|(header, _)| header.sequence <= durable);
            flushed.filter(|(header, _)| live(header)).map(|(_, holders)| *holders).collect()
        };
        let good: Vec<usize> = self.members.read().in_state(State::Good).collect();
        for member in good {
            let lacks = needed.iter().any(|holders| holders & (1 << member) == 0);
            if lacks && self.members.read().good() > self.shape.data {
                self.lose(&[member])?;
            }
        }
        Ok(())
    }

    /// What was settled stays so.
    fn flush_servers(&self) -> Result<(), ArrayError> {
        let seats = self.members.read().writable_seats();
        let mut calls: Vec<Call<'_>> =
            seats.iter().map(|(_, seat)| Call::new(*seat, 0, Ask::Flush)).collect();
        self.insist(&mut calls);
        let lost: Vec<usize> = seats
            .iter()
            .zip(&calls)
            .filter(|(_, call)| call.outcome != Outcome::Done)
            .map(|((member, _), _)| *member)
            .collect();
        self.lose(&lost)
    }

    /// Reads the headers of some segments from all good servers, and which members have each. Of a segment only its newest
    /// generation counts.
    fn scan(&self, slots: std::ops::Range<u32>, records: &mut Vec<(Header, u32)>) -> Result<(), ArrayError> {
        let (seats, uuid) = {
            let members = self.members.read();
            let seats: Vec<(usize, usize)> =
                members.in_state(State::Good).map(|member| (member, members.seat(member))).collect();
            (seats, members.superblock.uuid)
        };
        // (member, server, segment, place in it)
        let mut walks: Vec<(usize, usize, u32, u32, Option<u64>)> = seats
            .iter()
            .flat_map(|(member, seat)| slots.clone().map(|slot| (*member, *seat, slot, 0, None)))
            .collect();
        let mut found: BTreeMap<(u32, u64, u32), (Header, u32)> = BTreeMap::new();
        while !walks.is_empty() {
            let mut buffers: Vec<Vec<u8>> = walks
                .iter()
                .map(|(_, _, _, offset, _)| vec![0; HEADER_MAX.min((self.shape.segment - offset) as usize)])
                .collect();
            let mut calls: Vec<Call<'_>> = walks
                .iter()
                .zip(&mut buffers)
                .map(|((_, seat, slot, offset, _), buffer)| {
                    Call::new(*seat, self.shape.slot_start(*slot) + u64::from(*offset), Ask::Read(buffer))
                })
                .collect();
            self.insist(&mut calls);
            let outcomes: Vec<Outcome> = calls.iter().map(|call| call.outcome).collect();
            drop(calls);
            let mut lost: Vec<usize> = Vec::new();
            let mut further = Vec::new();
            for ((walk, buffer), outcome) in walks.into_iter().zip(&buffers).zip(outcomes) {
                let (member, seat, slot, offset, generation) = walk;
                if outcome != Outcome::Done {
                    lost.push(member);
                    continue;
                }
                let Some(header) = Header::decode(buffer, &self.shape, &uuid, slot, offset) else { continue };
                if generation.is_some_and(|generation| generation != header.generation) {
                    continue;
                }
                let generation = Some(header.generation);
                let next = offset as usize + header.record_bytes(&self.shape).next_multiple_of(SECTOR);
                let known =
                    found.entry((slot, header.generation, offset)).or_insert_with(|| (header.clone(), 0));
                known.1 |= 1 << member;
                // Voided on one server is voided on all.
                if header.entries.is_empty() {
                    known.0 = header;
                }
                if next + SECTOR + BLOCK <= self.shape.segment as usize {
                    further.push((member, seat, slot, next as u32, generation));
                }
            }
            walks = further;
            lost.sort_unstable();
            lost.dedup();
            if !lost.is_empty() {
                self.lose(&lost)?;
                walks.retain(|(member, ..)| !lost.contains(member));
            }
        }
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for (slot, generation, _) in found.keys() {
            let known = newest.entry(*slot).or_default();
            *known = (*known).max(*generation);
        }
        records.extend(
            found
                .into_iter()
                .filter(|((slot, generation, _), _)| newest.get(slot) == Some(generation))
                .map(|(_, header)| header),
        );
        Ok(())
    }

    /// A record that no flush covers: completed where that can be, voided otherwise. Who only looks cannot complete it, so
    /// that a further fault would hit what has too few shards already: to him it is there if it is everywhere.
    fn settle(&self, header: &mut Header) -> Result<(), ArrayError> {
        let shape = &self.shape;
        let members: Vec<(usize, usize)> = {
            let members = self.members.read();
            members.in_state(State::Good).map(|member| (member, members.seat(member))).collect()
        };
        let offset = shape.slot_start(header.slot) + u64::from(header.offset);
        let head_bytes = header.bytes(shape);
        let shard_bytes = header.rows as usize * BLOCK;
        let meta = super::record::Meta::of(header, shape);
        let lengths: Vec<usize> = members
            .iter()
            .map(|(member, _)| match meta.is_empty(shape.shard_of(*member, header.sequence), shape) {
                true => head_bytes,
                false => head_bytes + shard_bytes,
            })
            .collect();
        let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut calls: Vec<Call<'_>> = members
            .iter()
            .zip(&mut buffers)
            .map(|((_, seat), buffer)| Call::new(*seat, offset, Ask::Read(buffer)))
            .collect();
        self.insist(&mut calls);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let lost: Vec<usize> =
            members.iter().zip(&done).filter(|(_, done)| !**done).map(|((member, _), _)| *member).collect();
        self.lose(&lost)?;
        let zeros = vec![0; shard_bytes];
        let mut shards: BTreeMap<usize, &[u8]> = (0..shape.data)
            .filter(|shard| meta.is_empty(*shard, shape))
            .map(|shard| (shard, &zeros[..]))
            .collect();
        for (((member, _), buffer), _) in members.iter().zip(&buffers).zip(&done).filter(|(_, done)| **done) {
            let shard = shape.shard_of(*member, header.sequence);
            let bytes = buffer.get(head_bytes..).unwrap_or_default();
            if !bytes.is_empty() && header.shards.get(shard) == Some(&crc32c(bytes)) {
                shards.insert(shard, bytes);
            }
        }
        let complete = shards.len() >= shape.data;
        if !complete {
            header.entries.clear();
        }
        if self.options.read_only {
            let head = header.encode(shape);
            let everywhere = members.iter().zip(&buffers).all(|((member, _), buffer)| {
                shards.contains_key(&shape.shard_of(*member, header.sequence))
                    && buffer.get(..head_bytes) == Some(&head[..])
            });
            if !everywhere {
                header.entries.clear();
            }
            return Ok(());
        }
        let head = header.encode(shape);
        let mut writes: Vec<(usize, usize, Vec<Vec<u8>>)> = Vec::new();
        for (((member, seat), buffer), done) in members.iter().zip(&buffers).zip(&done) {
            let shard = shape.shard_of(*member, header.sequence);
            if !done {
                continue;
            }
            let same_head = buffer.get(..head_bytes) == Some(&head[..]);
            if !complete || shards.contains_key(&shard) {
                if !same_head {
                    writes.push((*member, *seat, vec![head.clone()]));
                }
                continue;
            }
            let mut whole = Vec::with_capacity(shard_bytes);
            for row in 0..header.rows as usize {
                let rows: Vec<(usize, &[u8])> = shards
                    .iter()
                    .filter_map(|(shard, bytes)| Some((*shard, bytes.get(row * BLOCK..(row + 1) * BLOCK)?)))
                    .collect();
                let row = self.code.recover(shard, &rows);
                whole
                    .extend(row.ok_or_else(|| ArrayError::Invalid("a shard cannot be computed".to_owned()))?);
            }
            writes.push((*member, *seat, vec![head.clone(), whole]));
        }
        let pieces: Vec<Vec<&[u8]>> =
            writes.iter().map(|(_, _, parts)| parts.iter().map(|part| &part[..]).collect()).collect();
        let mut calls: Vec<Call<'_>> = writes
            .iter()
            .zip(&pieces)
            .map(|((_, seat, _), pieces)| Call::new(*seat, offset, Ask::Write(pieces, false)))
            .collect();
        self.insist(&mut calls);
        let lost: Vec<usize> = writes
            .iter()
            .zip(&calls)
            .filter(|(_, call)| call.outcome != Outcome::Done)
            .map(|((member, ..), _)| *member)
            .collect();
        drop(calls);
        self.lose(&lost)
    }

    /// Takes everything off a server that could be taken for a record or superblock of this array.
    pub(crate) fn wipe(&self, member: usize) -> Result<(), ()> {
        let seat = self.members.read().seat(member);
        let zeros = vec![0; 2 * BLOCK];
        let (front, sector) = ([&zeros[..]], [&zeros[..SECTOR]]);
        let mut calls = vec![Call::new(seat, 0, Ask::Write(&front, false))];
        self.insist(&mut calls);
        if calls.iter().any(|call| call.outcome != Outcome::Done) {
            return Err(());
        }
        let mut slot = 0;
        while slot < self.shape.slots {
            let behind = (slot + 8 * SLOTS_AT_ONCE).min(self.shape.slots);
            let mut calls: Vec<Call<'_>> = (slot..behind)
                .map(|slot| Call::new(seat, self.shape.slot_start(slot), Ask::Write(&sector, false)))
                .collect();
            self.insist(&mut calls);
            if calls.iter().any(|call| call.outcome != Outcome::Done) {
                return Err(());
            }
            slot = behind;
        }
        Ok(())
    }
}
