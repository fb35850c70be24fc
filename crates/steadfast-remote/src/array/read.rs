//! Reads a block from its member, and from the other members when that fails.
//!
//! A long read is spread over several servers if each of them has whole blocks: each server returns
//! a part.
//!
//! No lock is held while servers are asked. A segment may be cleaned and refilled meanwhile. Then
//! the checksum does not match, the map names another place, and the block is read again from
//! there.

use std::sync::atomic::{AtomicU32, Ordering};

use super::location::Location;
use super::members::State;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, Superblock};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// How often a block may move before its reader gives up.
const ATTEMPTS: usize = 64;
/// Fewest blocks that are worth a request to another copy.
const SPREAD_MIN: usize = 64;
/// Late answers in a row after which a server must show its proof.
const LATES_MAX: u32 = 4;

/// Late answers in a row, by index in the fleet.
#[derive(Debug, Default)]
pub(crate) struct Lates(Vec<AtomicU32>);

impl Lates {
    pub(crate) fn new(servers: usize) -> Lates {
        Lates((0..servers).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts an answer. Returns whether the server must show its proof.
    fn note(&self, server: usize, late: bool) -> bool {
        let Some(count) = self.0.get(server) else { return false };
        match late {
            true => count.fetch_add(1, Ordering::Relaxed) + 1 >= LATES_MAX,
            false => {
                if count.load(Ordering::Relaxed) != 0 {
                    count.store(0, Ordering::Relaxed);
                }
                false
            }
        }
    }
}

/// The blocks that a buffer is for.
#[derive(Clone, Copy)]
enum Asked<'a> {
    /// This block and the following ones.
    From(u32),
    /// Each of these blocks.
    Each(&'a [u32]),
}

impl Asked<'_> {
    /// The block at this index of the buffer.
    fn block(&self, index: usize) -> u32 {
        match self {
            Asked::From(first) => first + index as u32,
            // The list has as many blocks as the buffer has room for.
            Asked::Each(blocks) => blocks.get(index).copied().unwrap_or(u32::MAX),
        }
    }
}

/// A block that other members must supply, and the member that answered with wrong data.
struct Hard {
    index: usize,
    entry: Location,
    wrong: Option<usize>,
}

/// Consecutive blocks on one server.
struct Run {
    member: usize,
    seat: usize,
    /// First byte on the server.
    offset: u64,
    /// First block within the request.
    index: usize,
    entries: Vec<Location>,
}

impl Run {
    /// Splits into parts of at least `least` blocks. The first part stays on its own server, the
    /// others go to the next servers in turn.
    fn spread(self, seats: &[(usize, usize)], least: usize) -> Vec<Run> {
        let parts = (self.entries.len() / least).clamp(1, seats.len());
        let own = seats.iter().position(|(member, _)| *member == self.member);
        let (Some(own), 2..) = (own, parts) else { return vec![self] };
        let length = self.entries.len().div_ceil(parts);
        let others = seats.iter().cycle().skip(own);
        let parts = self.entries.chunks(length).zip(others).enumerate();
        let part =
            |(number, (entries, (member, seat))): (usize, (&[Location], &(usize, usize)))| Run {
                member: *member,
                seat: *seat,
                offset: self.offset + (number * length * BLOCK) as u64,
                index: self.index + number * length,
                entries: entries.to_vec(),
            };
        parts.map(part).collect()
    }
}

impl<F: Fleet> Array<F> {
    /// Fills `buffer` from block `first`. `held` says that the caller holds the log lock.
    pub(crate) fn fetch(
        &self,
        first: u32,
        buffer: &mut [u8],
        held: bool,
    ) -> Result<(), ArrayError> {
        self.fetch_asked(Asked::From(first), buffer, held)
    }

    /// Fills `buffer` with these blocks in order.
    pub(crate) fn fetch_each(
        &self,
        blocks: &[u32],
        buffer: &mut [u8],
        held: bool,
    ) -> Result<(), ArrayError> {
        self.fetch_asked(Asked::Each(blocks), buffer, held)
    }

    fn fetch_asked(
        &self,
        asked: Asked<'_>,
        buffer: &mut [u8],
        held: bool,
    ) -> Result<(), ArrayError> {
        self.alive()?;
        let mut wanted: Vec<usize> = (0..buffer.len() / BLOCK).collect();
        for _ in 0..ATTEMPTS {
            if wanted.is_empty() {
                break;
            }
            wanted = self.attempt(asked, buffer, &wanted, held)?;
        }
        match wanted.first() {
            None => {
                self.tally.read(buffer.len());
                Ok(())
            }
            Some(index) => Err(ArrayError::Unreadable(asked.block(*index))),
        }
    }

    /// First byte of a block on its server.
    fn byte_of(&self, entry: &Location) -> u64 {
        self.shape.slot_start(entry.slot) + u64::from(entry.offset)
    }

    /// Reads the blocks at `wanted`. Returns those that have moved meanwhile.
    fn attempt(
        &self,
        asked: Asked<'_>,
        buffer: &mut [u8],
        wanted: &[usize],
        held: bool,
    ) -> Result<Vec<usize>, ArrayError> {
        let (runs, mut hard, hedge) = self.plan(asked, buffer, wanted);
        let mut suspects = Vec::new();
        if !runs.is_empty() {
            let mut calls = Vec::with_capacity(runs.len());
            let mut rest = &mut *buffer;
            let mut at = 0;
            for run in &runs {
                let (_, tail) = rest.split_at_mut((run.index - at) * BLOCK);
                let (mine, tail) = tail.split_at_mut(run.entries.len() * BLOCK);
                calls.push(Call::new(run.seat, run.offset, Ask::Read(mine)));
                rest = tail;
                at = run.index + run.entries.len();
            }
            match hedge {
                true => self.fleet.round(&mut calls, self.options.hedge_ms),
                false => self.insist(&mut calls),
            }
            let outcomes: Vec<Outcome> = calls.iter().map(|call| call.outcome).collect();
            drop(calls);
            for (run, outcome) in runs.iter().zip(outcomes) {
                let late = outcome == Outcome::Late;
                if late {
                    self.tally.hedged(1);
                }
                if self.lates.note(run.seat, late)
                    || !matches!(outcome, Outcome::Done | Outcome::Late)
                {
                    suspects.push(run.member);
                }
                for (index, entry) in run.entries.iter().enumerate() {
                    let index = run.index + index;
                    let bytes = buffer.get(index * BLOCK..(index + 1) * BLOCK);
                    let done = outcome == Outcome::Done;
                    if !done || bytes.is_none_or(|bytes| !entry.fits(bytes)) {
                        hard.push(Hard { index, entry: *entry, wrong: done.then_some(run.member) });
                    }
                }
            }
        }
        suspects.dedup();
        for member in suspects {
            self.suspect(member, held)?;
        }
        let mut moved = Vec::new();
        for Hard { index, entry, wrong } in hard {
            let block = asked.block(index);
            let found = self.reconstruct(block, entry, held)?;
            match (found, buffer.get_mut(index * BLOCK..(index + 1) * BLOCK)) {
                (Some(bytes), Some(target)) => {
                    target.copy_from_slice(&bytes);
                    // The wrong copy is not the first one; a wrong first copy is repaired
                    // elsewhere.
                    if let Some(member) =
                        wrong.filter(|member| *member != usize::from(entry.member))
                    {
                        self.repair(block, entry, member, &bytes, held);
                    }
                }
                // The block is still there, so no server can supply it.
                _ if self.map.read().entry(block) == Some(entry)
                    && !self.map.read().pending.contains_key(&block) =>
                {
                    self.alive()?;
                    return Err(ArrayError::Unreadable(block));
                }
                _ => moved.push(index),
            }
        }
        Ok(moved)
    }

    /// Copies blocks that are in memory and combines the rest into requests. Also returns the
    /// blocks that no good server holds directly, and whether other servers can replace a slow one.
    fn plan(
        &self,
        asked: Asked<'_>,
        buffer: &mut [u8],
        wanted: &[usize],
    ) -> (Vec<Run>, Vec<Hard>, bool) {
        let map = self.map.read();
        let members = self.members.read();
        let good: Vec<usize> = members.in_state(State::Good).collect();
        let (mut runs, mut hard): (Vec<Run>, Vec<Hard>) = (Vec::new(), Vec::new());
        for index in wanted {
            let block = asked.block(*index);
            let Some(target) = buffer.get_mut(index * BLOCK..(index + 1) * BLOCK) else { continue };
            if let Some(bytes) = map.pending.get(&block) {
                target.copy_from_slice(&bytes[..]);
                continue;
            }
            let Some(entry) = map.entry(block) else {
                target.fill(0);
                continue;
            };
            if let Some(bytes) = map.hold.at(&entry) {
                target.copy_from_slice(&bytes[..]);
                continue;
            }
            let member = match members.state(usize::from(entry.member)) {
                State::Good => usize::from(entry.member),
                // Any copy will do.
                _ if self.shape.data == 1 && !good.is_empty() => {
                    good[entry.slot as usize % good.len()]
                }
                _ => {
                    hard.push(Hard { index: *index, entry, wrong: None });
                    continue;
                }
            };
            let offset = self.byte_of(&entry);
            match runs.last_mut() {
                Some(run)
                    if run.member == member
                        && run.index + run.entries.len() == *index
                        && run.offset + (run.entries.len() * BLOCK) as u64 == offset =>
                {
                    run.entries.push(entry);
                }
                _ => runs.push(Run {
                    member,
                    seat: members.seat(member),
                    offset,
                    index: *index,
                    entries: vec![entry],
                }),
            }
        }
        if self.shape.data == 1 && good.len() > 1 {
            let least = SPREAD_MIN.min(self.shape.batch() / 2).max(1);
            let seats: Vec<(usize, usize)> =
                good.iter().map(|member| (*member, members.seat(*member))).collect();
            runs = runs.into_iter().flat_map(|run| run.spread(&seats, least)).collect();
        }
        let hedge = self.shape.parity > 0
            && good.len() > self.shape.data
            && self.options.hedge_ms < self.options.patience_ms;
        (runs, hard, hedge)
    }

    /// Computes a block from the other servers; `None` if it has moved, or if no combination of the
    /// answers matches.
    fn reconstruct(
        &self,
        block: u32,
        entry: Location,
        held: bool,
    ) -> Result<Option<Vec<u8>>, ArrayError> {
        let meta = match self.map.read().segments.get(entry.slot as usize) {
            Some(segment) => segment.record_at(entry.offset),
            None => None,
        };
        let Some(meta) = meta else { return Ok(None) };
        let turn = meta.sequence;
        let is_empty = |shard: usize| meta.is_empty(shard, &self.shape);
        let offset = self.byte_of(&entry);
        let own = usize::from(entry.member);
        let sources: Vec<(usize, usize)> = {
            let members = self.members.read();
            let others = members.in_state(State::Good).filter(|member| *member != own);
            // The owner comes last: it may only have been slow.
            others
                .chain(members.in_state(State::Good).filter(|member| *member == own))
                .map(|member| (members.seat(member), self.shape.shard_of(member, turn)))
                .filter(|(_, shard)| !is_empty(*shard))
                .collect()
        };
        let mut buffers = vec![vec![0; BLOCK]; sources.len()];
        let mut calls: Vec<Call<'_>> = sources
            .iter()
            .zip(&mut buffers)
            .map(|((seat, _), buffer)| Call::new(*seat, offset, Ask::Read(buffer)))
            .collect();
        self.insist(&mut calls);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let zeros = vec![0; BLOCK];
        let mut rows: Vec<(usize, &[u8])> = (0..self.shape.data)
            .filter(|shard| is_empty(*shard))
            .map(|shard| (shard, &zeros[..]))
            .collect();
        let own_row = sources
            .iter()
            .zip(&buffers)
            .zip(&done)
            .find(|(((_, shard), _), done)| **done && *shard == usize::from(entry.shard))
            .map(|((_, buffer), _)| buffer);
        if let Some(row) = own_row
            && entry.fits(row)
        {
            return Ok(Some(row.clone()));
        }
        rows.extend(
            sources
                .iter()
                .zip(&buffers)
                .zip(&done)
                .filter(|(((_, shard), _), done)| **done && *shard != usize::from(entry.shard))
                .map(|(((_, shard), buffer), _)| (*shard, &buffer[..])),
        );
        // Some answers may be wrong: every choice of k is tried until one matches.
        for mask in 1_u32..1 << rows.len().min(super::policy::SERVERS_MAX) {
            if mask.count_ones() as usize != self.shape.data {
                continue;
            }
            let chosen: Vec<(usize, &[u8])> = rows
                .iter()
                .enumerate()
                .filter(|(index, _)| mask & (1 << index) != 0)
                .map(|(_, row)| *row)
                .collect();
            if let Some(bytes) = self.code.recover(usize::from(entry.shard), &chosen)
                && entry.fits(&bytes)
            {
                self.tally.reconstructed(1);
                self.repair(block, entry, own, &bytes, held);
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Repairs a block on a good server that had wrong data: its owner, or a server with a copy.
    fn repair(&self, block: u32, entry: Location, member: usize, bytes: &[u8], held: bool) {
        if self.options.read_only {
            return;
        }
        let guard = if held { None } else { self.log.try_lock() };
        // Without the log lock the segment might already be reused.
        let moved =
            || self.map.read().entry(block) != Some(entry) && !planted(Sabotage::RepairWhereItWas);
        if (!held && guard.is_none()) || moved() {
            return;
        }
        let (state, seat) = {
            let members = self.members.read();
            (members.state(member), members.seat(member))
        };
        if state != State::Good || self.members.read().closed {
            return;
        }
        let offset = self.byte_of(&entry);
        let pieces = [bytes];
        let mut calls = [Call::new(seat, offset, Ask::Write(&pieces, false))];
        self.fleet.round(&mut calls, self.options.patience_ms);
        match calls[0].outcome {
            Outcome::Done => self.tally.repaired(1),
            _ => self.members.write().unanswered = true,
        }
    }

    /// A server that did not answer correctly must show its proof; otherwise its member is lost.
    pub(crate) fn suspect(&self, member: usize, held: bool) -> Result<(), ArrayError> {
        let _guard = if held { None } else { Some(self.log.lock()) };
        let (state, seat, present) = {
            let members = self.members.read();
            (members.state(member), members.seat(member), members.superblock.clone())
        };
        if state == State::Lost {
            return Ok(());
        }
        let mut bytes = vec![0; BLOCK];
        let mut calls = [Call::new(seat, Superblock::offset(present.epoch), Ask::Read(&mut bytes))];
        self.insist(&mut calls);
        let answered = calls[0].outcome == Outcome::Done;
        match answered && present.is_shown_by(&bytes) {
            true => {
                self.lates.note(seat, false);
                Ok(())
            }
            false => self.lose(&[member]),
        }
    }
}
