//! Rebuilding a member, in steps of one segment, and of some stripes of homes behind them, while
//! everything else goes on.
//!
//! From the first step on the member takes every new record, in segments that are new, too. Older
//! segments are given to it one by one: their records never change. When all are there, and
//! flushed, it is good.

use super::map::Segment;
use super::members::State;
use super::record::{Header, Meta};
use super::seal::Log;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;

/// How far a rebuild is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuild {
    member: usize,
    /// Segments from this generation on have what is new.
    from: u64,
    /// Next segment; behind the last one, steps of homes.
    slot: u32,
    /// Bytes written to the member so far.
    pub bytes: u64,
}

/// What is left of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many of so many segments are done; stripes of homes count, too.
    Going(u32, u32),
    /// The member is good.
    Done,
}

impl<F: Fleet> Array<F> {
    /// Members that hold nothing that counts.
    pub fn lost(&self) -> Vec<usize> {
        self.members.read().in_state(State::Lost).collect()
    }

    /// Servers of the fleet that no member sits on.
    pub fn spares(&self) -> Vec<usize> {
        let members = self.members.read();
        (0..self.fleet.servers()).filter(|seat| !members.seats.contains(seat)).collect()
    }

    /// Takes a good member out, for its server to be given back.
    ///
    /// # Errors
    /// When no more can be lost.
    pub fn drain(&self, member: usize) -> Result<(), ArrayError> {
        let _log = self.log_to_write()?;
        if self.members.read().good() <= self.shape.data {
            return Err(ArrayError::TooManyLost);
        }
        self.lose(&[member])
    }

    /// Begins to rebuild a lost member on `seat`, its own server or a spare.
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
        // What waits goes to the members that are there; what comes later begins with a new
        // segment.
        self.flush_held(&mut log)?;
        log.close();
        self.set_state(member, State::Rebuilding);
        self.publish()?;
        // Nobody has flushed the wiping: a server that restarts after it may have its old records
        // again.
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

    /// Gives the member one more segment.
    ///
    /// # Errors
    /// The member was lost again, or what it needs cannot be read.
    pub fn rebuild_step(&self, rebuild: &mut Rebuild) -> Result<Progress, ArrayError> {
        let mut log = self.log_to_write()?;
        if self.members.read().state(rebuild.member) != State::Rebuilding {
            return Err(ArrayError::WrongState(rebuild.member));
        }
        let steps = self.shape.slots.saturating_add(self.home_steps());
        if rebuild.slot >= self.shape.slots && rebuild.slot < steps {
            let step = rebuild.slot - self.shape.slots;
            rebuild.bytes += self.give_homes(&mut log, rebuild.member, step)?;
            rebuild.slot += 1;
            return Ok(Progress::Going(rebuild.slot, steps));
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
            return Ok(Progress::Going(rebuild.slot, steps));
        }
        self.flush_held(&mut log)?;
        if self.members.read().state(rebuild.member) != State::Rebuilding {
            return Err(ArrayError::WrongState(rebuild.member));
        }
        self.set_state(rebuild.member, State::Good);
        self.publish()?;
        Ok(Progress::Done)
    }

    /// All records of a segment, as this member has to have them.
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

    /// One record, as this member has to have it: how many bytes, or `None` where the member does
    /// not take it.
    pub(crate) fn give_record(
        &self,
        log: &mut Log,
        member: usize,
        record: &Meta,
        header: &Header,
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

    /// One shard of a record, computed from `k` others whose checksums fit.
    fn shard(
        &self,
        slot: u32,
        record: &Meta,
        header: &Header,
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
