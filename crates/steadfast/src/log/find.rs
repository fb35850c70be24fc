//! Finding the groups of the log, one after the other.
//!
//! Of a [group](crate::log::record_group) only the record that counts is read in full: the newer
//! one, or the other one if the newer is torn. The header in the second block is read only if the
//! next group does not name the record in the first as its predecessor. No block is read twice:
//! bytes that were read ahead are kept until the search reaches them.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::LogPosition;
use crate::format::record::{Header, RECORD_HEADER, Record};
use crate::log::ring::{read_ring, unless_unreadable};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::Lsn;

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// Number of the record.
    pub lsn: Lsn,
    /// Its position in its group, which is the number of earlier commits that it repeats.
    pub index: u32,
    /// First block, counted from the start of the log.
    pub block: u64,
    /// Blocks, header and padding included.
    pub blocks: u64,
    /// Bytes of mutations.
    pub payload: usize,
}

impl RecordPlace {
    /// Blocks of its group if it is the last record of it: a group of several records has two
    /// blocks, which its records use by turns.
    pub fn group_blocks(&self) -> u64 {
        if self.index == 0 { self.blocks } else { 2 }
    }
}

/// A whole record of the searched group.
pub(super) struct FoundRecord {
    pub record: Record,
    pub place: RecordPlace,
}

impl FoundRecord {
    /// See [`RecordPlace::group_blocks`].
    pub fn group_blocks(&self) -> u64 {
        self.place.group_blocks()
    }

    /// The end of the log after it, if its group begins at `start`.
    pub fn end(&self, start: &LogPosition, ring: u64) -> LogPosition {
        LogPosition {
            lsn: Lsn(self.record.lsn.0 + 1),
            block: (start.block + self.group_blocks()) % ring,
            previous: self.record.digest,
            epoch: self.record.epoch,
        }
    }
}

/// The first bytes of a record that claims to belong to the group.
pub(super) struct Begun {
    header: Header,
    at: u64,
    blocks: u64,
    bytes: Vec<u8>,
}

/// What a block of the ring holds of the searched group.
pub(super) enum Candidate {
    /// Nothing.
    Nothing,
    /// This block was not read yet; the group begins here.
    Unseen(u64, LogPosition),
    /// A record of which only the header was read.
    Begun(Begun),
    /// A record that was interrupted, or is damaged, or malformed.
    Torn,
    /// The medium will never read this block.
    Unreadable(Error),
    /// A record with correct chain, digest and payload.
    Whole(FoundRecord),
}

impl Candidate {
    /// The number in its group of a record whose header is there.
    fn index(&self) -> Option<u32> {
        match self {
            Candidate::Begun(Begun { header, .. }) => Some(header.index),
            _ => None,
        }
    }

    /// Sort order: newer records of a group are greater, and non-records come first.
    fn recency(&self) -> Option<(u64, u32)> {
        match self {
            Candidate::Begun(Begun { header, .. }) => Some((header.epoch, header.index)),
            _ => None,
        }
    }
}

/// What lies in the place of a group that has no whole record.
pub(super) struct Remains {
    /// Content of its first block.
    pub begins: Candidate,
    /// Number of its records that were durable: a record is written only when the previous one is
    /// durable.
    pub durable: u32,
}

/// The two blocks of a group.
pub(super) struct FoundGroup {
    pub newest: FoundRecord,
    pub other: Candidate,
}

/// See the module.
pub(super) struct Finder<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    /// The first bytes of blocks that belong to the next group or a later one.
    ahead: Vec<(u64, Vec<u8>)>,
}

impl<'a, M: Medium, P: Platform> Finder<'a, M, P> {
    pub fn new(store: &'a Store<M, P>) -> Self {
        Finder { store, ahead: Vec::new() }
    }

    /// The group that begins at `start`, of at most `room` blocks; otherwise the content found
    /// there instead.
    pub fn group(
        &mut self,
        start: &LogPosition,
        room: u64,
    ) -> Result<core::result::Result<FoundGroup, Remains>> {
        let ring = self.store.device.superblock.log.count;
        let second = (start.block + 1) % ring;
        let first = self.look(start.block, start, room)?;
        let second = match &first {
            _ if room < 2 => Candidate::Nothing,
            Candidate::Begun(begun) if begun.blocks > 1 || self.is_followed(begun, room)? => {
                Candidate::Unseen(second, *start)
            }
            _ => self.look(second, start, 1)?,
        };
        let turned = second.recency() > first.recency();
        let newest = first.index().max(second.index());
        let (newer, older) = if turned { (second, first) } else { (first, second) };
        let newer = match self.examine(newer)? {
            Candidate::Whole(newest) => return Ok(Ok(FoundGroup { newest, other: older })),
            remains => remains,
        };
        match self.examine(older)? {
            Candidate::Whole(newest) => Ok(Ok(FoundGroup { newest, other: newer })),
            older => {
                let begins = if turned { older } else { newer };
                Ok(Err(Remains { begins, durable: newest.unwrap_or(0) }))
            }
        }
    }

    /// Determines what a candidate is that was not read in full.
    pub fn examine(&mut self, candidate: Candidate) -> Result<Candidate> {
        match candidate {
            Candidate::Unseen(at, start) => match self.look(at, &start, 1)? {
                Candidate::Begun(begun) => self.read(begun),
                seen => Ok(seen),
            },
            Candidate::Begun(begun) => self.read(begun),
            examined => Ok(examined),
        }
    }

    /// Reads the header in block `at`. Returns whether it belongs to a record of at most `room`
    /// blocks of the group that begins at `start`.
    fn look(&mut self, at: u64, start: &LogPosition, room: u64) -> Result<Candidate> {
        let block_size = u64::from(self.store.device.superblock.block_size);
        if (RECORD_HEADER as u64).div_ceil(block_size) > room {
            return Ok(Candidate::Nothing);
        }
        let bytes = match self.first_bytes(at)? {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Candidate::Unreadable(error)),
        };
        let Some(header) = self.header(&bytes).filter(|header| header.follows(start)) else {
            self.keep(at, bytes)?;
            return Ok(Candidate::Nothing);
        };
        let blocks = (RECORD_HEADER as u64 + header.payload as u64).div_ceil(block_size);
        if blocks > room || (header.index > 0 && blocks > 1) {
            return Ok(Candidate::Torn);
        }
        Ok(Candidate::Begun(Begun { header, at, blocks, bytes }))
    }

    /// Whether the next group names this record as its predecessor. The record is in the first
    /// block of a group of two blocks.
    fn is_followed(&mut self, begun: &Begun, room: u64) -> Result<bool> {
        if begun.header.index == 0 || room < 3 {
            return Ok(false);
        }
        let after = (begun.at + 2) % self.store.device.superblock.log.count;
        // A block that is unreadable now is read again when the search reaches it.
        let Ok(bytes) = self.first_bytes(after)? else { return Ok(false) };
        let end = LogPosition {
            lsn: Lsn(begun.header.lsn.0.saturating_add(1)),
            block: after,
            previous: begun.header.digest,
            epoch: begun.header.epoch,
        };
        let follows = self.header(&bytes).is_some_and(|header| header.follows(&end));
        self.keep(after, bytes)?;
        Ok(follows)
    }

    /// Reads the rest of a record and checks it.
    fn read(&self, begun: Begun) -> Result<Candidate> {
        let Begun { header, at, blocks, mut bytes } = begun;
        let (store, length) = (self.store, RECORD_HEADER + header.payload);
        if bytes.len() < length {
            let have = bytes.len();
            let rest = match unless_unreadable(|| read_ring(store, at, have, length))? {
                Ok(rest) => rest,
                Err(error) => return Ok(Candidate::Unreadable(error)),
            };
            memory::extend(&mut bytes, &rest)?;
        }
        let record = Record::decode(&bytes, header.payload, |bytes| store.device.crc(bytes))?;
        let Some(record) = record.filter(Record::is_well_formed) else {
            return Ok(Candidate::Torn);
        };
        let Header { lsn, index, payload, .. } = header;
        Ok(Candidate::Whole(FoundRecord {
            record,
            place: RecordPlace { lsn, index, block: at, blocks, payload },
        }))
    }

    fn header(&self, bytes: &[u8]) -> Option<Header> {
        Header::decode(bytes, self.store.device.volume_id())
    }

    /// Reads the bytes of a header in block `at`, with the bytes that the medium reads together
    /// with them.
    fn first_bytes(&mut self, at: u64) -> Result<core::result::Result<Vec<u8>, Error>> {
        match self.ahead.iter().position(|(block, _)| *block == at) {
            Some(index) => Ok(Ok(self.ahead.swap_remove(index).1)),
            None => unless_unreadable(|| read_ring(self.store, at, 0, RECORD_HEADER)),
        }
    }

    /// Keeps the first bytes of a block for the next group. With more than two blocks, the search
    /// has passed the oldest.
    fn keep(&mut self, at: u64, bytes: Vec<u8>) -> Result<()> {
        if self.ahead.len() > 1 {
            self.ahead.remove(0);
        }
        memory::push(&mut self.ahead, (at, bytes))
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use steadfast_media::{MediumOperation, SimMedium, SimOptions};

    use crate::format::Metaroot;
    use crate::fs::{Caller, NewNode};
    use crate::log::scan;
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;
    use crate::types::InodeNumber;
    use crate::volume::Volume;

    /// With long and short records the end is found, and nothing in the log is read twice.
    #[test]
    fn no_byte_of_the_log_is_read_twice() {
        for block_size in [512, 4096, 65536] {
            let medium = Arc::new(SimMedium::new(SimOptions::disk(16 << 20)));
            let options = FormatOptions {
                block_size,
                log_size: Some(4 << 20),
                mask: TransactionMask::MANUAL,
                ..FormatOptions::default()
            };
            Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
            let open = || {
                Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
            };
            let volume = open();
            for round in 0..150u64 {
                let long = round % 19 == 7;
                for part in 0..if long { 1 + 60 * (round / 19) } else { 1 } {
                    let name = alloc::format!("{round}-{part}-{}", "long".repeat(20));
                    let caller = Caller::default();
                    let root = InodeNumber::ROOT;
                    let made = volume
                        .create(root, name.as_bytes(), NewNode::Regular, 0o600, &caller)
                        .unwrap();
                    volume.write(made.inode, 0, &[round as u8; 100], false).unwrap();
                }
                volume.transact().unwrap();
            }
            let superblock = volume.engine.superblock().clone();
            let store = volume.engine.store();
            let durable =
                Metaroot::read_newest(&store.device.medium, &superblock, &store.device.platform)
                    .unwrap();
            medium.take_records();
            let found = scan(store, durable.log, durable.generation).unwrap();
            assert_eq!(found.points(), 150, "blocks of {block_size}");
            let groups = found.len();
            let log = superblock.log.start.0 * u64::from(block_size)
                ..superblock.log.end() * u64::from(block_size);
            let records = medium.take_records();
            let reads = records.iter().filter(|record| record.operation == MediumOperation::Read);
            let mut reads: Vec<_> = reads
                .filter(|read| log.contains(&read.offset))
                .map(|read| (read.offset, read.offset + read.length))
                .collect();
            reads.sort_unstable();
            assert!(reads.is_sorted_by(|a, b| a.1 <= b.0), "blocks of {block_size}: {reads:?}");
            assert!(
                groups > 3 && reads.len() < 3 * groups + 3,
                "{groups} groups, {} reads",
                reads.len()
            );
        }
    }
}
