//! Rebuilding a member while the array stays in use. One step is one segment.
//!
//! From the first step on the member takes every new record, in segments that are also new. The
//! older segments, whose records never change, are copied to it one by one. The member is good once
//! all of them are copied and flushed.

use super::map::Segment;
use super::members::State;
use super::record::{Meta, RecordHeader};
use super::seal::Log;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;

/// Progress of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuild {
    member: usize,
    /// Segments of this generation and later are new.
    from: u64,
    /// Next segment.
    slot: u32,
    /// Bytes written to the member so far.
    pub bytes: u64,
}

/// Remaining work of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Steps done, and steps in all.
    Going(u32, u32),
    /// The member is good.
    Done,
}

impl<F: Fleet> Array<F> {
    /// Members that hold no valid data.
    pub fn lost(&self) -> Vec<usize> {
        self.members.read().in_state(State::Lost).collect()
    }

    /// Servers of the fleet without a member.
    pub fn spares(&self) -> Vec<usize> {
        let members = self.members.read();
        (0..self.fleet.servers()).filter(|seat| !members.seats.contains(seat)).collect()
    }

    /// Takes a good member out of the array, so that its server can be released.
    ///
    /// # Errors
    /// When no further member can be lost.
    pub fn drain(&self, member: usize) -> Result<(), ArrayError> {
        let _log = self.log_to_write()?;
        if self.members.read().good() <= self.shape.data {
            return Err(ArrayError::TooManyLost);
        }
        self.lose(&[member])
    }

    /// Begins to rebuild a lost member on `seat`, which is its own server or a spare.
    ///
    /// # Errors
    /// The server does not answer or lends too little, or the member is not lost.
    pub fn begin_rebuild(&self, member: usize, seat: usize) -> Result<Rebuild, ArrayError> {
        self.writes_allowed()?;
        if self.members.read().state(member) != State::Lost {
            return Err(ArrayError::WrongState(member));
        }
        let contact = self.fleet.contact(seat).map_err(|why| ArrayError::Unreachable(seat, why))?;
        let needed = self.shape.end();
        if contact.size < needed || contact.block_min > 512 {
            return Err(ArrayError::Unreachable(
                seat,
                format!("lends less than the {needed} bytes needed"),
            ));
        }
        let mut log = self.log_to_write()?;
        {
            let mut members = self.members.write();
            if members
                .seats
                .iter()
                .enumerate()
                .any(|(other, taken)| other != member && *taken == seat)
            {
                return Err(ArrayError::WrongState(member));
            }
            if let Some(place) = members.seats.get_mut(member) {
                *place = seat;
            }
            if let Some(fua) = members.fua.get_mut(seat) {
                *fua = contact.fua;
            }
            if let Some(trim) = members.trim.get_mut(seat) {
                *trim = contact.trim;
            }
        }
        let before = self.fleet.breaks(seat);
        self.wipe(member)
            .map_err(|()| ArrayError::Unreachable(seat, "cannot be written".to_owned()))?;
        // Waiting blocks go to the present members; later blocks begin a new segment.
        self.flush_held(&mut log)?;
        log.close();
        self.set_state(member, State::Rebuilding);
        self.publish()?;
        // No flush has covered the wipe: if the server restarts, its old records may reappear.
        let mut breaks = self.breaks();
        if let Some(count) = breaks.get_mut(seat) {
            *count = before;
        }
        self.members.write().breaks = breaks;
        log.unflushed = true;
        match self.members.read().state(member) {
            State::Rebuilding => Ok(Rebuild { member, from: log.next, slot: 0, bytes: 0 }),
            _ => Err(ArrayError::Unreachable(seat, "was lost again at once".to_owned())),
        }
    }

    fn set_state(&self, member: usize, state: State) {
        if let Some(place) = self.members.write().superblock.states.get_mut(member) {
            *place = state;
        }
    }

    /// Copies one more segment to the member.
    ///
    /// # Errors
    /// The member was lost again, or the required data cannot be read.
    pub fn rebuild_step(&self, rebuild: &mut Rebuild) -> Result<Progress, ArrayError> {
        let mut log = self.log_to_write()?;
        if self.members.read().state(rebuild.member) != State::Rebuilding {
            return Err(ArrayError::WrongState(rebuild.member));
        }
        if rebuild.slot < self.shape.slots {
            let segment = self.map.read().segments.get(rebuild.slot as usize).cloned();
            if let Some(segment) = segment
                && !segment.records.is_empty()
                && segment.generation < rebuild.from
            {
                rebuild.bytes += self.give(&mut log, rebuild.member, rebuild.slot, &segment)?;
            }
            rebuild.slot += 1;
            return Ok(Progress::Going(rebuild.slot, self.shape.slots));
        }
        self.flush_held(&mut log)?;
        if self.members.read().state(rebuild.member) != State::Rebuilding {
            return Err(ArrayError::WrongState(rebuild.member));
        }
        self.set_state(rebuild.member, State::Good);
        self.publish()?;
        Ok(Progress::Done)
    }

    /// Copies all records of a segment to the member.
    fn give(
        &self,
        log: &mut Log,
        member: usize,
        slot: u32,
        segment: &Segment,
    ) -> Result<u64, ArrayError> {
        let seat = self.members.read().seat(member);
        let mut given = 0;
        for record in &segment.records {
            let header = self.header_of(slot, record)?;
            match self.give_record(log, member, record, &header)? {
                Some(bytes) => given += bytes,
                None => {
                    self.lose(&[member])?;
                    return Err(ArrayError::Unreachable(
                        seat,
                        "was lost while it was rebuilt".to_owned(),
                    ));
                }
            }
        }
        Ok(given)
    }

    /// Copies one record to the member. Returns the bytes written, or `None` if the member refuses
    /// it.
    pub(crate) fn give_record(
        &self,
        log: &mut Log,
        member: usize,
        record: &Meta,
        header: &RecordHeader,
    ) -> Result<Option<u64>, ArrayError> {
        let seat = self.members.read().seat(member);
        let head = header.encode(&self.shape);
        let shard = self.shape.shard_of(member, record.sequence);
        let bytes = match record.is_empty(shard, &self.shape) {
            true => Vec::new(),
            false => self.shard(header.slot, record, header, shard)?,
        };
        let offset = self.shape.slot_start(header.slot) + u64::from(record.offset);
        let pieces = [&head[..], &bytes[..]];
        let mut calls = [Call::new(seat, offset, Ask::Write(&pieces, false))];
        self.insist_unflushed(log, &mut calls);
        Ok((calls[0].outcome == Outcome::Done).then(|| (head.len() + bytes.len()) as u64))
    }

    /// One shard of a record, computed from `k` other shards whose checksums match.
    fn shard(
        &self,
        slot: u32,
        record: &Meta,
        header: &RecordHeader,
        wanted: usize,
    ) -> Result<Vec<u8>, ArrayError> {
        let length = record.rows as usize * BLOCK;
        let offset = self.shape.slot_start(slot) + u64::from(record.row(0));
        let zeros = vec![0; length];
        let mut shards: Vec<(usize, Vec<u8>)> = (0..self.shape.data)
            .filter(|shard| record.is_empty(*shard, &self.shape))
            .map(|shard| (shard, zeros.clone()))
            .collect();
        let sources: Vec<(usize, usize)> = {
            let members = self.members.read();
            members
                .in_state(State::Good)
                .map(|member| (members.seat(member), self.shape.shard_of(member, record.sequence)))
                .filter(|(_, shard)| !record.is_empty(*shard, &self.shape))
                .collect()
        };
        for (seat, shard) in sources {
            if shards.len() >= self.shape.data {
                break;
            }
            let mut bytes = vec![0; length];
            let mut calls = [Call::new(seat, offset, Ask::Read(&mut bytes))];
            self.insist(&mut calls);
            let done = calls[0].outcome == Outcome::Done;
            if done && header.shards.get(shard) == Some(&super::crc32c(&bytes)) {
                shards.push((shard, bytes));
            }
        }
        let mut whole = Vec::with_capacity(length);
        for row in 0..record.rows as usize {
            let rows: Vec<(usize, &[u8])> = shards
                .iter()
                .filter_map(|(shard, bytes)| {
                    Some((*shard, bytes.get(row * BLOCK..(row + 1) * BLOCK)?))
                })
                .collect();
            let row = self.code.recover(wanted, &rows);
            whole.extend(row.ok_or_else(|| {
                ArrayError::Invalid(format!(
                    "too few servers have record {} right",
                    record.sequence
                ))
            })?);
        }
        Ok(whole)
    }
}
