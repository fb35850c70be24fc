//! Parity in place: the checksums of homes, which are always in the log.
//!
//! # Invariants
//! - The newest version of each block of checksums is in the log, in segments of this **stream**, under the rules for every record:
//!   it is on all members or completed there, flushed, and given to who is rebuilt. Nothing older is ever believed.
//! - What it says of a block is the checksum of its newest version when it was written, in the order of records, and counts only where
//!   the log has not that block, or has an older version only: then that version is at home, or the block was discarded. So an old
//!   version does not count again where the mark of its segment was lost, or came late.
//! - Its segments are marked in any order, and those of which little is needed are packed, so that there are never more than
//!   [`Shape::sums_segments`](super::Shape) of which any is. What is packed is made of the map, not read.

use std::collections::BTreeSet;

use super::home::{LOST, NONE, SUMS, Sums, kept_of};
use super::map::Map;
use super::seal::{Log, Stream};
use super::{Array, ArrayError, BLOCK, Fleet};
use crate::sabotage::{Sabotage, planted};

impl<F: Fleet> Array<F> {
    /// Puts the homes into the map, behind what the log has.
    pub(crate) fn load_homes(&self) -> Result<(), ArrayError> {
        let written: Vec<u32> = {
            let map = self.map.read();
            (self.shape.blocks..self.shape.all_blocks()).filter(|block| map.entry(*block).is_some()).collect()
        };
        let mut bytes = Vec::new();
        for part in written.chunks(self.shape.batch()) {
            bytes.resize(part.len() * BLOCK, 0);
            let gone = self.fetch_surely(part, &mut bytes)?;
            let mut map = self.map.write();
            for (block, bytes) in part.iter().zip(bytes.chunks_exact(BLOCK)) {
                let known = if gone.contains(block) { None } else { Sums::decode(bytes) };
                let sequence = map.entry(*block).and_then(|entry| map.sequence_of(&entry)).unwrap_or(0);
                self.note_sums(&mut map, block - self.shape.blocks, known.as_ref(), sequence);
            }
        }
        Ok(())
    }

    /// What a block of checksums says, from the record of this number; where nobody has it, nothing of what it covers can be believed.
    fn note_sums(&self, map: &mut Map, number: u32, known: Option<&Sums>, sequence: u64) {
        let first = number * SUMS;
        let behind = first.saturating_add(SUMS).min(self.shape.blocks);
        let old_counts = planted(Sabotage::OldRecordCounts) || planted(Sabotage::MarkYounger);
        for (index, block) in (first..behind).enumerate() {
            let crc = known.map_or(Some(LOST), |known| known.crcs.get(index).copied()).unwrap_or(NONE);
            let at_home = match map.entry(block) {
                None => true,
                // When the checksums were written the newest version was another one.
                Some(entry) if known.is_some() && !old_counts => {
                    map.sequence_of(&entry).is_some_and(|own| own < sequence) && kept_of(Some(entry)) != crc
                }
                Some(_) => false,
            };
            if crc != NONE && at_home {
                map.set(block, self.shape.at_home(block, crc));
            }
        }
        if let Some(made) = map.made.get_mut(number as usize) {
            *made = known.map_or(u64::MAX, |known| known.made);
        }
    }

    /// Blocks of checksums, where these blocks are gone.
    fn sums_of(&self, numbers: &[u32], gone: &BTreeSet<u32>) -> Vec<u8> {
        let map = self.map.read();
        let mut bytes = Vec::with_capacity(numbers.len() * BLOCK);
        for number in numbers {
            let first = number * SUMS;
            let behind = first.saturating_add(SUMS).min(self.shape.blocks);
            let crc = |block: u32| match gone.contains(&block) {
                true => LOST,
                false => kept_of(map.entry(block)),
            };
            let made = map.made.get(*number as usize).copied().unwrap_or(0);
            bytes.extend_from_slice(&Sums { made, crcs: (first..behind).map(crc).collect() }.encode());
        }
        bytes
    }

    /// Sends the checksums of what is about to be brought home; they are flushed with the next flush.
    pub(crate) fn write_sums(
        &self,
        log: &mut Log,
        blocks: &[u32],
        gone: &BTreeSet<u32>,
    ) -> Result<(), ArrayError> {
        let numbers: BTreeSet<u32> = blocks.iter().map(|block| block / SUMS).collect();
        {
            let mut map = self.map.write();
            for number in &numbers {
                if let Some(made) = map.made.get_mut(*number as usize) {
                    *made = log.next;
                }
            }
        }
        let numbers: Vec<u32> = numbers.into_iter().collect();
        self.seal_sums(log, &numbers, gone, true)
    }

    fn seal_sums(
        &self,
        log: &mut Log,
        numbers: &[u32],
        gone: &BTreeSet<u32>,
        durable: bool,
    ) -> Result<(), ArrayError> {
        for part in numbers.chunks(self.shape.batch()) {
            let bytes = self.sums_of(part, gone);
            let blocks: Vec<u32> = part.iter().map(|number| self.shape.blocks + number).collect();
            self.seal_blocks(log, Stream::Sums, &blocks, &bytes, durable)?;
        }
        Ok(())
    }

    /// Packs checksums until no more segments hold them than may. Each time at most half a segment is sent, and one is done with.
    pub(crate) fn pack_sums(&self, log: &mut Log) -> Result<(), ArrayError> {
        for _ in 0..self.shape.slots {
            let Some(slot) = self.sums_victim(log) else { break };
            let numbers: Vec<u32> = {
                let map = self.map.read();
                let here = |block: &u32| map.entry(*block).is_some_and(|entry| entry.slot == slot);
                let all = self.shape.blocks..self.shape.all_blocks();
                all.filter(here).map(|block| block - self.shape.blocks).collect()
            };
            debug_assert!(2 * numbers.len() <= self.shape.segment_blocks());
            self.seal_sums(log, &numbers, &BTreeSet::new(), false)?;
            self.tally.moved(numbers.len() as u64);
            self.tally.packed(numbers.len() as u64);
            if planted(Sabotage::PackedIsFlushed) {
                log.durable = log.next - 1;
                self.mark(log)?;
            }
        }
        debug_assert!(self.sums_victim(log).is_none());
        Ok(())
    }

    /// The segment of checksums that the fewest are needed of, where there are too many.
    fn sums_victim(&self, log: &Log) -> Option<u32> {
        let map = self.map.read();
        let segments = map.segments.iter().enumerate().map(|(slot, segment)| (slot as u32, segment));
        let closed: Vec<(u32, u32)> = segments
            .filter(|(slot, segment)| {
                segment.stream == Stream::Sums && segment.live > 0 && !log.is_open(*slot)
            })
            .map(|(slot, segment)| (segment.live, slot))
            .collect();
        let most = self.shape.sums_segments();
        closed.iter().min().filter(|_| closed.len() > most).map(|(_, slot)| *slot)
    }
}
