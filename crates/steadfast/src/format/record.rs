//! The form of a log record.
//!
//! ```text
//! magic u32 | flags u32 | volume id u64 | lsn u64 | epoch u64 | previous digest 16
//!           | payload length u32 | index u32 | digest 16
//! payload: { key 17 | tag }* for removals, { key 17 | tag | length u16 | value }* for puts,
//!          in the order of the keys; or the same [packed](crate::format::pack), as a flag says
//! ```
//! Each key is above the one before. The index is the record's number in its group. Bit 0 of a tag
//! means put; bit 1 means that an earlier record of the group has the mutation. The digest covers
//! header (with the digest field zero) and payload. A record begins at a block boundary, and none
//! of its other blocks begins with the magic.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::pack::{pack, unpack};
use crate::format::payload::{Mutation, TAG_PUT, TAG_SETTLED, encode, mutations};
use crate::format::{
    DIGEST_SIZE, Digest, FieldReader, FieldWriter, GroupPayload, LogPosition, digest_of,
};
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::types::Lsn;

/// Bytes before the payload.
pub const RECORD_HEADER: usize = 72;
const AT_DIGEST: usize = RECORD_HEADER - DIGEST_SIZE;
const MAGIC: u32 = u32::from_le_bytes(*b"SFLR");
/// The data that the record names may have been in flight together with the record, so opening
/// checks it.
const FLAG_CHECK_DATA: u32 = 1;
/// The payload is [packed](crate::format::pack).
const FLAG_PACKED: u32 = 2;

/// Collects the mutations of one record.
pub struct RecordBuilder {
    payload: Vec<u8>,
}

/// A record whose payload is final, in its form on the medium. Its header is not final yet.
pub struct Body {
    /// With room for the header before it, and for the padding after it.
    bytes: Vec<u8>,
    packed: bool,
}

impl RecordBuilder {
    /// An empty record with room for `payload` bytes.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(payload: usize) -> Result<RecordBuilder> {
        RecordBuilder::in_memory(Vec::new(), payload)
    }

    /// As [`new`](Self::new), in this memory as far as it is enough.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn in_memory(memory: Vec<u8>, payload: usize) -> Result<RecordBuilder> {
        let mut bytes = memory;
        bytes.clear();
        bytes.try_reserve_exact(payload).map_err(|_| Error::OutOfMemory)?;
        Ok(RecordBuilder { payload: bytes })
    }

    /// Adds a mutation, of a key above all that were added before.
    ///
    /// # Errors
    /// `OutOfMemory`, if it exceeds the room requested.
    pub fn add(&mut self, key: &Key, value: Option<&[u8]>) -> Result<()> {
        encode(&mut self.payload, key, value.map_or(0, |_| TAG_PUT), value)
    }

    /// The payload so far, not packed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload, not packed.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The record with the present payload: packed, if that is shorter.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn body(&self, block_size: usize) -> Result<Body> {
        let packed = pack(&self.payload)?;
        Body::new(
            packed.as_ref().unwrap_or(&self.payload),
            packed.is_some(),
            block_size,
            Vec::new(),
        )
    }
}

impl Body {
    /// A record with the mutations of a group, in this memory as far as it is enough.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn of_group(group: &GroupPayload, block_size: usize, memory: Vec<u8>) -> Result<Body> {
        Body::new(group.packed(), true, block_size, memory)
    }

    fn new(payload: &[u8], packed: bool, block_size: usize, memory: Vec<u8>) -> Result<Body> {
        let mut bytes = memory;
        bytes.clear();
        let room = (RECORD_HEADER + payload.len()).next_multiple_of(block_size);
        bytes.try_reserve_exact(room).map_err(|_| Error::OutOfMemory)?;
        bytes.resize(RECORD_HEADER, 0);
        bytes.extend_from_slice(payload);
        Ok(Body { bytes, packed })
    }

    /// Whether a block after the first begins like a record. A record contains file content.
    pub fn has_false_start(&self, block_size: usize) -> bool {
        self.bytes.chunks(block_size).skip(1).any(|block| block.starts_with(&MAGIC.to_le_bytes()))
    }

    /// Bytes of the record, without the padding.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The finished record, padded to whole blocks, and its digest.
    pub fn finish(
        mut self,
        position: &LogPosition,
        index: u32,
        volume: u64,
        check_data: bool,
        block_size: usize,
        crc: impl Fn(&[u8]) -> u32,
    ) -> (Vec<u8>, Digest) {
        let payload = (self.bytes.len() - RECORD_HEADER) as u32;
        let flags = if check_data { FLAG_CHECK_DATA } else { 0 }
            | if self.packed { FLAG_PACKED } else { 0 };
        FieldWriter::new(&mut self.bytes)
            .u32(MAGIC)
            .u32(flags)
            .u64(volume)
            .u64(position.lsn.0)
            .u64(position.epoch)
            .bytes(&position.previous)
            .u32(payload)
            .u32(index);
        let digest = digest_of(crc(&self.bytes));
        self.bytes[AT_DIGEST..RECORD_HEADER].copy_from_slice(&digest);
        let padded = self.bytes.len().next_multiple_of(block_size);
        self.bytes.resize(padded, 0);
        (self.bytes, digest)
    }
}

/// The fields of a record's header, unchecked.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// Number of the record.
    pub lsn: Lsn,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Digest of the record before its group.
    pub previous: Digest,
    /// Its number in its group.
    pub index: u32,
    /// Bytes of mutations.
    pub payload: usize,
    /// Digest of the record, if it is whole.
    pub digest: Digest,
}

impl Header {
    /// The header in these first bytes of a record, if the record belongs to this volume.
    pub fn decode(bytes: &[u8], volume: u64) -> Option<Header> {
        let mut fields = FieldReader::new(bytes.get(..RECORD_HEADER)?);
        let magic = fields.u32();
        let _flags = fields.u32();
        if magic != MAGIC || fields.u64() != volume {
            return None;
        }
        let (lsn, epoch) = (Lsn(fields.u64()), fields.u64());
        let previous = fields.array();
        let payload = fields.u32() as usize;
        Some(Header { lsn, epoch, previous, payload, index: fields.u32(), digest: fields.array() })
    }

    /// Whether the record belongs to the group that comes next at `position`.
    pub fn follows(&self, position: &LogPosition) -> bool {
        let first = self.lsn.0.checked_sub(u64::from(self.index));
        let chained = self.epoch >= position.epoch
            && self.epoch < u64::MAX / 2
            && self.previous == position.previous;
        (first == Some(position.lsn.0) && chained) || planted(Sabotage::IgnoreChain)
    }
}

/// A record that was read.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its number.
    pub lsn: Lsn,
    /// Its number in its group.
    pub index: u32,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Its digest.
    pub digest: Digest,
    /// Its data must be checked unless a later record shows that the data was flushed.
    pub check_data: bool,
    payload: Vec<u8>,
}

impl Record {
    /// Checks and decodes a whole record; `None` if it is damaged, or packed and malformed.
    pub fn decode(
        bytes: &[u8],
        payload_len: usize,
        crc: impl Fn(&[u8]) -> u32,
    ) -> Result<Option<Record>> {
        let whole = RECORD_HEADER.checked_add(payload_len).and_then(|length| bytes.get(..length));
        let Some(mut whole) = whole.map(memory::copy).transpose()? else { return Ok(None) };
        let mut stored = Digest::default();
        stored.copy_from_slice(&whole[AT_DIGEST..RECORD_HEADER]);
        whole[AT_DIGEST..RECORD_HEADER].fill(0);
        if digest_of(crc(&whole)) != stored && !planted(Sabotage::AcceptTornRecord) {
            return Ok(None);
        }
        let mut fields = FieldReader::new(&whole);
        let (_, flags, _) = (fields.u32(), fields.u32(), fields.u64());
        let (lsn, epoch) = (Lsn(fields.u64()), fields.u64());
        let (_, _, index): (Digest, _, _) = (fields.array(), fields.u32(), fields.u32());
        let check_data = flags & FLAG_CHECK_DATA != 0;
        let payload = if flags & FLAG_PACKED != 0 {
            unpack(&whole[RECORD_HEADER..])?
        } else {
            whole.drain(..RECORD_HEADER);
            Some(whole)
        };
        Ok(payload.map(|payload| Record { lsn, index, epoch, digest: stored, check_data, payload }))
    }

    /// The mutations; `None` if the payload is malformed.
    pub fn mutations(&self) -> Result<Option<Vec<Mutation>>> {
        mutations(&self.payload, |_| true)
    }

    /// Whether it holds mutations and nothing else.
    pub fn is_well_formed(&self) -> bool {
        matches!(mutations(&self.payload, |_| false), Ok(Some(_)))
    }

    /// The mutations that no earlier record of the group has; `None` if the payload is malformed.
    pub fn new_mutations(&self) -> Result<Option<Vec<Mutation>>> {
        mutations(&self.payload, |tag| tag & TAG_SETTLED == 0)
    }

    /// The encoded mutations, not packed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// See [`payload`](Self::payload).
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::crc32c_portable;
    use crate::types::InodeNumber;

    fn sample() -> (Vec<u8>, LogPosition) {
        let position = LogPosition { lsn: Lsn(5), block: 0, previous: [3; 16], epoch: 2 };
        let mut builder = RecordBuilder::new(0).unwrap();
        builder.add(&Key::inode(InodeNumber(7)), Some(b"value")).unwrap();
        builder.add(&Key::inode(InodeNumber(8)), None).unwrap();
        (
            builder
                .body(512)
                .unwrap()
                .finish(&position, 0, 99, true, 512, |bytes| crc32c_portable(0, bytes))
                .0,
            position,
        )
    }

    fn payload_len(bytes: &[u8], position: &LogPosition) -> Option<usize> {
        Header::decode(bytes, 99)
            .filter(|header| header.follows(position))
            .map(|header| header.payload)
    }

    #[test]
    fn round_trip() {
        let (bytes, position) = sample();
        let length = payload_len(&bytes, &position).unwrap();
        let record =
            Record::decode(&bytes, length, |bytes| crc32c_portable(0, bytes)).unwrap().unwrap();
        assert_eq!((record.lsn, record.epoch, record.check_data), (Lsn(5), 2, true));
        let mutations = record.mutations().unwrap().unwrap();
        assert_eq!(mutations[0].value.as_deref(), Some(&b"value"[..]));
        assert_eq!(mutations[1], Mutation { key: Key::inode(InodeNumber(8)), value: None });
    }

    #[test]
    fn any_flipped_bit_and_any_wrong_position_is_refused() {
        let (bytes, position) = sample();
        let accept = |bytes: &[u8], position: &LogPosition| {
            let length = payload_len(bytes, position)?;
            Record::decode(bytes, length, |bytes| crc32c_portable(0, bytes)).unwrap()
        };
        assert!(accept(&bytes, &position).is_some());
        let covered = RECORD_HEADER + payload_len(&bytes, &position).unwrap();
        for bit in 0..covered * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(accept(&flipped, &position).is_none(), "bit {bit}");
        }
        assert!(accept(&bytes, &LogPosition { lsn: Lsn(6), ..position }).is_none());
        assert!(accept(&bytes, &LogPosition { epoch: 3, ..position }).is_none());
        assert!(accept(&bytes, &LogPosition { previous: [0; 16], ..position }).is_none());
    }

    /// A record that names a key twice, or an earlier key after a later one, is no record.
    #[test]
    fn keys_that_do_not_ascend_are_malformed() {
        let payload = |numbers: &[u64]| {
            let mut builder = RecordBuilder::new(0).unwrap();
            for number in numbers {
                builder.add(&Key::inode(InodeNumber(*number)), Some(b"v")).unwrap();
            }
            builder.payload().to_vec()
        };
        let well_formed = |numbers| mutations(&payload(numbers), |_| true).unwrap().is_some();
        assert!(well_formed(&[7, 8]) && well_formed(&[7]) && well_formed(&[]));
        assert!(!well_formed(&[7, 7]) && !well_formed(&[8, 7]) && !well_formed(&[7, 8, 8]));
        // A settled mutation, which a reader of new mutations skips, counts as well.
        let mut settled = payload(&[7]);
        settled[Key::LEN] |= TAG_SETTLED;
        settled.extend_from_slice(&payload(&[7]));
        assert!(mutations(&settled, |tag| tag & TAG_SETTLED == 0).unwrap().is_none());
        assert!(mutations(&settled, |_| false).unwrap().is_none());
    }
}
