//! What a client does when it opens an array: it finds the location of every block, and completes
//! or voids unfinished writes.
//!
//! The block map is not stored. It is rebuilt from the headers of all records, segment by segment,
//! on all servers at once. The newest record of a block counts.
//!
//! Records that no flush covers are checked in full, in order. If `k` shards of a record exist, the
//! record is completed on every good server. At the first record with fewer shards the session
//! ends, and the superblock records that. Later returning servers and late writes of a dead client
//! do not change either result.

use std::collections::BTreeMap;

use super::members::State;
use super::record::{Meta, RecordHeader};
use super::scan::{Finds, SLOTS_AT_ONCE};
use super::seal::Log;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, Superblock, crc32c};
use crate::client::Ask;

/// Missing records that a member receives at the open; with more it is rebuilt.
const HEALED_MAX: usize = 64;

impl<F: Fleet> Array<F> {
    /// Builds the map, completes or voids unfinished records, and begins a session.
    pub(crate) fn replay(&self) -> Result<(), ArrayError> {
        let mut log = self.log.lock();
        let mut finds = Finds::default();
        let mut first = 0;
        while first < self.shape.slots {
            let after = (first + SLOTS_AT_ONCE).min(self.shape.slots);
            self.scan(first..after, &mut finds)?;
            first = after;
        }
        let Finds { mut records, last, mut doubtful } = finds;
        records.sort_by_key(|(header, _)| header.sequence);
        let durable = records.iter().map(|(header, _)| header.durable).max().unwrap_or(0);
        // The segment that was begun last. Each stream has its own, so the last record may be in an
        // older segment.
        let begun = records.iter().filter(|(header, _)| !header.is_mark());
        let begun =
            begun.max_by_key(|(header, _)| header.generation).map_or(0, |(header, _)| header.slot);
        let mut kept = 0;
        for (header, holders) in &mut records {
            if header.sequence > durable
                && !header.is_mark()
                && !self.settle(&mut log, header, holders)?
            {
                break;
            }
            kept += 1;
        }
        // Everything after the first record that cannot be completed is void. So one number
        // permanently separates valid records from void ones.
        doubtful.extend(records.drain(kept..).map(|(header, _)| header.slot));
        let end = records.last().map_or(0, |(header, _)| header.sequence);
        {
            let mut map = self.map.write();
            for (header, _) in &records {
                if header.offset == 0 {
                    map.begin(header.slot, header.generation);
                }
                if !header.is_mark() {
                    map.place(header, &self.shape);
                }
            }
            let free = |slot: &u32| {
                map.segments.get(*slot as usize).is_some_and(|segment| segment.records.is_empty())
            };
            log.unmarked = doubtful.into_iter().filter(free).collect();
            log.free = (0..self.shape.slots)
                .filter(free)
                .filter(|slot| !log.unmarked.contains(slot))
                .collect();
        }
        // A dead client was about to use the free segments after its last one. Half of the free
        // segments come before those.
        let after = log.free.range(begun..).chain(log.free.range(..begun));
        log.cursor = after.copied().nth(log.free.len() / 2).unwrap_or(0).wrapping_sub(1);
        log.next = last + 1;
        log.durable = last;
        if self.options.read_only {
            return Ok(());
        }
        self.heal(&mut log, &records)?;
        // The decisions above become durable.
        self.flush_servers(&mut log)?;
        self.members.write().superblock.end_sessions(end);
        self.publish()?;
        self.mark(&mut log)?;
        Ok(())
    }

    /// Copies needed records to members that lack them. Late writes of a dead client have
    /// overwritten such records, or the state of the member is older than its superblock says. A
    /// member that lacks many records is lost, unless just enough members are good. Then it stays
    /// in use, and every read verifies its data anyway.
    fn heal(&self, log: &mut Log, records: &[(RecordHeader, u32)]) -> Result<(), ArrayError> {
        let needed: Vec<&(RecordHeader, u32)> = {
            let map = self.map.read();
            let live =
                |slot: u32| map.segments.get(slot as usize).is_some_and(|segment| segment.live > 0);
            records.iter().filter(|(header, _)| !header.is_mark() && live(header.slot)).collect()
        };
        let good: Vec<usize> = self.members.read().in_state(State::Good).collect();
        for member in good {
            let lacking: Vec<&RecordHeader> = needed
                .iter()
                .filter(|(_, holders)| holders & (1 << member) == 0)
                .map(|(header, _)| header)
                .collect();
            let mut healed = lacking.len() <= HEALED_MAX;
            for header in &lacking {
                if !healed {
                    break;
                }
                match self.give_record(log, member, &Meta::of(header, &self.shape), header) {
                    Ok(given) => healed = given.is_some(),
                    // No member has the record, so this one is no worse than the others.
                    Err(ArrayError::Invalid(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if !lacking.is_empty() && !healed && self.members.read().good() > self.shape.data {
                self.lose(&[member])?;
            }
        }
        Ok(())
    }

    /// Completes a record that no flush covers on every good server. Returns whether that is
    /// possible. A read-only client leaves the record as it is, so a further fault may hit a record
    /// with too few shards.
    fn settle(
        &self,
        log: &mut Log,
        header: &RecordHeader,
        holders: &mut u32,
    ) -> Result<bool, ArrayError> {
        let shape = &self.shape;
        let members: Vec<(usize, usize)> = {
            let members = self.members.read();
            members.in_state(State::Good).map(|member| (member, members.seat(member))).collect()
        };
        let offset = shape.slot_start(header.slot) + u64::from(header.offset);
        let head_bytes = header.bytes(shape);
        let shard_bytes = header.rows as usize * BLOCK;
        let meta = Meta::of(header, shape);
        let lengths: Vec<usize> = members
            .iter()
            .map(|(member, _)| {
                match meta.is_empty(shape.shard_of(*member, header.sequence), shape) {
                    true => head_bytes,
                    false => head_bytes + shard_bytes,
                }
            })
            .collect();
        let mut buffers: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut calls: Vec<Call<'_>> = members
            .iter()
            .zip(&mut buffers)
            .map(|((_, seat), buffer)| Call::new(*seat, offset, Ask::Read(buffer)))
            .collect();
        // What is found here may never have been flushed, so a server that restarts may lose it.
        self.insist_unflushed(log, &mut calls);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let lost: Vec<usize> = members
            .iter()
            .zip(&done)
            .filter(|(_, done)| !**done)
            .map(|((member, _), _)| *member)
            .collect();
        self.lose(&lost)?;
        let zeros = vec![0; shard_bytes];
        let mut shards: BTreeMap<usize, &[u8]> = (0..shape.data)
            .filter(|shard| meta.is_empty(*shard, shape))
            .map(|shard| (shard, &zeros[..]))
            .collect();
        for (((member, _), buffer), _) in
            members.iter().zip(&buffers).zip(&done).filter(|(_, done)| **done)
        {
            let shard = shape.shard_of(*member, header.sequence);
            let bytes = buffer.get(head_bytes..).unwrap_or_default();
            if !bytes.is_empty() && header.shards.get(shard) == Some(&crc32c(bytes)) {
                shards.insert(shard, bytes);
            }
        }
        let head = header.encode(shape);
        if shards.len() < shape.data {
            return Ok(false);
        }
        if self.options.read_only {
            return Ok(true);
        }
        let mut writes: Vec<(usize, usize, Vec<Vec<u8>>)> = Vec::new();
        for (((member, seat), buffer), done) in members.iter().zip(&buffers).zip(&done) {
            let shard = shape.shard_of(*member, header.sequence);
            if !done {
                continue;
            }
            let same_head = buffer.get(..head_bytes) == Some(&head[..]);
            if shards.contains_key(&shard) {
                if !same_head {
                    writes.push((*member, *seat, vec![head.clone()]));
                }
                continue;
            }
            let mut whole = Vec::with_capacity(shard_bytes);
            for row in 0..header.rows as usize {
                let rows: Vec<(usize, &[u8])> = shards
                    .iter()
                    .filter_map(|(shard, bytes)| {
                        Some((*shard, bytes.get(row * BLOCK..(row + 1) * BLOCK)?))
                    })
                    .collect();
                let row = self.code.recover(shard, &rows);
                whole.extend(
                    row.ok_or_else(|| {
                        ArrayError::Invalid("a shard cannot be computed".to_owned())
                    })?,
                );
            }
            writes.push((*member, *seat, vec![head.clone(), whole]));
        }
        let pieces: Vec<Vec<&[u8]>> = writes
            .iter()
            .map(|(_, _, parts)| parts.iter().map(|part| &part[..]).collect())
            .collect();
        let mut calls: Vec<Call<'_>> = writes
            .iter()
            .zip(&pieces)
            .map(|((_, seat, _), pieces)| Call::new(*seat, offset, Ask::Write(pieces, false)))
            .collect();
        if !calls.is_empty() {
            self.insist_unflushed(log, &mut calls);
        }
        let lost: Vec<usize> = writes
            .iter()
            .zip(&calls)
            .filter(|(_, call)| call.outcome != Outcome::Done)
            .map(|((member, ..), _)| *member)
            .collect();
        drop(calls);
        self.lose(&lost)?;
        *holders = self
            .members
            .read()
            .in_state(State::Good)
            .fold(0, |holders, member| holders | 1 << member);
        Ok(true)
    }

    /// Erases everything on a server that could be taken for a record or superblock of this array.
    /// Segments are read first and zeros are left alone, so the server allocates no memory for
    /// unused segments.
    pub(crate) fn wipe(&self, member: usize) -> Result<(), ()> {
        let seat = self.members.read().seat(member);
        let zeros = vec![0; Superblock::AREA];
        let (front, sector) = ([&zeros[..]], [&zeros[..SECTOR]]);
        let done = |calls: &[Call<'_>]| calls.iter().all(|call| call.outcome == Outcome::Done);
        let mut calls = vec![Call::new(seat, 0, Ask::Write(&front, false))];
        self.insist(&mut calls);
        if !done(&calls) {
            return Err(());
        }
        let mut slot = 0;
        while slot < self.shape.slots {
            let after = (slot + 8 * SLOTS_AT_ONCE).min(self.shape.slots);
            let mut fronts = vec![[0; SECTOR]; (after - slot) as usize];
            let mut looks: Vec<Call<'_>> = (slot..after)
                .zip(&mut fronts)
                .map(|(slot, front)| Call::new(seat, self.shape.slot_start(slot), Ask::Read(front)))
                .collect();
            self.insist(&mut looks);
            if !done(&looks) {
                return Err(());
            }
            let used = (slot..after).zip(&fronts).filter(|(_, front)| **front != [0; SECTOR]);
            let mut calls: Vec<Call<'_>> = used
                .map(|(slot, _)| {
                    Call::new(seat, self.shape.slot_start(slot), Ask::Write(&sector, false))
                })
                .collect();
            self.insist(&mut calls);
            if !done(&calls) {
                return Err(());
            }
            slot = after;
        }
        Ok(())
    }
}
