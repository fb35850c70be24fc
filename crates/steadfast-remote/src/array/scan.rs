//! Reads the headers of all segments from all good servers: which records exist, and which members
//! have them.
//!
//! Records of a segment are contiguous, so each header gives the offset of the next one. All
//! segments of a batch are walked in parallel on all servers, one step at a time. A member with a
//! missing or damaged header does not stop the walk.

use std::collections::BTreeSet;

use super::members::State;
use super::record::RecordHeader;
use super::shape::SECTOR;
use super::{Array, ArrayError, BLOCK, Call, Fleet, Outcome};
use crate::client::Ask;

/// Segments whose headers are read in parallel.
pub(super) const SLOTS_AT_ONCE: u32 = 32;
/// Bytes read for a header: no header is longer.
const HEADER_MAX: usize = 4096;

/// What the servers hold.
#[derive(Default)]
pub(super) struct Finds {
    /// Valid records, each with a bit mask of the good members that have it.
    pub(super) records: Vec<(RecordHeader, u32)>,
    /// The highest sequence number found, including void records: no number is used again.
    pub(super) last: u64,
    /// Segments with a void record.
    pub(super) doubtful: BTreeSet<u32>,
}

/// Progress of reading a segment.
struct Walk {
    slot: u32,
    /// Offset of the next header within the segment.
    offset: u32,
    /// Generation and session of the segment, once its first header is known.
    of: Option<(u64, u64)>,
}

impl<F: Fleet> Array<F> {
    /// Reads the headers of some segments from all good servers in parallel. Only the newest
    /// generation of a segment counts. A damaged header on one member does not hide later headers
    /// on the others.
    pub(super) fn scan(
        &self,
        slots: std::ops::Range<u32>,
        finds: &mut Finds,
    ) -> Result<(), ArrayError> {
        let mut walks: Vec<Walk> = slots.map(|slot| Walk { slot, offset: 0, of: None }).collect();
        while !walks.is_empty() {
            let (seats, superblock) = {
                let members = self.members.read();
                let good = members.in_state(State::Good);
                let seats: Vec<(usize, usize)> =
                    good.map(|member| (member, members.seat(member))).collect();
                (seats, members.superblock.clone())
            };
            let asked: Vec<(usize, (usize, usize))> = (0..walks.len())
                .flat_map(|walk| seats.iter().map(move |seat| (walk, *seat)))
                .collect();
            let place =
                |walk: usize| walks.get(walk).map_or((0, 0), |walk| (walk.slot, walk.offset));
            let mut buffers: Vec<Vec<u8>> = asked
                .iter()
                .map(|(walk, _)| {
                    vec![0; HEADER_MAX.min((self.shape.segment - place(*walk).1) as usize)]
                })
                .collect();
            let mut calls: Vec<Call<'_>> = asked
                .iter()
                .zip(&mut buffers)
                .map(|((walk, (_, seat)), buffer)| {
                    let (slot, offset) = place(*walk);
                    Call::new(
                        *seat,
                        self.shape.slot_start(slot) + u64::from(offset),
                        Ask::Read(buffer),
                    )
                })
                .collect();
            self.insist(&mut calls);
            let done: Vec<bool> = calls.iter().map(|call| call.outcome == Outcome::Done).collect();
            drop(calls);
            let mut lost = Vec::new();
            let mut found: Vec<Vec<(usize, RecordHeader)>> = vec![Vec::new(); walks.len()];
            for (((walk, (member, _)), buffer), done) in asked.iter().zip(&buffers).zip(done) {
                if !done {
                    lost.push(*member);
                    continue;
                }
                let (slot, offset) = place(*walk);
                let Some(header) =
                    RecordHeader::decode(buffer, &self.shape, &superblock.uuid, slot, offset)
                else {
                    continue;
                };
                finds.last = finds.last.max(header.sequence);
                if !superblock.admits(header.session, header.sequence) {
                    finds.doubtful.insert(slot);
                } else if let Some(found) = found.get_mut(*walk) {
                    found.push((*member, header));
                }
            }
            lost.sort_unstable();
            lost.dedup();
            self.lose(&lost)?;
            let mut further = Vec::new();
            for (walk, found) in walks.iter().zip(found) {
                let identity = |header: &RecordHeader| (header.generation, header.session);
                let first = found
                    .iter()
                    .map(|(_, header)| header)
                    .filter(|header| match walk.of {
                        Some(of) => identity(header) == of,
                        None => header.sequence == header.generation,
                    })
                    .max_by_key(|header| identity(header))
                    .cloned();
                let Some(header) = first else { continue };
                let holders = found
                    .iter()
                    .filter(|(_, own)| *own == header)
                    .fold(0, |holders, (member, _)| holders | 1 << member);
                let next = walk.offset as usize
                    + header.record_bytes(&self.shape).next_multiple_of(SECTOR);
                if !header.is_mark() && next + SECTOR + BLOCK <= self.shape.segment as usize {
                    further.push(Walk {
                        offset: next as u32,
                        of: Some(identity(&header)),
                        ..*walk
                    });
                }
                finds.records.push((header, holders));
            }
            walks = further;
        }
        Ok(())
    }
}
