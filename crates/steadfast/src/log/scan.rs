//! Finding the end of the log after a power cut.
//!
//! The newest whole record of each [group](crate::log::record_group) counts. The log ends before
//! the first group without one: all its records are torn, out of sequence or malformed. The last
//! record may have been in flight together with its new data. It counts only if that data is there;
//! otherwise the previous record counts. Units that the medium reports as permanently unreadable
//! count as torn, unless a later record shows that they were durable once. Flash, and disks with
//! their own checksums, report that for writes that a power cut interrupted.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::extent::{Extent, decode_birth, decode_run};
use crate::format::key::Kind;
use crate::format::payload::{self, Encoded};
use crate::format::record::{Header, RECORD_HEADER, Record};
use crate::format::{LogPosition, Mutation};
use crate::log::RECORD_SHARE;
use crate::log::find::{Candidate, Finder, FoundGroup, FoundRecord, RecordPlace};
use crate::log::headers::{Start, headers};
use crate::log::ring::{read_ring, unless_unreadable};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::space::RangeSet;
use crate::tree::Store;
use crate::types::{BlockAddress, Generation, Lsn};

/// Bytes of data checked at once: a multiple of every block size.
const CHECKED_AT_ONCE: usize = 64 << 10;

/// Limit of the record payloads that are kept from the search for the end to the replay, bytes.
/// They also take no more than a quarter of the cache. The rest is read twice.
const KEPT_MAX: usize = 4 << 20;

/// A record that counts.
#[derive(Debug)]
struct Located {
    place: RecordPlace,
    /// Its payload, if it was kept.
    kept: Option<Vec<u8>>,
}

/// Content of the log.
#[derive(Debug, Default)]
pub struct LogContent {
    records: Vec<Located>,
    /// Blocks of data that the records name. They must not be allocated while the records are
    /// applied.
    pub runs: RangeSet,
    /// Where the next group begins.
    pub end: LogPosition,
    /// The block of the last group that does not hold its newest record.
    pub spare: Option<u64>,
    /// Blocks that the groups take.
    pub blocks: u64,
    /// The latest birth of an extent in the records.
    pub birth_max: Generation,
    /// Past the end, or in the spare block, are the remains of a record that was in flight: torn,
    /// or without its data.
    pub unfinished: bool,
    /// Transaction points past the end that were durable once: their group no longer has a whole
    /// record.
    pub damaged_points: u32,
    /// The log may continue past its end: the medium could not read what is there, or the data of
    /// the record there.
    pub unreadable: Option<Error>,
}

impl LogContent {
    /// No records after `start`.
    pub fn empty(start: LogPosition) -> LogContent {
        LogContent { end: start, ..LogContent::default() }
    }

    /// Places of the records, in order.
    pub fn places(&self) -> impl Iterator<Item = RecordPlace> + '_ {
        self.records.iter().map(|located| located.place)
    }

    /// Number of transaction points in the records.
    pub fn points(&self) -> u32 {
        self.records
            .iter()
            .fold(0, |points, located| points.saturating_add(located.place.index).saturating_add(1))
    }

    /// Number of records that count: one of each group.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The payload of record `index`, if there was memory to keep it.
    pub fn kept(&self, index: usize) -> Option<&[u8]> {
        self.records.get(index)?.kept.as_deref()
    }

    /// Bytes of all kept payloads.
    pub fn kept_bytes(&self) -> usize {
        self.records.iter().filter_map(|located| located.kept.as_ref()).map(Vec::len).sum()
    }

    /// The mutations of record `index`. They are read again from the medium if there was no memory
    /// to keep them.
    pub fn mutations<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        index: usize,
    ) -> Result<Vec<Mutation>> {
        let damaged = Error::CorruptLog {
            address: store.device.superblock.log.start,
            reason: "log record changed while it was replayed",
        };
        let Located { place, kept } = self.records.get(index).ok_or(damaged)?;
        if let Some(payload) = kept {
            return payload::mutations(payload, |_| true)?.ok_or(damaged);
        }
        let bytes = read_ring(store, place.block, 0, RECORD_HEADER + place.payload)?;
        let record = Record::decode(&bytes, place.payload, |bytes| store.device.crc(bytes))?;
        drop(bytes);
        record.ok_or(damaged)?.mutations()?.ok_or(damaged)
    }

    /// Keeps the blocks of an extent for the replay.
    fn keep_blocks<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        extent: &[u8],
    ) -> Result<()> {
        if let Some(run) = decode_run(extent).filter(|run| store.device.contains(*run)) {
            self.runs.reserve(1)?;
            self.runs.insert(run.start.0, run.end());
        }
        self.birth_max = self.birth_max.max(decode_birth(extent).unwrap_or_default());
        Ok(())
    }

    /// Keeps the blocks that mutations name, which are applied with the records.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn keep_blocks_of<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        mutations: &[Mutation],
    ) -> Result<()> {
        let extents = mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent));
        extents
            .filter_map(|mutation| mutation.value.as_ref())
            .try_for_each(|extent| self.keep_blocks(store, extent))
    }

    /// Takes `record` as the counting record of the group at the end, and moves the end after it.
    #[inline(never)]
    fn accept<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        found: FoundRecord,
        keep: &mut usize,
    ) -> Result<()> {
        extents(found.record.payload()).try_for_each(|extent| self.keep_blocks(store, extent))?;
        let ring = store.device.superblock.log.count;
        let second = (self.end.block + 1) % ring;
        let spare = if found.place.block == second { self.end.block } else { second };
        self.spare = (found.record.index > 0).then_some(spare);
        self.end = found.end(&self.end, ring);
        self.blocks += found.group_blocks();
        let payload = found.record.into_payload();
        let kept = keep.checked_sub(payload.capacity()).map(|left| {
            *keep = left;
            payload
        });
        memory::push(&mut self.records, Located { place: found.place, kept })
    }
}

/// Reads the log from `start`, the position in the metaroot of `generation`, to its end.
pub fn scan<M: Medium, P: Platform>(
    store: &Store<M, P>,
    start: LogPosition,
    generation: Generation,
) -> Result<LogContent> {
    let ring = store.device.superblock.log.count;
    let mut found = LogContent::empty(start);
    let cache = store.cache_use().capacity * store.device.superblock.node_size as usize;
    let mut keep = KEPT_MAX.min(cache / 4);
    let mut finder = Finder::new(store);
    // A record is known to have been durable only if another one follows it.
    let mut last: Option<FoundGroup> = None;
    let end = loop {
        let (end, blocks) = match &last {
            None => (found.end, found.blocks),
            Some(FoundGroup { newest, .. }) => {
                (newest.end(&found.end, ring), found.blocks + newest.group_blocks())
            }
        };
        match finder.group(&end, ring - blocks)? {
            Ok(next) => {
                if let Some(done) = last.replace(next) {
                    found.accept(store, done.newest, &mut keep)?;
                }
            }
            Err(end) => break end,
        }
    };
    found.damaged_points = end.durable;
    found.note_remains(end.begins);
    if let Some(last) = last {
        accept_last(store, &mut finder, &mut found, last, generation, &mut keep)?;
    }
    Ok(found)
}

/// Takes the last group, whose newest record may have been in flight. Without its data it does not
/// count. Then the record before it in the group is the last.
#[inline(never)]
fn accept_last<M: Medium, P: Platform>(
    store: &Store<M, P>,
    finder: &mut Finder<'_, M, P>,
    found: &mut LogContent,
    FoundGroup { newest, other }: FoundGroup,
    generation: Generation,
    keep: &mut usize,
) -> Result<()> {
    let checked = newest.record.check_data && !planted(Sabotage::AcceptRecordWithoutData);
    let mutations =
        if checked { newest.record.new_mutations()?.unwrap_or_default() } else { Vec::new() };
    if data_is_there(store, &mutations, generation, &mut found.unreadable)? {
        let grouped = newest.record.index > 0;
        found.accept(store, newest, keep)?;
        if grouped {
            found.note_remains(finder.examine(other)?);
        }
    } else {
        // The next record takes its place, in a later epoch.
        found.unfinished = true;
        let epoch = newest.record.epoch;
        let grouped = newest.record.index > 0;
        match if grouped { finder.examine(other)? } else { Candidate::Nothing } {
            Candidate::Whole(before) if before.record.lsn.0 + 1 == newest.record.lsn.0 => {
                found.accept(store, before, keep)?;
            }
            _ if !grouped => {}
            _ => {
                let address =
                    BlockAddress(store.device.superblock.log.start.0 + newest.place.block);
                let reason =
                    "the last record of the log lacks its data, and the one before it is damaged";
                return Err(Error::CorruptLog { address, reason });
            }
        }
        found.end.epoch = epoch;
    }
    Ok(())
}

impl LogContent {
    /// Notes what lies in the place of the next record.
    fn note_remains(&mut self, remains: Candidate) {
        match remains {
            Candidate::Nothing => {}
            Candidate::Torn => self.unfinished = true,
            Candidate::Unreadable(error) => {
                self.unfinished = true;
                self.unreadable = Some(error);
            }
            // It has been examined.
            Candidate::Unseen(..) | Candidate::Begun(_) | Candidate::Whole(_) => {}
        }
    }
}

/// How far past the end of the log the search for stranded records goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranded {
    /// In this many bytes past the end.
    Near(u64),
    /// In the whole ring.
    Anywhere,
}

/// The highest LSN of a whole record in the ring that is past the end of the log in `found`. The
/// log does not reach such a record. A record is written only after its predecessor is durable, so
/// an earlier record existed and was damaged since.
pub fn stranded<M: Medium, P: Platform>(
    store: &Store<M, P>,
    found: &LogContent,
    reach: Stranded,
) -> Result<Option<Lsn>> {
    let region = store.device.superblock.log;
    let block_size = u64::from(store.device.superblock.block_size);
    let end = &found.end;
    let blocks = match reach {
        Stranded::Near(bytes) => {
            (bytes / block_size).min(region.count - found.blocks.min(region.count))
        }
        Stranded::Anywhere => region.count,
    };
    // Whole records do not overlap. Beside them are records of the previous round, and a forged
    // image has any number of records.
    let ring = region.count * block_size;
    let mut budget = 4 * ring;
    let mut highest = None;
    headers(
        &store.device.medium,
        &store.device.superblock,
        (end.block, blocks),
        |block, start| {
            let Start::Header(Header { lsn, epoch, payload, .. }) = start else { return Ok(()) };
            // A record of an earlier mount: a later mount skipped what it wrote past the end.
            if lsn <= end.lsn || epoch < end.epoch || Some(lsn) <= highest {
                return Ok(());
            }
            let length = RECORD_HEADER as u64 + payload as u64;
            if length > ring / RECORD_SHARE || length > budget {
                return Ok(());
            }
            budget -= length;
            let Ok(bytes) =
                unless_unreadable(|| read_ring(store, block, 0, RECORD_HEADER + payload))?
            else {
                return Ok(());
            };
            if Record::decode(&bytes, payload, |bytes| store.device.crc(bytes))?.is_some() {
                highest = Some(lsn);
            }
            Ok(())
        },
    )?;
    Ok(highest)
}

/// The extents that a payload puts.
fn extents(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    Encoded(payload)
        .filter(|(key, ..)| key.kind() == Some(Kind::Extent))
        .filter_map(|(.., value)| value)
}

/// Whether data written since the checkpoint of `generation` can be read and matches its checksums.
/// It checks the data that the mutations name.
#[inline(never)]
pub fn data_is_there<M: Medium, P: Platform>(
    store: &Store<M, P>,
    mutations: &[Mutation],
    generation: Generation,
    unreadable: &mut Option<Error>,
) -> Result<bool> {
    let granule = store.device.superblock.checksum_granule() as usize;
    let granules_per_block = store.device.superblock.block_size as usize / granule;
    let in_log = |error| match error {
        Error::CorruptMetadata { reason, .. } => {
            Error::CorruptLog { address: store.device.superblock.log.start, reason }
        }
        other => other,
    };
    for mutation in mutations.iter().filter(|mutation| mutation.key.kind() == Some(Kind::Extent)) {
        let Some(value) = &mutation.value else { continue };
        let extent = Extent::decode(value, granules_per_block as u32).map_err(in_log)?;
        if extent.unwritten || extent.birth <= generation {
            continue;
        }
        let mut at = extent.address;
        for checksums in extent.checksums.chunks(CHECKED_AT_ONCE / granule) {
            let read = || {
                let mut buffer = memory::zeroed(checksums.len() * granule)?;
                store.device.read_blocks(at, &mut buffer).map(|()| buffer)
            };
            // The data was in flight together with the record, so an unreadable block was most
            // likely interrupted.
            let buffer = match unless_unreadable(read)? {
                Ok(buffer) => buffer,
                Err(error) => {
                    *unreadable = Some(error);
                    return Ok(false);
                }
            };
            let matches = |(bytes, checksum): (&[u8], &u32)| store.device.crc(bytes) == *checksum;
            if !buffer.chunks_exact(granule).zip(checksums).all(matches) {
                return Ok(false);
            }
            at.0 += (checksums.len() / granules_per_block) as u64;
        }
    }
    Ok(true)
}
