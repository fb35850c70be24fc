//! Parity in place: what is at home, found when the array is opened, and cleared when a server is taken in.
//!
//! A block of checksums that is at home has no checksum but its own, so an old one of a server that was hit by a late write would
//! be believed. It is read from its own server and computed from the others, and the later one of both counts.

use super::home::{SUMS, Sums};
use super::map::Map;
use super::members::State;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, crc32c};
use crate::client::Ask;

/// Rows that are read at once.
const ROWS: u32 = 64;
/// So often they are read where what is found is nothing.
const ATTEMPTS: usize = 4;

/// Rows of all good members: member and bytes.
type Rows = Vec<(usize, Vec<u8>)>;

impl<F: Fleet> Array<F> {
    /// Puts the homes into the map, behind what the log has.
    pub(crate) fn load_homes(&self) -> Result<(), ArrayError> {
        let mut stripe = self.shape.stripe_of_sums();
        while self.shape.has_homes() && stripe < self.shape.homes {
            let behind = (stripe + ROWS).min(self.shape.homes);
            let mut wanted: Vec<u32> = (stripe..behind)
                .flat_map(|stripe| {
                    (0..self.shape.data).map(move |shard| self.shape.home_block(stripe, shard))
                })
                .filter(|block| (self.shape.blocks..self.shape.all_blocks()).contains(block))
                .collect();
            for _ in 0..ATTEMPTS {
                if wanted.is_empty() {
                    break;
                }
                let rows = self.rows(stripe, behind)?;
                let mut left = Vec::new();
                for block in wanted {
                    if !self.load_block(block, stripe, &rows)? {
                        left.push(block);
                    }
                }
                wanted = left;
            }
            if let Some(block) = wanted.first() {
                let first = (block - self.shape.blocks) * SUMS;
                return Err(ArrayError::Invalid(format!(
                    "no server has the checksums of the {SUMS} blocks from {first} on right"
                )));
            }
            stripe = behind;
        }
        Ok(())
    }

    /// The homes of some stripes, from every good member.
    fn rows(&self, first: u32, behind: u32) -> Result<Rows, ArrayError> {
        let seats: Vec<(usize, usize)> = {
            let members = self.members.read();
            members.in_state(State::Good).map(|member| (member, members.seat(member))).collect()
        };
        let length = (behind - first) as usize * BLOCK;
        let mut rows: Rows = seats.iter().map(|(member, _)| (*member, vec![0; length])).collect();
        let mut calls: Vec<Call<'_>> = seats
            .iter()
            .zip(&mut rows)
            .map(|((_, seat), (_, bytes))| Call::new(*seat, self.shape.home_start(first), Ask::Read(bytes)))
            .collect();
        self.insist(&mut calls);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let lost: Vec<usize> =
            seats.iter().zip(&done).filter(|(_, done)| !**done).map(|((member, _), _)| *member).collect();
        self.lose(&lost)?;
        rows.retain(|(member, _)| !lost.contains(member));
        Ok(rows)
    }

    /// Puts what a block of checksums says into the map: whether it could be read.
    fn load_block(&self, block: u32, first: u32, rows: &Rows) -> Result<bool, ArrayError> {
        let number = block - self.shape.blocks;
        let logged = self.map.read().entry(block);
        if logged.is_some_and(|entry| !entry.is_home()) {
            let mut bytes = vec![0; BLOCK];
            self.fetch(block, &mut bytes, true)?;
            let sums = Sums::decode(&bytes, number)
                .ok_or_else(|| ArrayError::Invalid(format!("checksums {number} are none")))?;
            self.note_sums(&mut self.map.write(), number, &sums);
            return Ok(true);
        }
        let at = (self.shape.stripe_of(block) - first) as usize * BLOCK;
        let own = usize::from(self.shape.at_home(block, 0).member);
        let row = |bytes: &Vec<u8>| bytes.get(at..at + BLOCK).map(<[u8]>::to_vec);
        let read = rows.iter().find(|(member, _)| *member == own).and_then(|(_, bytes)| row(bytes));
        let others: Vec<Vec<u8>> =
            rows.iter().filter(|(member, _)| *member != own).filter_map(|(_, bytes)| row(bytes)).collect();
        let computed = (others.len() == self.shape.data).then(|| {
            others.iter().fold(vec![0; BLOCK], |mut sum, other| {
                sum.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
                sum
            })
        });
        let candidates = [read, computed];
        let best = candidates
            .iter()
            .flatten()
            .filter_map(|bytes| Some((Sums::decode(bytes, number)?, bytes)))
            .max_by_key(|(sums, _)| sums.version);
        let Some((sums, bytes)) = best else { return Ok(false) };
        let mut map = self.map.write();
        if sums.version > 0 {
            map.set(block, self.shape.at_home(block, crc32c(bytes)));
        }
        self.note_sums(&mut map, number, &sums);
        Ok(true)
    }

    fn note_sums(&self, map: &mut Map, number: u32, sums: &Sums) {
        let first = number * SUMS;
        for (block, crc) in (first..self.shape.blocks).zip(&sums.crcs) {
            if *crc != 0 && map.entry(block).is_none() {
                map.set(block, self.shape.at_home(block, *crc));
            }
        }
        if let Some(made) = map.made.get_mut(number as usize) {
            *made = sums.version;
        }
    }

    /// Takes everything off a server that could be taken for checksums. It is looked at first: what is zeros stays untouched.
    pub(crate) fn wipe_sums(&self, seat: usize) -> Result<(), ()> {
        let mut stripe = self.shape.stripe_of_sums();
        let zeros = vec![0; ROWS as usize * BLOCK];
        while self.shape.has_homes() && stripe < self.shape.homes {
            let behind = (stripe + ROWS).min(self.shape.homes);
            let length = (behind - stripe) as usize * BLOCK;
            let start = self.shape.home_start(stripe);
            let mut found = vec![0; length];
            let mut calls = [Call::new(seat, start, Ask::Read(&mut found))];
            self.insist(&mut calls);
            if calls[0].outcome != Outcome::Done {
                return Err(());
            }
            if found.iter().any(|byte| *byte != 0) {
                let pieces = [zeros.get(..length).unwrap_or_default()];
                let mut calls = [Call::new(seat, start, Ask::Write(&pieces, false))];
                self.insist(&mut calls);
                if calls[0].outcome != Outcome::Done {
                    return Err(());
                }
            }
            stripe = behind;
        }
        Ok(())
    }
}
