//! Parity in place: cleaning brings the oldest segments of the log home.
//!
//! # Invariants
//! - **The write-hole rule**: a stripe of homes is overwritten only while every block of it that counts is in the log, flushed
//!   there with its parity. So blocks that are nowhere but at home are first put into the log as well, into segments of
//!   their own (**staged** records). A client that dies in between leaves stripes of which nothing is needed.
//! - Checksums of the new homes are in the log, flushed, before the homes are overwritten; what they say of a block counts only
//!   once it is in the log no more.
//! - The map leads to a home only once it is flushed on every member that takes writes.
//! - Segments are marked in the order of their age (`mark.rs`): of a block that is at home an old version would count
//!   again otherwise, in a segment that is older. Staged records are as their homes and are marked before anything younger is.
//!
//! What a dead client had on its way home and what arrives late is the same as what the next one finds in the log. It does harm
//! where that one has brought something newer home by then: homes are no log, and only fencing (etcd) helps.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::home::{SUMS, Sums, kept};
use super::members::State;
use super::record::Meta;
use super::seal::{Log, Stream};
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, crc32c};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// The oldest segments are brought home together, so many at most.
const WINDOW: usize = 4;
/// Free segments below which staged records give way before more are made.
const FREE_LOW: usize = 3;

/// Stretches of shards that follow each other on a server: (member, server, first byte, pieces).
type Run<'a> = (usize, usize, u64, Vec<&'a [u8]>);

/// Blocks of stripes, their bytes, and those of them that nobody has any more.
type Fetched = (Vec<u32>, Vec<u8>, BTreeSet<u32>);

impl<F: Fleet> Array<F> {
    /// Brings what is needed of the oldest segments home. `false`: there are none.
    pub(crate) fn bring_oldest(&self, log: &mut MutexGuard<'_, Log>) -> Result<bool, ArrayError> {
        let window = self.oldest(log);
        let mut blocks = BTreeSet::new();
        let mut cleaned = 0;
        for (slot, live, records) in &window {
            if *live == 0 || (!blocks.is_empty() && blocks.len() + *live as usize > self.shape.batch()) {
                continue;
            }
            blocks.extend(self.live_in(*slot, records)?);
            cleaned += 1;
        }
        if blocks.is_empty() {
            // Those that nothing is needed of are marked next.
            return Ok(!window.is_empty());
        }
        let slots: BTreeSet<u32> = window.iter().map(|(slot, ..)| *slot).collect();
        let stripes: BTreeSet<u32> = blocks.iter().map(|block| self.shape.stripe_of(*block)).collect();
        let (data, sums): (Vec<u32>, Vec<u32>) =
            stripes.into_iter().partition(|stripe| *stripe < self.shape.stripe_of_sums());
        self.bring_home(log, &data)?;
        // Those of which there are newer checksums by now stay where these are.
        let sums: Vec<u32> = {
            let map = self.map.read();
            let needed = |block: &u32| map.entry(*block).is_some_and(|entry| slots.contains(&entry.slot));
            let needed: BTreeSet<u32> = blocks
                .iter()
                .filter(|block| needed(block))
                .map(|block| self.shape.stripe_of(*block))
                .collect();
            sums.into_iter().filter(|stripe| needed.contains(stripe)).collect()
        };
        self.bring_home(log, &sums)?;
        self.tally.cleaned(cleaned);
        self.tally.moved(blocks.len() as u64);
        Ok(true)
    }

    /// The staged segments that are closed, and the oldest of the others: slot, blocks that are needed, records.
    fn oldest(&self, log: &Log) -> Vec<(u32, u32, Vec<Meta>)> {
        let map = self.map.read();
        let mut closed: Vec<(bool, u64, u32)> = map
            .segments
            .iter()
            .enumerate()
            .filter(|(slot, segment)| !segment.records.is_empty() && !log.is_open(*slot as u32))
            .map(|(slot, segment)| (!segment.staged, segment.generation, slot as u32))
            .collect();
        closed.sort_unstable();
        let staged = closed.iter().filter(|(fresh, ..)| !fresh).count();
        closed.truncate(staged + WINDOW);
        let of = |(_, _, slot): (bool, u64, u32)| {
            let segment = map.segments.get(slot as usize)?;
            Some((slot, segment.live, segment.records.clone()))
        };
        closed.into_iter().filter_map(of).collect()
    }

    fn put_copy(&self, log: &mut Log, block: u32, bytes: &[u8]) {
        let mut copy = [0; BLOCK];
        copy.copy_from_slice(bytes);
        self.put(log, block, Arc::new(copy));
    }

    /// Brings whole stripes home: either of the medium, or of checksums. Everything that was taken in is flushed.
    pub(crate) fn bring_home(
        &self,
        log: &mut MutexGuard<'_, Log>,
        stripes: &[u32],
    ) -> Result<(), ArrayError> {
        for part in stripes.chunks((self.shape.batch() / self.shape.data).max(1)) {
            self.room_for_stage(log)?;
            self.bring_part(log, part)?;
        }
        log.moved = None;
        Ok(())
    }

    /// Sees to it that there is a segment for staged records, and never more than two of them.
    fn room_for_stage(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        let closed = {
            let map = self.map.read();
            let mut segments = map.segments.iter().enumerate();
            segments.any(|(slot, segment)| {
                segment.staged
                    && segment.live == 0
                    && !segment.records.is_empty()
                    && !log.is_open(slot as u32)
            })
        };
        if closed || log.free.len() < FREE_LOW {
            log.moved = None;
            self.flush_held(log)?;
            self.mark(log)?;
            self.flush_held(log)?;
        }
        Ok(())
    }

    fn bring_part(&self, log: &mut MutexGuard<'_, Log>, stripes: &[u32]) -> Result<(), ArrayError> {
        let (blocks, bytes, gone) = self.fetch_stripes(stripes)?;
        let contents = || blocks.iter().zip(bytes.chunks_exact(BLOCK));
        let at_home: BTreeSet<u32> = {
            let map = self.map.read();
            let at_home = |block: &u32| map.entry(*block).is_some_and(|entry| entry.is_home());
            blocks.iter().copied().filter(at_home).collect()
        };
        if !planted(Sabotage::HomeBeforeComplete) {
            for (block, bytes) in contents() {
                if at_home.contains(block) && !gone.contains(block) {
                    self.put_copy(log, *block, bytes);
                }
            }
            self.seal(log, Stream::Moved, false)?;
        }
        let of_medium = blocks.iter().filter(|block| **block < self.shape.blocks);
        let sums: BTreeSet<u32> = of_medium.map(|block| block / SUMS).collect();
        for number in sums {
            let version = log.next;
            let bytes = self.sums_of(number, version).encode(number);
            self.put(log, self.shape.blocks + number, Arc::new(bytes));
            if let Some(made) = self.map.write().made.get_mut(number as usize) {
                *made = version;
            }
            if log.waiting.len() >= self.shape.batch() {
                self.seal(log, Stream::Fresh, false)?;
            }
        }
        self.flush_held(log)?;
        let unchanged: BTreeSet<u32> = at_home.difference(&gone).copied().collect();
        self.write_homes(log, stripes, &bytes, &unchanged, None)?;
        self.flush_servers(log)?;
        self.alive()?;
        let mut map = self.map.write();
        for (block, bytes) in contents() {
            if map.entry(*block).is_some() && !gone.contains(block) {
                map.set(*block, self.shape.at_home(*block, crc32c(bytes)));
            }
        }
        Ok(())
    }

    /// What the checksums of homes will be once everything is there that the map knows of.
    fn sums_of(&self, number: u32, version: u64) -> Sums {
        let map = self.map.read();
        let first = number * SUMS;
        let crc = |block: u32| map.entry(block).map_or(0, |entry| kept(entry.crc));
        let behind = first.saturating_add(SUMS).min(self.shape.blocks);
        Sums { version, crcs: (first..behind).map(crc).collect() }
    }

    /// All blocks of stripes, shard by shard; what nobody has written is zeros. And those that are at home and that no server
    /// has any more: zeros as well, which do not fit their checksums.
    pub(crate) fn fetch_stripes(&self, stripes: &[u32]) -> Result<Fetched, ArrayError> {
        let shard = |shard: usize| stripes.iter().map(move |stripe| self.shape.home_block(*stripe, shard));
        let blocks: Vec<u32> = (0..self.shape.data).flat_map(shard).collect();
        let mut bytes = vec![0; blocks.len() * BLOCK];
        let mut gone = BTreeSet::new();
        match self.fetch_each(&blocks, &mut bytes, true) {
            Err(ArrayError::Unreadable(_)) => {
                for (block, bytes) in blocks.iter().zip(bytes.chunks_exact_mut(BLOCK)) {
                    let fetched = self.fetch(*block, bytes, true);
                    let at_home = || self.map.read().entry(*block).is_some_and(|entry| entry.is_home());
                    match fetched {
                        // It was discarded before a client died, or more is wrong than the policy survives. Its neighbours
                        // have to go on.
                        Err(ArrayError::Unreadable(_)) if at_home() => {
                            bytes.fill(0);
                            gone.insert(*block);
                        }
                        fetched => fetched?,
                    }
                }
            }
            fetched => fetched?,
        }
        Ok((blocks, bytes, gone))
    }

    /// Writes stripes to the homes of every member that takes writes, or of one: how many bytes that member gets. `bytes` are
    /// their blocks, shard by shard. Good members have the `unchanged` ones already; who is being rebuilt may not.
    pub(crate) fn write_homes(
        &self,
        log: &mut Log,
        stripes: &[u32],
        bytes: &[u8],
        unchanged: &BTreeSet<u32>,
        only: Option<usize>,
    ) -> Result<u64, ArrayError> {
        let shape = &self.shape;
        let length = stripes.len() * BLOCK;
        if length == 0 {
            return Ok(0);
        }
        let data: Vec<&[u8]> = bytes.chunks_exact(length).collect();
        let mut buffers = std::mem::take(&mut log.parity);
        let parity = self
            .code
            .encode(&data, &mut buffers)
            .ok_or_else(|| ArrayError::Invalid("no parity".to_owned()))?;
        let shards: Vec<&[u8]> = data.iter().copied().chain(parity).collect();
        let (mut seats, good): (Vec<(usize, usize)>, BTreeSet<usize>) = {
            let members = self.members.read();
            (members.writable_seats(), members.in_state(State::Good).collect())
        };
        seats.retain(|(member, _)| only.is_none_or(|only| *member == only));
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (member, seat) in &seats {
            let mut end = None;
            for (row, stripe) in stripes.iter().enumerate() {
                let start = shape.home_start(*stripe);
                let shard = shape.shard_of(*member, shape.turn(*stripe));
                if shard < shape.data
                    && good.contains(member)
                    && unchanged.contains(&shape.home_block(*stripe, shard))
                {
                    continue;
                }
                let piece = shards.get(shard).and_then(|shard| shard.get(row * BLOCK..(row + 1) * BLOCK));
                let piece = piece.unwrap_or_default();
                match runs.last_mut() {
                    Some((.., pieces)) if end == Some(start) => pieces.push(piece),
                    _ => runs.push((*member, *seat, start, vec![piece])),
                }
                end = Some(start + BLOCK as u64);
            }
        }
        let mut calls: Vec<Call<'_>> = runs
            .iter()
            .map(|(_, seat, start, pieces)| Call::new(*seat, *start, Ask::Write(pieces, false)))
            .collect();
        self.insist_unflushed(log, &mut calls);
        let refused = runs.iter().zip(&calls).filter(|(_, call)| call.outcome != Outcome::Done);
        let mut lost: Vec<usize> = refused.map(|((member, ..), _)| *member).collect();
        lost.dedup();
        drop(calls);
        drop(runs);
        log.parity = buffers;
        self.lose_behind(&lost)?;
        Ok(length as u64)
    }

    /// Stripes of a step of a rebuild.
    fn stripes_at_once(&self) -> u32 {
        (self.shape.batch() / self.shape.data).max(1) as u32
    }

    /// Steps of a rebuild that homes take.
    pub(crate) fn home_steps(&self) -> u32 {
        self.shape.homes.div_ceil(self.stripes_at_once())
    }

    /// Gives a member that is being rebuilt its homes of some stripes: how many bytes. Where only some blocks of a stripe
    /// are at home it is brought home as a whole, for nobody knows what the rest of it adds up to.
    pub(crate) fn give_homes(
        &self,
        log: &mut MutexGuard<'_, Log>,
        member: usize,
        step: u32,
    ) -> Result<u64, ArrayError> {
        // What waits is not at home yet, and would be read instead of what is.
        if !log.waiting.is_empty() {
            self.make_room(log)?;
            self.flush_held(log)?;
        }
        let first = step * self.stripes_at_once();
        let behind = (first + self.stripes_at_once()).min(self.shape.homes);
        let (mut whole, mut partly) = (Vec::new(), Vec::new());
        {
            let map = self.map.read();
            for stripe in first..behind {
                let at_home = |shard| {
                    map.entry(self.shape.home_block(stripe, shard)).is_some_and(|entry| entry.is_home())
                };
                match (0..self.shape.data).filter(|shard| at_home(*shard)).count() {
                    0 => {}
                    all if all == self.shape.data => whole.push(stripe),
                    _ => partly.push(stripe),
                }
            }
        }
        let mut given = 0;
        if !whole.is_empty() {
            let (_, bytes, gone) = self.fetch_stripes(&whole)?;
            match gone.is_empty() {
                true => given += self.write_homes(log, &whole, &bytes, &BTreeSet::new(), Some(member))?,
                false => partly.append(&mut whole),
            }
        }
        if !partly.is_empty() {
            partly.sort_unstable();
            self.make_room(log)?;
            self.flush_held(log)?;
            let (data, sums): (Vec<u32>, Vec<u32>) =
                partly.iter().partition(|stripe| **stripe < self.shape.stripe_of_sums());
            self.bring_home(log, &data)?;
            self.bring_home(log, &sums)?;
            given += (partly.len() * BLOCK) as u64;
        }
        match self.members.read().state(member) {
            State::Rebuilding => Ok(given),
            _ => {
                let seat = self.members.read().seat(member);
                Err(ArrayError::Unreachable(seat, "was lost while it was rebuilt".to_owned()))
            }
        }
    }
}
