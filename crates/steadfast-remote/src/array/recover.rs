//! Making an array, and opening one: who is there, what is newest, and where every block is.
//!
//! The map of blocks is not kept anywhere: it is put together from the headers of all records, segment by segment, all
//! servers at once. The newest record of a block counts.
//!
//! Records that no flush covers are looked at in full. Where `k` shards are there the record is completed on every good
//! server; otherwise it is voided on all of them. Either way it stays so, whoever comes back later.

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock};

use super::map::Map;
use super::members::{Members, State};
use super::options::Tally;
use super::read::Lates;
use super::record::Header;
use super::seal::Log;
use super::shape::{SECTOR, Shape};
use super::{
    Array, ArrayError, ArrayOptions, BLOCK, Call, Code, Contact, CreateOptions, Fleet, Outcome, Superblock,
    crc32c,
};
use crate::client::Ask;

/// Segments whose headers are read at once.
const SLOTS_AT_ONCE: u32 = 32;
/// Bytes read where a header may be: no header is longer.
const HEADER_MAX: usize = 4096;

impl<F: Fleet> Array<F> {
    /// Makes an array on these servers; whatever they held is gone.
    ///
    /// # Errors
    /// A server that does not answer, or a policy or sizes that do not fit.
    pub fn create(fleet: F, create: &CreateOptions, options: ArrayOptions) -> Result<Array<F>, ArrayError> {
        let count = fleet.servers().saturating_sub(create.spares);
        let (data, parity) = create.policy.shards(count).map_err(ArrayError::Invalid)?;
        let mut contacts = Vec::new();
        for server in 0..fleet.servers() {
            let contact = fleet.contact(server).map_err(|why| ArrayError::Unreachable(server, why))?;
            contacts.push(contact);
        }
        let size = contacts.iter().map(|contact| contact.size).min().unwrap_or(0);
        usable(&contacts)?;
        let shape = Shape::plan(data, parity, size).map_err(ArrayError::Invalid)?;
        let superblock = Superblock {
            uuid: create.uuid,
            epoch: 0,
            session: 1,
            index: 0,
            states: vec![State::Good; shape.servers()],
            shape,
            cutoffs: Vec::new(),
        };
        let seats = (0..shape.servers()).collect();
        let array = Array::assemble(fleet, options, superblock, seats, &contacts, Map::new(&shape)?, 1);
        for member in 0..array.shape.servers() {
            array
                .wipe(member)
                .map_err(|()| ArrayError::Unreachable(member, "cannot be written".to_owned()))?;
        }
        array.publish()?;
        if array.members.read().good() < array.shape.servers() {
            return Err(ArrayError::Unreachable(0, "a server was lost while the array was made".to_owned()));
        }
        Ok(array)
    }

    /// Opens the array on these servers.
    ///
    /// # Errors
    /// [`ArrayError::NoArray`], [`ArrayError::Mixed`], [`ArrayError::TooManyLost`], [`ArrayError::Unsure`].
    pub fn open(fleet: F, options: ArrayOptions) -> Result<Array<F>, ArrayError> {
        let servers = fleet.servers();
        let contacts: Vec<Option<Contact>> = (0..servers).map(|server| fleet.contact(server).ok()).collect();
        let mut found: Vec<Option<Superblock>> = Vec::new();
        for (server, contact) in contacts.iter().enumerate() {
            found.push(contact.and_then(|_| newest_superblock(&fleet, server, options.patience_ms)));
        }
        let newest = found
            .iter()
            .flatten()
            .max_by_key(|superblock| superblock.epoch)
            .cloned()
            .ok_or(ArrayError::NoArray)?;
        if let Some(other) = found.iter().position(|superblock| {
            superblock.as_ref().is_some_and(|superblock| superblock.uuid != newest.uuid)
        }) {
            return Err(ArrayError::Mixed(other));
        }
        let count = newest.shape.servers();
        if servers < count {
            return Err(ArrayError::Invalid(format!("this array has {count} servers, {servers} are given")));
        }
        // Members sit where their superblock is; the rest get the seats that are left, in order.
        let mut seats = vec![usize::MAX; count];
        let mut known: Vec<(usize, &Superblock)> = found
            .iter()
            .enumerate()
            .filter_map(|(seat, superblock)| Some((seat, superblock.as_ref()?)))
            .collect();
        known.sort_by_key(|(_, superblock)| std::cmp::Reverse(superblock.epoch));
        let mut taken = vec![false; servers];
        for (seat, superblock) in known {
            if let Some(place) = seats.get_mut(superblock.index)
                && *place == usize::MAX
            {
                *place = seat;
                taken[seat] = true;
            }
        }
        let mut spare = (0..servers).filter(|seat| !taken[*seat]).collect::<Vec<_>>().into_iter();
        for (member, seat) in seats.iter_mut().enumerate() {
            if *seat == usize::MAX {
                let own = (member < servers && !taken[member]).then_some(member);
                let next = own.or_else(|| spare.find(|seat| !taken[*seat]));
                *seat = next.ok_or_else(|| ArrayError::Invalid("too few servers are given".to_owned()))?;
                taken[*seat] = true;
            }
        }
        let mut superblock = newest.clone();
        let mut absent = 0;
        for (member, seat) in seats.iter().enumerate() {
            // One epoch behind is where the client died while it wrote the newest: then nothing depends on that yet. Had
            // this server refused it, k others would know of a later one, and those would be absent.
            let current =
                found[*seat].as_ref().is_some_and(|own| own.epoch + 1 >= newest.epoch && own.index == member);
            if superblock.states[member] != State::Good {
                superblock.states[member] = State::Lost;
            } else if !current {
                absent += 1;
                superblock.states[member] = State::Lost;
            }
        }
        let good = superblock.states.iter().filter(|state| **state == State::Good).count();
        if good < newest.shape.data {
            return Err(ArrayError::TooManyLost);
        }
        let witnessed = options.witness.as_ref().and_then(|witness| witness.newest(&newest.uuid));
        if witnessed.is_some_and(|epoch| epoch > newest.epoch) && !options.degraded {
            return Err(ArrayError::Unsure(absent.max(1)));
        }
        // Whoever wrote a later epoch wrote it to k members at least that were good in this one.
        // What the witness has not noted yet had no consequences.
        let sure = witnessed.is_some_and(|epoch| newest.epoch >= epoch);
        if absent >= newest.shape.data && !sure && !options.degraded {
            return Err(ArrayError::Unsure(absent));
        }
        let contacts: Vec<Contact> = contacts
            .into_iter()
            .map(|contact| contact.unwrap_or(Contact { size: 0, block_min: 1, fua: false, flush: true }))
            .collect();
        let map = Map::new(&newest.shape)?;
        let array = Array::assemble(fleet, options, superblock, seats, &contacts, map, 1);
        array.replay()?;
        Ok(array)
    }

    fn assemble(
        fleet: F,
        options: ArrayOptions,
        superblock: Superblock,
        seats: Vec<usize>,
        contacts: &[Contact],
        map: Map,
        next: u64,
    ) -> Array<F> {
        let shape = superblock.shape;
        let lates = Lates::new(fleet.servers());
        let members = Members {
            superblock,
            seats,
            fua: contacts.iter().map(|contact| contact.fua).collect(),
            breaks: (0..fleet.servers()).map(|server| fleet.breaks(server)).collect(),
            failed: false,
        };
        let log = Log {
            open: None,
            next,
            durable: next - 1,
            waiting: Vec::new(),
            free: (0..shape.slots).collect(),
            emptied: Vec::new(),
            unflushed: false,
        };
        Array {
            fleet,
            options,
            shape,
            code: Code::new(shape.data, shape.parity),
            log: Mutex::new(log),
            members: RwLock::new(members),
            map: RwLock::new(map),
            tally: Tally::default(),
            lates,
        }
    }

    /// Puts the map together, settles what was under way, and begins a session.
    fn replay(&self) -> Result<(), ArrayError> {
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
        let seats: Vec<(usize, usize)> = {
            let members = self.members.read();
            members.writable().into_iter().map(|member| (member, members.seat(member))).collect()
        };
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

    /// A record that no flush covers: completed where that can be, voided otherwise.
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

fn usable(contacts: &[Contact]) -> Result<(), ArrayError> {
    match contacts.iter().position(|contact| contact.block_min as usize > SECTOR) {
        Some(server) => {
            Err(ArrayError::Invalid(format!("server {server} has blocks of more than {SECTOR} bytes")))
        }
        None => Ok(()),
    }
}

/// The newest superblock of a server that is whole.
fn newest_superblock<F: Fleet>(fleet: &F, server: usize, patience_ms: u64) -> Option<Superblock> {
    let mut bytes = vec![0; 2 * BLOCK];
    let mut calls = [Call::new(server, 0, Ask::Read(&mut bytes))];
    fleet.round(&mut calls, 2 * patience_ms);
    if calls[0].outcome != Outcome::Done {
        return None;
    }
    bytes.chunks_exact(BLOCK).filter_map(Superblock::decode).max_by_key(|superblock| superblock.epoch)
}
