//! Parity in place: cleaning writes the oldest segments of the log back to the homes of their
//! blocks.
//!
//! # Invariants
//! - **The write-hole rule**: a stripe of homes is overwritten only while every valid block of it
//!   is in the log, flushed there with its parity. So blocks that are only at home are first copied
//!   to the log, into segments of their own (**staged** records). A client that dies in between
//!   leaves only stripes of which no block is needed.
//! - Checksums of the new homes are flushed in the log before the homes are overwritten
//!   (`sums.rs`).
//! - The map names an overwritten home only after the home is flushed on every member that takes
//!   writes.
//! - Segments are marked from the oldest on (`mark.rs`). Otherwise an old version in an older
//!   segment could supersede a block that is at home. Staged records equal their homes and are
//!   marked before any younger segment.
//! - **Cleaning never writes into segments of new blocks.** Staged records are obsolete once their
//!   stripes are at home. Checksums use a limited number of segments. So each segment of new blocks
//!   that is written back is a segment gained.
//! - A home is written once. A write without an answer may arrive when newer data is there, so its
//!   member is lost, and a rebuild restores that member. A place in the log is reused only after a
//!   full rotation; a home may be written again at once.
//! - A block is declared lost only if every good member has answered and no answer matches. If a
//!   member has not answered, the step ends before any home is overwritten.
//!
//! Late writes of a dead client equal what the next client finds in the log. They would do harm
//! after the next client has written newer data home. Homes are overwritten in place, so the next
//! client must wait first (`close.rs`), or fence the dead one (etcd).

use std::collections::BTreeSet;

use parking_lot::MutexGuard;

use super::location::{LOST, kept};
use super::members::State;
use super::read::Remade;
use super::record::Stream;
use super::runs::Runs;
use super::seal::Log;
use super::{Array, ArrayError, BLOCK, Fleet, crc32c};
use crate::sabotage::{Sabotage, planted};

/// Most segments written back together: the neighbours of a block may be in the next ones.
const WINDOW: usize = 4;
/// Rounds in which every good member must answer with wrong data before a block is lost.
const ANSWERS: usize = 3;
/// Parts written back at once while a write waits for free segments.
const PARTS_WAITED_FOR: usize = 4;

/// Blocks of stripes, their bytes, and those of them that no server can supply.
type Fetched = (Vec<u32>, Vec<u8>, BTreeSet<u32>);

impl<F: Fleet> Array<F> {
    /// Makes sure that there are free segments to append to, for a write of this many blocks. With
    /// enough free segments it does nothing. With at least the minimum it writes back in proportion
    /// to the write. With fewer it continues until the minimum is free.
    ///
    /// So a write causes the write-back of twice its stripes and one step more, or of what a few
    /// segments hold.
    pub(crate) fn make_room_homes(
        &self,
        log: &mut MutexGuard<'_, Log>,
        blocks: usize,
    ) -> Result<(), ArrayError> {
        let (least, enough) = self.shape.free_homes();
        if log.free.len() >= enough {
            return Ok(());
        }
        self.release(log)?;
        let mut parts = 1 + 2 * blocks.div_ceil(self.shape.stripes_at_once());
        while log.free.len() < enough && (parts > 0 || log.free.len() < least) {
            let most = if parts > 0 { parts } else { PARTS_WAITED_FOR };
            let brought = self.bring_some(log, most)?;
            parts = parts.saturating_sub(brought);
            let before = log.free.len();
            self.release(log)?;
            // Every block that is written back leaves the log, so the loop ends.
            if brought == 0 && log.free.len() <= before {
                break;
            }
        }
        match log.free.is_empty() {
            true => Err(ArrayError::NoSpace),
            false => Ok(()),
        }
    }

    /// Frees obsolete segments.
    fn release(&self, log: &mut MutexGuard<'_, Log>) -> Result<(), ArrayError> {
        // An obsolete segment is marked after one flush and free after another.
        if !planted(Sabotage::MarkBeforeFlush) {
            self.flush_held(log)?;
        }
        self.mark(log)?;
        if !log.marked.is_empty() {
            self.flush_held(log)?;
        }
        Ok(())
    }

    /// Writes back the needed blocks of staged segments, if a dead client left any, and otherwise
    /// of the oldest segments. It writes at most `most` parts and returns their number.
    fn bring_some(&self, log: &mut MutexGuard<'_, Log>, most: usize) -> Result<usize, ArrayError> {
        let room = self.shape.stripes_at_once();
        let (mut stripes, mut slots) = (BTreeSet::new(), Vec::new());
        let mut parts: Vec<u32> = Vec::new();
        for (slot, staged) in self.oldest(log) {
            // Stripes of the oldest segment come first. Staged segments of a dead client are
            // handled alone.
            if parts.len() >= most.saturating_mul(room) || (!staged && parts.len() >= room) {
                break;
            }
            let records = match self.map.read().segments.get(slot as usize) {
                Some(segment) => segment.records.clone(),
                None => continue,
            };
            let blocks = self.live_in(slot, &records)?;
            slots.push(slot);
            let new: BTreeSet<u32> =
                blocks.iter().map(|block| self.shape.stripe_of(*block)).collect();
            parts.extend(new.into_iter().filter(|stripe| stripes.insert(*stripe)));
        }
        parts.truncate(most.saturating_mul(room));
        self.bring_home(log, &parts)?;
        let map = self.map.read();
        let emptied = |slot: &&u32| {
            map.segments.get(**slot as usize).is_some_and(|segment| segment.live == 0)
        };
        self.tally.cleaned(slots.iter().filter(emptied).count() as u64);
        Ok(parts.len().div_ceil(room))
    }

    /// The closed segments that hold needed blocks: the staged ones, or else the oldest ones of new
    /// blocks. The flag says whether a segment is staged.
    fn oldest(&self, log: &Log) -> Vec<(u32, bool)> {
        let map = self.map.read();
        let mut closed: Vec<(bool, u64, u32)> = map
            .segments
            .iter()
            .enumerate()
            .filter(|(slot, segment)| {
                segment.live > 0 && segment.stream != Stream::Sums && !log.is_open(*slot as u32)
            })
            .map(|(slot, segment)| {
                (segment.stream == Stream::Fresh, segment.generation, slot as u32)
            })
            .collect();
        closed.sort_unstable();
        let staged = closed.iter().filter(|(fresh, ..)| !fresh).count();
        closed.truncate(if staged > 0 { staged } else { WINDOW });
        closed.into_iter().map(|(fresh, _, slot)| (slot, !fresh)).collect()
    }

    /// Writes whole stripes home. All accepted blocks are flushed, and all groups are committed.
    pub(crate) fn bring_home(
        &self,
        log: &mut MutexGuard<'_, Log>,
        stripes: &[u32],
    ) -> Result<(), ArrayError> {
        let brought = stripes.chunks(self.shape.stripes_at_once()).try_for_each(|part| {
            for packed in [false, true] {
                if log.free.len() < self.shape.part_segments() {
                    log.moved = None;
                    self.release(log)?;
                }
                if !packed {
                    self.pack_sums(log, self.shape.slots as usize)?;
                }
            }
            self.bring_part(log, part)
        });
        // Staged records are obsolete now; an open segment would not be marked.
        log.moved = None;
        brought
    }

    fn bring_part(&self, log: &mut MutexGuard<'_, Log>, stripes: &[u32]) -> Result<(), ArrayError> {
        debug_assert!(log.waiting.is_empty() && stripes.len() <= self.shape.stripes_at_once());
        let (blocks, bytes, gone) = self.fetch_stripes(stripes)?;
        let at_home: BTreeSet<u32> = {
            let map = self.map.read();
            let at_home = |block: &u32| map.entry(*block).is_some_and(|entry| entry.is_home());
            blocks.iter().copied().filter(at_home).collect()
        };
        let unchanged: BTreeSet<u32> = at_home.difference(&gone).copied().collect();
        if !planted(Sabotage::HomeBeforeComplete) {
            let staged: Vec<u32> =
                blocks.iter().copied().filter(|block| unchanged.contains(block)).collect();
            let mut copies = Vec::with_capacity(staged.len() * BLOCK);
            for (block, bytes) in blocks.iter().zip(bytes.chunks_exact(BLOCK)) {
                if unchanged.contains(block) {
                    copies.extend_from_slice(bytes);
                }
            }
            self.seal_blocks(log, Stream::Moved, &staged, &copies, false)?;
        }
        self.write_sums(log, &blocks, &gone)?;
        if !planted(Sabotage::HomeBeforeSums) {
            self.flush_held(log)?;
        }
        self.write_homes(log, stripes, &bytes, &unchanged, None)?;
        self.flush_servers(log)?;
        self.alive()?;
        let mut map = self.map.write();
        let mut moved = 0;
        for (block, bytes) in blocks.iter().zip(bytes.chunks_exact(BLOCK)) {
            let crc = if gone.contains(block) { LOST } else { kept(crc32c(bytes)) };
            if map.entry(*block).is_some() {
                moved += u64::from(!at_home.contains(block));
                map.set(*block, self.shape.at_home(*block, crc));
            }
        }
        self.tally.moved(moved);
        Ok(())
    }

    /// All blocks of stripes, shard by shard. Blocks that were never written are zeros. So are
    /// blocks that no server can supply; they are returned as lost.
    fn fetch_stripes(&self, stripes: &[u32]) -> Result<Fetched, ArrayError> {
        let shard =
            |shard: usize| stripes.iter().map(move |stripe| self.shape.home_block(*stripe, shard));
        let blocks: Vec<u32> = (0..self.shape.data).flat_map(shard).collect();
        let mut bytes = vec![0; blocks.len() * BLOCK];
        let gone = self.fetch_surely(&blocks, &mut bytes)?;
        Ok((blocks, bytes, gone))
    }

    /// Reads blocks and returns those that are certainly lost. A discarded block may be lost after
    /// a client has died, and so may any block if more failed than the policy survives. Their
    /// neighbours must remain usable. The log is locked.
    pub(crate) fn fetch_surely(
        &self,
        blocks: &[u32],
        bytes: &mut [u8],
    ) -> Result<BTreeSet<u32>, ArrayError> {
        let mut gone: BTreeSet<u32> = {
            let map = self.map.read();
            let lost = |block: &u32| {
                map.entry(*block).is_some_and(|entry| entry.is_home() && entry.crc == LOST)
            };
            blocks.iter().copied().filter(lost).collect()
        };
        if gone.is_empty() {
            return self.fetch_known(blocks, bytes);
        }
        // Blocks known as lost are not read: a wait for a silent server would be in vain.
        let rest: Vec<u32> = blocks.iter().copied().filter(|block| !gone.contains(block)).collect();
        let mut known = vec![0; rest.len() * BLOCK];
        let more = self.fetch_known(&rest, &mut known)?;
        let mut known = known.chunks_exact(BLOCK);
        for (block, bytes) in blocks.iter().zip(bytes.chunks_exact_mut(BLOCK)) {
            match if gone.contains(block) { None } else { known.next() } {
                Some(found) => bytes.copy_from_slice(found),
                None => bytes.fill(0),
            }
        }
        gone.extend(more);
        Ok(gone)
    }

    fn fetch_known(&self, blocks: &[u32], bytes: &mut [u8]) -> Result<BTreeSet<u32>, ArrayError> {
        match self.fetch_each(blocks, bytes, true) {
            Err(ArrayError::Unreadable(_)) => {}
            fetched => return fetched.map(|()| BTreeSet::new()),
        }
        let mut gone = BTreeSet::new();
        for (block, bytes) in blocks.iter().zip(bytes.chunks_exact_mut(BLOCK)) {
            match self.fetch(*block, bytes, true) {
                Err(ArrayError::Unreadable(_)) => {
                    if self.is_gone(*block, bytes)? {
                        bytes.fill(0);
                        gone.insert(*block);
                    }
                }
                fetched => fetched?,
            }
        }
        Ok(gone)
    }

    /// Whether all good members answer, several times, and no combination of the answers matches
    /// the block. If a combination matches, `bytes` gets it. A member that does not answer must
    /// show its proof or is lost, and the others are asked again.
    fn is_gone(&self, block: u32, bytes: &mut [u8]) -> Result<bool, ArrayError> {
        let (mut wrong, mut unanswered) = (0, 0);
        while wrong < ANSWERS {
            let Some(entry) = self.map.read().entry(block) else {
                return Err(ArrayError::Unreadable(block));
            };
            match self.reconstruct(block, entry, true)? {
                Remade::Bytes(found) => {
                    bytes.copy_from_slice(&found);
                    return Ok(false);
                }
                Remade::Wrong => wrong += 1,
                Remade::Unanswered if planted(Sabotage::UnansweredIsGone) => wrong += 1,
                Remade::Unanswered if unanswered < ANSWERS => {
                    unanswered += 1;
                    let good: Vec<usize> = self.members.read().in_state(State::Good).collect();
                    good.into_iter().try_for_each(|member| self.suspect(member, true))?;
                }
                Remade::Unanswered | Remade::Moved => return Err(ArrayError::Unreadable(block)),
            }
        }
        self.alive()?;
        Ok(true)
    }

    /// Writes stripes to the homes of one member, or of every member that takes writes. Returns the
    /// bytes written to that one member. `bytes` holds the blocks, shard by shard. Good members
    /// already have the `unchanged` blocks; a member that is being rebuilt may not.
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
        let shards = self.with_parity(data, &mut buffers)?;
        let (mut seats, good): (Vec<(usize, usize)>, BTreeSet<usize>) = {
            let members = self.members.read();
            (members.writable_seats(), members.in_state(State::Good).collect())
        };
        seats.retain(|(member, _)| only.is_none_or(|only| *member == only));
        let starts: Vec<u64> = {
            let map = self.map.read();
            stripes.iter().map(|stripe| map.home_start(shape, *stripe)).collect()
        };
        let mut runs = Runs::default();
        for (member, seat) in &seats {
            for ((row, stripe), start) in stripes.iter().enumerate().zip(&starts) {
                let shard = shape.shard_of(*member, shape.turn(*stripe));
                if shard < shape.data
                    && good.contains(member)
                    && unchanged.contains(&shape.home_block(*stripe, shard))
                {
                    continue;
                }
                let piece =
                    shards.get(shard).and_then(|shard| shard.get(row * BLOCK..(row + 1) * BLOCK));
                runs.push((*member, *seat), *start, piece.unwrap_or_default());
            }
        }
        let twice = planted(Sabotage::HomeWrittenTwice);
        let lost = self.write_runs(log, &runs, 2 * self.options.patience_ms, twice);
        drop(runs);
        log.parity = buffers;
        self.lose_behind(&lost)?;
        Ok(length as u64)
    }

    /// Steps of a rebuild that copy homes.
    pub(crate) fn home_steps(&self) -> u32 {
        self.shape.stripes().div_ceil(self.shape.stripes_at_once() as u32)
    }

    /// Copies some stripes of homes to a member that is being rebuilt. Returns the bytes written.
    /// If only some blocks of a stripe are at home, the whole stripe is written back, because the
    /// parity of the rest is unknown.
    pub(crate) fn give_homes(
        &self,
        log: &mut MutexGuard<'_, Log>,
        member: usize,
        step: u32,
    ) -> Result<u64, ArrayError> {
        // Waiting blocks are not at home yet, and reads would return them instead of the homes.
        if !log.waiting.is_empty() {
            self.make_room(log, 0)?;
            self.flush_held(log)?;
        }
        let room = self.shape.stripes_at_once() as u32;
        let first = step.saturating_mul(room);
        let behind = first.saturating_add(room).min(self.shape.stripes());
        let (mut whole, mut partly) = (Vec::new(), Vec::new());
        {
            let map = self.map.read();
            for stripe in first..behind {
                let at_home = |shard| {
                    map.entry(self.shape.home_block(stripe, shard))
                        .is_some_and(|entry| entry.is_home())
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
                true => {
                    given +=
                        self.write_homes(log, &whole, &bytes, &BTreeSet::new(), Some(member))?
                }
                false => partly.append(&mut whole),
            }
        }
        if !partly.is_empty() {
            partly.sort_unstable();
            self.make_room(log, 0)?;
            self.flush_held(log)?;
            self.bring_home(log, &partly)?;
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
