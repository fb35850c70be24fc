//! Finding the end of the log after a power cut.
//!
//! The log ends before the first record that is torn, out of sequence or malformed. The last record may have been in
//! flight together with the data that it names; then it counts only if that data is there. What the medium says it will
//! never read (flash and disks with checksums of their own say so of what a power cut interrupted) counts as torn, unless
//! a later record shows that it was durable once.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::read_ring;
use super::record::{RECORD_HEADER, Record};
use crate::error::{Error, Result};
use crate::extent::{Extent, decode_birth, decode_run};
use crate::fs::memory;
use crate::key::Kind;
use crate::keyspace::Mutation;
use crate::layout::LogPosition;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::Store;
use crate::types::{BlockRun, Generation, Lsn};

/// Bytes of data that are checked at once: a multiple of every block size.
const CHECKED_AT_ONCE: usize = 64 << 10;

/// Where a valid record is.
#[derive(Debug, Clone, Copy)]
struct Located {
    block: u64,
    blocks: u64,
    payload: usize,
    lsn: Lsn,
}

/// Where a record is, for those who want to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the record.
    pub lsn: Lsn,
    /// First block, counted from the start of the log.
    pub block: u64,
    /// Blocks, header and padding included.
    pub blocks: u64,
    /// Bytes of mutations.
    pub payload: usize,
}

/// What the log holds.
#[derive(Debug, Default)]
pub struct Replayed {
    records: Vec<Located>,
    /// Blocks of data that the records name: they must not be allocated while the records are applied.
    pub runs: Vec<BlockRun>,
    /// Where the next record goes.
    pub end: LogPosition,
    /// Blocks that the records take.
    pub blocks: u64,
    /// The latest birth of an extent in them.
    pub birth_max: Generation,
    /// Behind the end lies what a record has left that was in flight: torn, or without its data.
    pub unfinished: bool,
    /// The log may go on behind its end: the medium could not read what is there, or the data of the record there.
    pub unreadable: Option<Error>,
}

impl Replayed {
    /// No records behind `start`.
    pub fn empty(start: LogPosition) -> Replayed {
        Replayed { end: start, ..Replayed::default() }
    }

    /// Where the records are, in order.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.records.iter().map(|located| Place {
            lsn: located.lsn,
            block: located.block,
            blocks: located.blocks,
            payload: located.payload,
        })
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The mutations of record `index`, read again from the medium so that only one record is in memory.
    pub fn mutations<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        index: usize,
    ) -> Result<Vec<Mutation>> {
        let damaged = Error::CorruptMetadata {
            address: store.superblock.log.start,
            reason: "log record changed while it was replayed",
        };
        let located = self.records.get(index).ok_or(damaged)?;
        let bytes = read_ring(store, located.block, RECORD_HEADER + located.payload)?;
        let record = Record::decode(&bytes, located.payload, |bytes| store.crc(bytes))?.ok_or(damaged)?;
        record.mutations()?.ok_or(damaged)
    }
}

/// Reads the log from `start`, the position in the metaroot of `generation`, to its end.
pub fn replay<M: Medium, P: Platform>(
    store: &Store<M, P>,
    start: LogPosition,
    generation: Generation,
) -> Result<Replayed> {
    let mut found = Replayed::empty(start);
    let mut last: Option<(Record, (LogPosition, u64, usize, Generation))> = None;
    while let Some((record, located)) = read_record(store, &mut found)? {
        let Some(mutations) = record.mutations()? else { break };
        let before = (found.end, found.blocks, found.runs.len(), found.birth_max);
        for run in data_runs(store, &mutations) {
            memory::push(&mut found.runs, run)?;
        }
        found.birth_max = found.birth_max.max(latest_birth(&mutations));
        found.end = LogPosition {
            lsn: Lsn(record.lsn.0 + 1),
            block: (found.end.block + located.blocks) % store.superblock.log.count,
            previous: record.digest,
            epoch: record.epoch,
        };
        found.blocks += located.blocks;
        memory::push(&mut found.records, located)?;
        last = Some((record, before));
    }
    if let Some((record, (end, blocks, runs, birth_max))) = last {
        let mutations = record.mutations()?.unwrap_or_default();
        let checked = record.check_data && !planted(Sabotage::AcceptRecordWithoutData);
        let there = !checked || data_is_there(store, &mutations, generation, &mut found.unreadable)?;
        if !there {
            found.records.pop();
            found.runs.truncate(runs);
            found.birth_max = birth_max;
            // The next record takes its place, in a later epoch.
            found.end = LogPosition { epoch: record.epoch, ..end };
            found.blocks = blocks;
        }
    }
    found.unfinished = header_behind(store, &mut found)?.is_some() || found.unreadable.is_some();
    if let Some(error) = found.unreadable
        && stranded(store, &found.end)?.is_some()
    {
        return Err(error);
    }
    Ok(found)
}

/// What `read` gives; nothing, and a note in `unreadable`, where the medium says twice that it never will.
fn unless_unreadable<T>(read: impl Fn() -> Result<T>, unreadable: &mut Option<Error>) -> Result<Option<T>> {
    match read().or_else(|error| if error.is_unreadable() { read() } else { Err(error) }) {
        Err(error) if error.is_unreadable() => {
            *unreadable = Some(error);
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Length of the payload of what looks like the record after those found so far.
fn header_behind<M: Medium, P: Platform>(
    store: &Store<M, P>,
    found: &mut Replayed,
) -> Result<Option<(Vec<u8>, usize)>> {
    let region = store.superblock.log;
    let header_blocks = (RECORD_HEADER as u64).div_ceil(u64::from(store.superblock.block_size));
    if found.blocks + header_blocks > region.count {
        return Ok(None);
    }
    let at = found.end.block;
    let header = unless_unreadable(|| read_ring(store, at, RECORD_HEADER), &mut found.unreadable)?;
    let Some(header) = header else { return Ok(None) };
    let payload = Record::payload_len(&header, &found.end, store.volume_id());
    Ok(payload.map(|payload| (header, payload)))
}

/// The record after those found so far, if there is one.
fn read_record<M: Medium, P: Platform>(
    store: &Store<M, P>,
    found: &mut Replayed,
) -> Result<Option<(Record, Located)>> {
    let region = store.superblock.log;
    let block_size = u64::from(store.superblock.block_size);
    let Some((header, payload)) = header_behind(store, found)? else { return Ok(None) };
    let blocks = (RECORD_HEADER as u64 + payload as u64).div_ceil(block_size);
    if found.blocks + blocks > region.count {
        return Ok(None);
    }
    let mut bytes = header;
    if bytes.len() < RECORD_HEADER + payload {
        let at = found.end.block;
        let whole =
            unless_unreadable(|| read_ring(store, at, RECORD_HEADER + payload), &mut found.unreadable)?;
        let Some(whole) = whole else { return Ok(None) };
        bytes = whole;
    }
    let record = Record::decode(&bytes, payload, |bytes| store.crc(bytes))?;
    Ok(record.map(|record| {
        let lsn = record.lsn;
        (record, Located { block: found.end.block, blocks, payload, lsn })
    }))
}

/// The highest LSN of a whole record in the ring that is behind `end`, the end of the log, and yet not reached: a record
/// before it was once there, since none is written before its predecessor is durable, and has been damaged since.
pub fn stranded<M: Medium, P: Platform>(store: &Store<M, P>, end: &LogPosition) -> Result<Option<Lsn>> {
    let region = store.superblock.log;
    let block_size = u64::from(store.superblock.block_size);
    let header_blocks = (RECORD_HEADER as u64).div_ceil(block_size);
    let mut highest = None;
    for block in 0..if header_blocks <= region.count { region.count } else { 0 } {
        let mut unreadable = None;
        let header = unless_unreadable(|| read_ring(store, block, RECORD_HEADER), &mut unreadable)?;
        let header = header.as_deref().and_then(|header| Record::any_header(header, store.volume_id()));
        let Some((position, payload)) = header else { continue };
        // Of an earlier mount: what it wrote behind the end was passed over by a later one.
        if position.lsn <= end.lsn || position.epoch < end.epoch || Some(position.lsn) <= highest {
            continue;
        }
        let blocks = (RECORD_HEADER as u64 + payload as u64).div_ceil(block_size);
        if blocks > region.count {
            continue;
        }
        let bytes = unless_unreadable(|| read_ring(store, block, RECORD_HEADER + payload), &mut unreadable)?;
        let Some(bytes) = bytes else { continue };
        if Record::decode(&bytes, payload, |bytes| store.crc(bytes))?.is_some() {
            highest = Some(position.lsn);
        }
    }
    Ok(highest)
}

fn data_runs<'a, M: Medium, P: Platform>(
    store: &'a Store<M, P>,
    mutations: &'a [Mutation],
) -> impl Iterator<Item = BlockRun> + 'a {
    let extents = mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent));
    extents.filter_map(|mutation| decode_run(mutation.value.as_deref()?)).filter(|run| store.contains(*run))
}

fn latest_birth(mutations: &[Mutation]) -> Generation {
    let extents = mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent));
    extents.filter_map(|mutation| decode_birth(mutation.value.as_deref()?)).max().unwrap_or_default()
}

/// Whether the data written since the checkpoint of `generation` that the mutations name can be read and matches its
/// checksums.
fn data_is_there<M: Medium, P: Platform>(
    store: &Store<M, P>,
    mutations: &[Mutation],
    generation: Generation,
    unreadable: &mut Option<Error>,
) -> Result<bool> {
    let granule = store.superblock.checksum_granule() as usize;
    let granules_per_block = store.superblock.block_size as usize / granule;
    for mutation in mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent)) {
        let Some(value) = &mutation.value else { continue };
        let extent = Extent::decode(value, granules_per_block as u32)?;
        if extent.unwritten || extent.birth <= generation {
            continue;
        }
        let mut at = extent.address;
        for checksums in extent.checksums.chunks(CHECKED_AT_ONCE / granule) {
            let read = || {
                let mut buffer = memory::zeroed(checksums.len() * granule)?;
                store.read_blocks(at, &mut buffer).map(|()| buffer)
            };
            // It was in flight together with the record: what cannot be read has most likely been interrupted.
            let Some(buffer) = unless_unreadable(read, unreadable)? else { return Ok(false) };
            let matches = |(bytes, checksum): (&[u8], &u32)| store.crc(bytes) == *checksum;
            if !buffer.chunks_exact(granule).zip(checksums).all(matches) {
                return Ok(false);
            }
            at.0 += (checksums.len() / granules_per_block) as u64;
        }
    }
    Ok(true)
}
