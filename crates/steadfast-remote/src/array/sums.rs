//! Parity in place: the blocks of checksums of homes, which also record the places of groups. They
//! are always in the log.
//!
//! # Invariants
//! - The newest version of each checksum block is in the log, in segments of its own **stream**,
//!   under the rules for every record. It is on all members or completed there, flushed, and copied
//!   to a member that is rebuilt. No older version is used.
//! - A checksum block records, for each block, the checksum of the version that was newest when it
//!   was written. It also records whether that version was at home, complete and flushed.
//! - If the log holds the block in a newer record, the log is right. If the log holds it in an
//!   older record, the log is right only if that is the recorded version. It is not if the block
//!   was at home or the checksum differs. So an old version cannot reappear because the mark of its
//!   segment was lost, late or never made.
//! - A checksum block is written only while all groups are committed (`group.rs`), or to commit
//!   them. So every place that it records is flushed.
//! - Checksum segments are marked in any order, and sparse ones are packed. So hardly more than
//!   [`Shape::sums_segments`](super::Shape) segments hold needed blocks. Packing takes the contents
//!   from the map and reads nothing.

use std::collections::BTreeSet;

use super::location::{LOST, Location, NONE, kept};
use super::map::Map;
use super::record::Stream;
use super::seal::Log;
use super::shape::Shape;
use super::{Array, ArrayError, BLOCK, Fleet};
use crate::sabotage::{Sabotage, planted};

/// Contents of a checksum block. The header of its record verifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Record number of the last write to one of its homes.
    pub(crate) made: u64,
    /// Place of each group.
    pub(crate) places: Vec<u32>,
    /// Recorded checksum of each block, and whether the block was at home.
    pub(crate) blocks: Vec<(u32, bool)>,
}

impl Sums {
    /// Encodes as a block: places, one bit for each block, checksums, and `made` at the end.
    pub(crate) fn encode(&self, shape: &Shape) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        let (bits, crcs) = Sums::layout(shape);
        for (field, place) in bytes.chunks_exact_mut(4).zip(&self.places) {
            field.copy_from_slice(&place.to_le_bytes());
        }
        let fields = bytes.get_mut(crcs..).unwrap_or_default();
        for (field, (crc, _)) in fields.chunks_exact_mut(4).zip(&self.blocks) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
        for (index, _) in self.blocks.iter().enumerate().filter(|(_, (_, home))| *home) {
            if let Some(byte) = bytes.get_mut(bits + index / 8) {
                *byte |= 1 << (index % 8);
            }
        }
        if let Some(last) = bytes.last_chunk_mut() {
            *last = self.made.to_le_bytes();
        }
        bytes
    }

    /// Decodes a block.
    pub(crate) fn decode(bytes: &[u8], shape: &Shape) -> Option<Sums> {
        let (bits, crcs) = Sums::layout(shape);
        let fields = |from: usize, count: u32| {
            let fields = bytes.get(from..).unwrap_or_default().chunks_exact(4).take(count as usize);
            fields.filter_map(|field| field.first_chunk().copied().map(u32::from_le_bytes))
        };
        let home = |index: usize| {
            bytes.get(bits + index / 8).is_some_and(|byte| byte & 1 << (index % 8) != 0)
        };
        if bytes.len() != BLOCK {
            return None;
        }
        Some(Sums {
            made: u64::from_le_bytes(*bytes.last_chunk()?),
            places: fields(0, shape.groups_each()).collect(),
            blocks: fields(crcs, shape.sums_each())
                .enumerate()
                .map(|(at, crc)| (crc, home(at)))
                .collect(),
        })
    }

    /// Offsets of the bits and of the checksums.
    fn layout(shape: &Shape) -> (usize, usize) {
        let bits = 4 * shape.groups_each() as usize;
        (bits, bits + shape.sums_each() as usize / 8)
    }
}

/// Recorded checksum of the newest version of a block, wherever that is. If that version is only in
/// the log, the home does not match the checksum. So the home is not used, whatever happens to the
/// log.
pub(crate) fn kept_of(entry: Option<Location>) -> u32 {
    match entry {
        Some(entry) if entry.is_home() => entry.crc,
        Some(entry) => kept(entry.crc),
        None => NONE,
    }
}

impl<F: Fleet> Array<F> {
    /// Adds to the map the homes that the log does not supersede, and finds the free places.
    pub(crate) fn load_homes(&self, log: &mut Log) -> Result<(), ArrayError> {
        if !self.shape.has_homes() {
            return Ok(());
        }
        // Newest first: if two name the same place, the older one is wrong.
        let mut written: Vec<(u64, u32)> = {
            let map = self.map.read();
            let numbers = self.shape.blocks..self.shape.all_blocks();
            let sequence = |block| map.entry(block).and_then(|entry| map.sequence_of(&entry));
            numbers.filter_map(|block| Some((sequence(block)?, block))).collect()
        };
        written.sort_unstable_by(|one, other| other.cmp(one));
        let mut taken = vec![false; self.shape.places() as usize];
        let mut claimed = vec![false; self.shape.groups() as usize];
        let mut bytes = Vec::new();
        for part in written.chunks(self.shape.batch()) {
            bytes.resize(part.len() * BLOCK, 0);
            let blocks: Vec<u32> = part.iter().map(|(_, block)| *block).collect();
            let gone = self.fetch_surely(&blocks, &mut bytes)?;
            let mut map = self.map.write();
            for ((sequence, block), bytes) in part.iter().zip(bytes.chunks_exact(BLOCK)) {
                let known =
                    if gone.contains(block) { None } else { Sums::decode(bytes, &self.shape) };
                let number = block - self.shape.blocks;
                for (index, group) in self.groups_of(number).enumerate() {
                    let place = known.as_ref().and_then(|known| known.places.get(index)).copied();
                    let free = |place: &u32| taken.get(*place as usize) == Some(&false);
                    if let Some(place) = place.filter(free)
                        && let (Some(of), Some(taken)) =
                            (map.places.get_mut(group as usize), taken.get_mut(place as usize))
                    {
                        (*of, *taken) = (place, true);
                        claimed[group as usize] = true;
                    }
                }
                self.note_sums(&mut map, number, known.as_ref(), *sequence, &claimed);
            }
        }
        let mut map = self.map.write();
        // These groups were never written. They are at their first place unless another group has
        // it.
        let unclaimed = map.places.iter_mut().zip(&claimed).filter(|(_, claimed)| !**claimed);
        let mut adrift = Vec::new();
        for (place, _) in unclaimed {
            match taken.get_mut(*place as usize) {
                Some(taken) if !*taken => *taken = true,
                _ => adrift.push(place),
            }
        }
        // The place of these groups is unknown, so none of their homes is used. There are more
        // places than groups, so one is left for each.
        let left = (0..).zip(&taken).filter(|(_, taken)| !**taken).map(|(place, _)| place);
        let mut left: BTreeSet<u32> = left.collect();
        for place in adrift {
            *place = left.pop_first().ok_or(ArrayError::NoSpace)?;
        }
        log.places.begin(left);
        Ok(())
    }

    /// The groups that a checksum block covers.
    fn groups_of(&self, number: u32) -> std::ops::Range<u32> {
        let first = number * self.shape.groups_each();
        first..first.saturating_add(self.shape.groups_each()).min(self.shape.groups())
    }

    /// The blocks that a checksum block covers.
    fn blocks_of(&self, number: u32) -> std::ops::Range<u32> {
        let groups = self.groups_of(number);
        groups.start * self.shape.group()..groups.end * self.shape.group()
    }

    /// Applies a checksum block that was written by record `sequence`. If it is unreadable, its
    /// homes are unusable, and so are older versions in the log. If a group cannot be at its
    /// recorded place, the homes of that group are unusable.
    fn note_sums(
        &self,
        map: &mut Map,
        number: u32,
        known: Option<&Sums>,
        sequence: u64,
        claimed: &[bool],
    ) {
        let old_counts = planted(Sabotage::OldRecordCounts) || planted(Sabotage::MarkYounger);
        for (index, block) in self.blocks_of(number).enumerate() {
            let said = known.and_then(|known| known.blocks.get(index).copied());
            let in_log = map.entry(block).and_then(|entry| Some((map.sequence_of(&entry)?, entry)));
            let log_is_right = match (in_log, said) {
                (None, _) => false,
                (Some((own, _)), _) if own > sequence || old_counts => true,
                // When the checksums were written, the newest version was either this one or
                // another.
                (Some((_, entry)), Some((crc, at_home))) => !at_home && kept_of(Some(entry)) == crc,
                (Some(_), None) => false,
            };
            if log_is_right {
                continue;
            }
            let is_placed = claimed.get(self.shape.group_of(block) as usize) == Some(&true);
            match said.map_or(LOST, |(crc, _)| crc) {
                NONE => map.clear(block),
                crc => {
                    map.set(block, self.shape.at_home(block, if is_placed { crc } else { LOST }))
                }
            }
        }
        if let Some(made) = map.made.get_mut(number as usize) {
            *made = known.map_or(u64::MAX, |known| known.made);
        }
    }

    /// Encodes checksum blocks; the blocks in `gone` are recorded as lost.
    fn sums_of(&self, numbers: &[u32], gone: &BTreeSet<u32>) -> Vec<u8> {
        let map = self.map.read();
        let mut bytes = Vec::with_capacity(numbers.len() * BLOCK);
        for number in numbers {
            let said = |block: u32| {
                let entry = map.entry(block);
                let kept = if gone.contains(&block) { LOST } else { kept_of(entry) };
                (kept, entry.is_some_and(|entry| entry.is_home()))
            };
            let place = |group: u32| map.places.get(group as usize).copied().unwrap_or(u32::MAX);
            let sums = Sums {
                made: map.made.get(*number as usize).copied().unwrap_or(0),
                places: self.groups_of(*number).map(place).collect(),
                blocks: self.blocks_of(*number).map(said).collect(),
            };
            bytes.extend_from_slice(&sums.encode(&self.shape));
        }
        bytes
    }

    /// Sends the checksums of blocks that are about to be written home. The next flush makes them
    /// durable.
    pub(crate) fn write_sums(
        &self,
        log: &mut Log,
        blocks: &[u32],
        gone: &BTreeSet<u32>,
    ) -> Result<(), ArrayError> {
        debug_assert!(log.places.are_committed());
        let numbers: BTreeSet<u32> =
            blocks.iter().map(|block| block / self.shape.sums_each()).collect();
        self.renew_sums(log, numbers.into_iter().collect(), gone)
    }

    /// The same for these checksum blocks.
    pub(crate) fn renew_sums(
        &self,
        log: &mut Log,
        numbers: Vec<u32>,
        gone: &BTreeSet<u32>,
    ) -> Result<(), ArrayError> {
        self.note_made(&numbers, log.next);
        self.seal_sums(log, &numbers, gone, true)
    }

    /// Notes that record `sequence` has written homes of these checksum blocks.
    pub(crate) fn note_made(&self, numbers: &[u32], sequence: u64) {
        let mut map = self.map.write();
        for number in numbers {
            if let Some(made) = map.made.get_mut(*number as usize) {
                *made = sequence;
            }
        }
    }

    fn seal_sums(
        &self,
        log: &mut Log,
        numbers: &[u32],
        gone: &BTreeSet<u32>,
        durable: bool,
    ) -> Result<(), ArrayError> {
        let mut parts = numbers.chunks(self.shape.batch()).peekable();
        while let Some(part) = parts.next() {
            let bytes = self.sums_of(part, gone);
            let blocks: Vec<u32> = part.iter().map(|number| self.shape.blocks + number).collect();
            self.seal_blocks(
                log,
                Stream::Sums,
                &blocks,
                &bytes,
                durable && parts.peek().is_none(),
            )?;
        }
        Ok(())
    }

    /// Packs checksum segments until their number is within the limit, at most `most` of them. Each
    /// step sends at most half a segment and makes one obsolete. All groups are committed, or
    /// flushed and about to be committed.
    pub(crate) fn pack_sums(&self, log: &mut Log, most: usize) -> Result<(), ArrayError> {
        for _ in 0..most {
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
        Ok(())
    }

    /// The checksum segment with the fewest needed blocks, if there are too many segments.
    fn sums_victim(&self, log: &Log) -> Option<u32> {
        let map = self.map.read();
        let segments =
            map.segments.iter().enumerate().map(|(slot, segment)| (slot as u32, segment));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_go_both_ways() {
        for data in 2..=15 {
            let shape = Shape::in_place(data, 8 << 20).unwrap();
            let sums = Sums {
                made: u64::MAX - 5,
                places: (0..shape.groups_each()).map(|group| group * 3 + 1).collect(),
                blocks: (0..shape.sums_each()).map(|block| (block * 7, block % 3 == 0)).collect(),
            };
            assert_eq!(Sums::decode(&sums.encode(&shape), &shape).unwrap(), sums);
            let nothing = Sums::decode(&[0; BLOCK], &shape).unwrap();
            assert!(nothing.blocks.iter().all(|said| *said == (NONE, false)));
            assert_eq!(Sums::decode(&[0; 100], &shape), None);
        }
        for crc in [0, LOST, LOST + 1, u32::MAX] {
            assert!(![NONE, LOST].contains(&kept(crc)));
        }
    }
}
