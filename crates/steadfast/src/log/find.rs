//! Finding the groups of the log, one after the other.
//!
//! Of a [group](crate::log::group) the headers in both its blocks are looked at, and only the record
//! that counts is read in full: the newer one, or the other where that is torn. Where the record in
//! the first block is the one that the group behind names as its predecessor, it is the newest, and
//! the second block is not looked at. No block is read twice: what a look ahead has read is kept
//! until the search gets there.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::LogPosition;
use crate::format::record::{Header, RECORD_HEADER, Record};
use crate::log::read_ring;
use crate::log::replay::Place;
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::Lsn;

/// A whole record of the group that was looked for.
pub(super) struct Found {
    pub record: Record,
    pub place: Place,
}

impl Found {
    /// Blocks of its group if it is the last in it: each record but the first makes use of both.
    pub fn group_blocks(&self) -> u64 {
        if self.record.index == 0 { self.place.blocks } else { 2 }
    }

    /// The end of the log behind it, where its group begins at `start`.
    pub fn end(&self, start: &LogPosition, ring: u64) -> LogPosition {
        LogPosition {
            lsn: Lsn(self.record.lsn.0 + 1),
            block: (start.block + self.group_blocks()) % ring,
            previous: self.record.digest,
            epoch: self.record.epoch,
        }
    }
}

/// The first bytes of a record that says that it belongs to the group.
pub(super) struct Begun {
    header: Header,
    at: u64,
    blocks: u64,
    bytes: Vec<u8>,
}

/// What a block of the ring has of the group that is looked for.
pub(super) enum Candidate {
    /// Nothing.
    Nothing,
    /// Nobody has looked yet at this block, of the group that begins here.
    Unseen(u64, LogPosition),
    /// A record of which the header alone has been looked at.
    Begun(Begun),
    /// A record that was interrupted, or is damaged, or malformed.
    Torn,
    /// What the medium will never read.
    Unreadable(Error),
    /// A record whose chain, digest and payload are right.
    Whole(Found),
}

impl Candidate {
    /// The number in its group of a record of which the header is there.
    fn index(&self) -> Option<u32> {
        match self {
            Candidate::Begun(Begun { header, .. }) => Some(header.index),
            _ => None,
        }
    }

    /// Newer records of a group come behind; what is none comes first.
    fn age(&self) -> Option<(u64, u32)> {
        match self {
            Candidate::Begun(Begun { header, .. }) => Some((header.epoch, header.index)),
            _ => None,
        }
    }
}

/// What lies where a group would be that has no whole record.
pub(super) struct Remains {
    /// In its first block.
    pub begins: Candidate,
    /// Records of it that were durable: one is written when the one before it is.
    pub durable: u32,
}

/// The two blocks of a group.
pub(super) struct Group {
    pub newest: Found,
    pub other: Candidate,
}

/// See the module.
pub(super) struct Finder<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    /// The first bytes of blocks that belong to no group before the next one.
    ahead: Vec<(u64, Vec<u8>)>,
}

impl<'a, M: Medium, P: Platform> Finder<'a, M, P> {
    pub fn new(store: &'a Store<M, P>) -> Self {
        Finder { store, ahead: Vec::new() }
    }

    /// The group that begins at `start`, of at most `room` blocks; otherwise what is there instead.
    pub fn group(
        &mut self,
        start: &LogPosition,
        room: u64,
    ) -> Result<core::result::Result<Group, Remains>> {
        let ring = self.store.superblock.log.count;
        let second = (start.block + 1) % ring;
        let first = self.look(start.block, start, room)?;
        let second = match &first {
            _ if room < 2 => Candidate::Nothing,
            Candidate::Begun(begun) if begun.blocks > 1 || self.is_followed(begun, room)? => {
                Candidate::Unseen(second, *start)
            }
            _ => self.look(second, start, 1)?,
        };
        let turned = second.age() > first.age();
        let newest = first.index().max(second.index());
        let (newer, older) = if turned { (second, first) } else { (first, second) };
        let newer = match self.settle(newer)? {
            Candidate::Whole(newest) => return Ok(Ok(Group { newest, other: older })),
            remains => remains,
        };
        match self.settle(older)? {
            Candidate::Whole(newest) => Ok(Ok(Group { newest, other: newer })),
            older => {
                let begins = if turned { older } else { newer };
                Ok(Err(Remains { begins, durable: newest.unwrap_or(0) }))
            }
        }
    }

    /// Finds out what a candidate is that has not been read in full.
    pub fn settle(&mut self, candidate: Candidate) -> Result<Candidate> {
        match candidate {
            Candidate::Unseen(at, start) => match self.look(at, &start, 1)? {
                Candidate::Begun(begun) => self.read(begun),
                seen => Ok(seen),
            },
            Candidate::Begun(begun) => self.read(begun),
            settled => Ok(settled),
        }
    }

    /// What the header in block `at` says: a record of at most `room` blocks of the group that
    /// begins at `start`, or not.
    fn look(&mut self, at: u64, start: &LogPosition, room: u64) -> Result<Candidate> {
        let block_size = u64::from(self.store.superblock.block_size);
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

    /// Whether the next group names this record, in the first block of a group of two, as the one
    /// before it.
    fn is_followed(&mut self, begun: &Begun, room: u64) -> Result<bool> {
        if begun.header.index == 0 || room < 3 {
            return Ok(false);
        }
        let behind = (begun.at + 2) % self.store.superblock.log.count;
        // What cannot be read now is looked at again when the search gets there.
        let Ok(bytes) = self.first_bytes(behind)? else { return Ok(false) };
        let end = LogPosition {
            lsn: Lsn(begun.header.lsn.0.saturating_add(1)),
            block: behind,
            previous: begun.header.digest,
            epoch: begun.header.epoch,
        };
        let follows = self.header(&bytes).is_some_and(|header| header.follows(&end));
        self.keep(behind, bytes)?;
        Ok(follows)
    }

    /// Reads what is left of a record and checks it.
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
        let record = Record::decode(&bytes, header.payload, |bytes| store.crc(bytes))?;
        let Some(record) = record.filter(Record::is_well_formed) else {
            return Ok(Candidate::Torn);
        };
        let Header { lsn, index, payload, .. } = header;
        Ok(Candidate::Whole(Found {
            record,
            place: Place { lsn, index, block: at, blocks, payload },
        }))
    }

    fn header(&self, bytes: &[u8]) -> Option<Header> {
        Header::decode(bytes, self.store.volume_id())
    }

    /// The bytes of a header in block `at`, and what the medium reads together with them.
    fn first_bytes(&mut self, at: u64) -> Result<core::result::Result<Vec<u8>, Error>> {
        match self.ahead.iter().position(|(block, _)| *block == at) {
            Some(index) => Ok(Ok(self.ahead.swap_remove(index).1)),
            None => unless_unreadable(|| read_ring(self.store, at, 0, RECORD_HEADER)),
        }
    }

    /// Keeps the first bytes of a block for the next group. Of more than two blocks the search has
    /// passed the oldest.
    fn keep(&mut self, at: u64, bytes: Vec<u8>) -> Result<()> {
        if self.ahead.len() > 1 {
            self.ahead.remove(0);
        }
        memory::push(&mut self.ahead, (at, bytes))
    }
}

/// What `read` gives; the error where the medium says twice that it never will.
pub(super) fn unless_unreadable<T>(
    mut read: impl FnMut() -> Result<T>,
) -> Result<core::result::Result<T, Error>> {
    match read().or_else(|error| if error.is_unreadable() { read() } else { Err(error) }) {
        Err(error) if error.is_unreadable() => Ok(Err(error)),
        result => result.map(Ok),
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use steadfast_media::{MediumOperation, SimMedium, SimOptions};

    use crate::format::Metaroot;
    use crate::fs::{Caller, NewNode};
    use crate::log::replay;
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;
    use crate::types::InodeNumber;
    use crate::volume::Volume;

    /// Long and short records in between: the end is found, and nothing in the log is read twice.
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
                Metaroot::read_newest(&store.medium, &superblock, &store.platform).unwrap();
            medium.take_records();
            let found = replay(store, durable.log, durable.generation).unwrap();
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
