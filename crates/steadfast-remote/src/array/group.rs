//! Parity in place: large writes bypass the log. Whole groups go directly to free places.
//!
//! A group is the chunks of as many stripes as a chunk has blocks; there are more places than
//! groups ([`home`](super::home)). A write of whole groups overwrites no needed block, so it needs
//! no log. It is sent once, with its parity, to its final place.
//!
//! # Invariants
//! - The next flush **commits** a group, in this order. The group is flushed on all members. Then
//!   the checksums that record its place are flushed. Only then the places that groups have left
//!   are free. A client that opens the array finds either the old group or the new one.
//! - Until the commit, nothing that the group makes obsolete is marked (`mark.rs`), and no stripe
//!   is written back.
//! - A place is written once by a group, and later only as homes are (`bring.rs`).
//! - If a member has not answered, the write may arrive later, when another group is there. So the
//!   places of that round stay unused while the array is open, and the blocks go to the log. A
//!   member that shows its proof now is not lost for that write. Its earlier unflushed writes are
//!   handled in `flush.rs`.

use std::collections::BTreeSet;

use parking_lot::MutexGuard;

use super::home::CHUNK;
use super::location::kept;
use super::runs::Runs;
use super::seal::Log;
use super::shape::{RECORD_BLOCKS_MAX, Shape};
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome, Superblock, crc32c};
use crate::client::Ask;
use crate::sabotage::{Sabotage, planted};

/// Fewest blocks of whole groups that are worth a commit, if a record has room for them.
const GROUPS_MIN: usize = 128;
impl Shape {
    /// Groups that are written together.
    fn groups_at_once(&self) -> usize {
        (RECORD_BLOCKS_MAX / self.group() as usize).max(1)
    }

    /// Checksum blocks written together, so that a commit stays within its segments.
    fn commit_max(&self) -> usize {
        self.batch().min(self.segment_blocks()) / 2
    }
}

impl<F: Fleet> Array<F> {
    /// The next part of a write of this many blocks from `first` on: its length, and whether it is
    /// whole groups with free places.
    pub(crate) fn next_part(
        &self,
        log: &mut MutexGuard<'_, Log>,
        first: u32,
        blocks: usize,
    ) -> Result<(usize, bool), ArrayError> {
        let group = self.shape.group() as usize;
        if !self.shape.has_homes() {
            return Ok((blocks, false));
        }
        let lead = (first as usize).next_multiple_of(group) - first as usize;
        let whole = blocks.saturating_sub(lead) / group;
        if whole == 0 || whole * group < GROUPS_MIN.min(self.shape.batch()) {
            return Ok((blocks, false));
        }
        if lead > 0 {
            return Ok((lead, false));
        }
        let count = whole.min(self.shape.groups_at_once());
        let sums =
            log.places.uncommitted.len() + count.div_ceil(self.shape.groups_each() as usize) + 1;
        let scarce = log.places.free.len() < count || sums > self.shape.commit_max();
        if scarce && !log.places.are_committed() {
            self.flush_held(log)?;
            self.make_room(log, 0)?;
        }
        Ok(match count.min(log.places.free.len()) {
            0 => (whole * group, false),
            count => (count * group, true),
        })
    }

    /// Writes whole groups to free places. Returns whether all members that take writes have them.
    /// Otherwise nothing has changed.
    pub(crate) fn send_groups(
        &self,
        log: &mut Log,
        first: u32,
        data: &[u8],
    ) -> Result<bool, ArrayError> {
        let shape = &self.shape;
        let size = shape.group() as usize * BLOCK;
        let groups = shape.group_of(first)..shape.group_of(first) + (data.len() / size) as u32;
        let places = log.places.take(groups.len());
        // Returned after everything is sent.
        let mut parities = std::mem::take(&mut log.parities);
        parities.resize_with(groups.len().max(parities.len()), Vec::new);
        let mut crcs: Vec<u32> = Vec::with_capacity(data.len() / BLOCK);
        let chunks = data.chunks_exact(size).zip(&mut parities);
        let chunks = chunks.map(|(group, buffers)| {
            // Summed here because parity needs the same bytes in the CPU cache.
            crcs.extend(group.chunks_exact(BLOCK).map(|bytes| kept(crc32c(bytes))));
            self.with_parity(group.chunks_exact(CHUNK as usize * BLOCK).collect(), buffers)
        });
        let chunks: Vec<Vec<&[u8]>> = chunks.collect::<Result<_, _>>()?;
        let mut runs = Runs::default();
        for (member, seat) in self.members.read().writable_seats() {
            for ((group, place), chunks) in groups.clone().zip(&places).zip(&chunks) {
                let chunk = chunks.get(shape.shard_of(member, u64::from(group)));
                runs.push(
                    (member, seat),
                    shape.place_start(*place),
                    chunk.copied().unwrap_or_default(),
                );
            }
        }
        let covered = log.unflushed;
        let refused = self.write_runs(log, &runs, self.options.patience_ms, false);
        drop(runs);
        log.parities = parities;
        if !refused.is_empty() {
            // None of these writes count, so the next flush need not cover their connections.
            log.unflushed = covered;
            if planted(Sabotage::SpoiledIsFree) {
                log.places.free.extend(places);
            }
            self.have_proof(&refused)?;
            return Ok(false);
        }
        let blocks = first..first + (data.len() / BLOCK) as u32;
        log.waiting.retain(|block| !blocks.contains(block));
        let mut map = self.map.write();
        for (block, crc) in blocks.zip(crcs) {
            if !map.pending.is_empty() {
                map.pending.remove(&block);
            }
            map.set(block, shape.at_home(block, crc));
        }
        for (group, place) in groups.zip(places) {
            if let Some(of) = map.places.get_mut(group as usize) {
                log.places.left.push(std::mem::replace(of, place));
            }
            log.places.uncommitted.insert(group / shape.groups_each());
            self.tally.groups(1);
        }
        if planted(Sabotage::LeftIsFree) {
            let left = std::mem::take(&mut log.places.left);
            log.places.free.extend(left);
        }
        Ok(true)
    }

    /// Records the places of groups on the servers. Everything sent is flushed.
    pub(crate) fn commit_groups(&self, log: &mut Log) -> Result<(), ArrayError> {
        if log.places.are_committed() {
            return Ok(());
        }
        let numbers: Vec<u32> = log.places.uncommitted.iter().copied().collect();
        // Packing may include some of these.
        self.note_made(&numbers, log.next);
        // Packed first, so that nothing is sent after what is flushed.
        self.pack_sums(log, 1)?;
        self.renew_sums(log, numbers, &BTreeSet::new())?;
        self.flush_servers(log)?;
        self.alive()?;
        log.durable = log.next - 1;
        let left = std::mem::take(&mut log.places.left);
        log.places.free.extend(left);
        log.places.uncommitted.clear();
        Ok(())
    }

    /// Asks members that have not answered for their proof, once. Members that do not show it are
    /// lost. With the earlier request that is two tries, as for every call.
    fn have_proof(&self, members: &[usize]) -> Result<(), ArrayError> {
        let (seats, present): (Vec<usize>, Superblock) = {
            let held = self.members.read();
            (members.iter().map(|member| held.seat(*member)).collect(), held.superblock.clone())
        };
        let mut proofs = vec![vec![0; BLOCK]; seats.len()];
        let asked = seats.iter().zip(&mut proofs);
        let mut calls: Vec<Call<'_>> = asked
            .map(|(seat, proof)| {
                Call::new(*seat, Superblock::offset(present.epoch), Ask::Read(proof))
            })
            .collect();
        self.fleet.round(&mut calls, self.options.patience_ms);
        let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
        drop(calls);
        let shown = members.iter().zip(&proofs).zip(done);
        let lost = shown.filter(|((_, proof), done)| !(*done && present.is_shown_by(proof)));
        let lost: Vec<usize> = lost.map(|((member, _), _)| *member).collect();
        self.lose_behind(&lost)
    }
}
