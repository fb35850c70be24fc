//! The form of a log record.
//!
//! ```text
//! magic u32 | flags u32 | volume id u64 | lsn u64 | epoch u64 | previous digest 16 | payload length u32 | 0 u32 | digest 16
//! payload: { key 17 | 0 }* for removals, { key 17 | 1 | length u16 | value }* for puts
//! ```
//! The digest covers header (with the digest field zero) and payload. A record begins at a block boundary.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::fs::memory;
use crate::key::Key;
use crate::keyspace::Mutation;
use crate::layout::{DIGEST_SIZE, Digest, FieldReader, FieldWriter, LogPosition, digest_of};
use crate::sabotage::{Sabotage, planted};
use crate::types::Lsn;

/// Bytes before the payload.
pub const RECORD_HEADER: usize = 72;
const AT_DIGEST: usize = RECORD_HEADER - DIGEST_SIZE;
const MAGIC: u32 = u32::from_le_bytes(*b"SFLR");
/// The data that the record names may have been in flight together with it: replay checks it.
const FLAG_CHECK_DATA: u32 = 1;

/// Collects the mutations of one record.
pub struct RecordBuilder {
    bytes: Vec<u8>,
    /// Room that is kept for [`finish`](Self::finish).
    padding: usize,
}

impl RecordBuilder {
    /// An empty record with room for `payload` bytes and the padding to whole blocks.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(payload: usize, block_size: usize) -> Result<RecordBuilder> {
        let mut bytes = memory::zeroed(RECORD_HEADER)?;
        bytes.try_reserve_exact(payload + block_size).map_err(|_| Error::OutOfMemory)?;
        Ok(RecordBuilder { bytes, padding: block_size })
    }

    /// Payload bytes that one mutation takes.
    pub fn size_of(value_len: Option<usize>) -> usize {
        Key::LEN + 1 + value_len.map_or(0, |length| length + 2)
    }

    /// Adds a mutation.
    ///
    /// # Errors
    /// `OutOfMemory`, where it is more than there was to be.
    pub fn add(&mut self, key: &Key, value: Option<&[u8]>) -> Result<()> {
        let room = Self::size_of(value.map(<[u8]>::len));
        self.bytes.try_reserve(room + self.padding).map_err(|_| Error::OutOfMemory)?;
        self.bytes.extend_from_slice(&key.0);
        match value {
            None => self.bytes.push(0),
            Some(value) => {
                self.bytes.push(1);
                self.bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
                self.bytes.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// Payload bytes so far.
    pub fn payload_len(&self) -> usize {
        self.bytes.len() - RECORD_HEADER
    }

    /// The finished record, padded to whole blocks, and its digest.
    pub fn finish(
        mut self,
        position: &LogPosition,
        volume: u64,
        check_data: bool,
        block_size: usize,
        crc: impl Fn(&[u8]) -> u32,
    ) -> (Vec<u8>, Digest) {
        let payload = self.payload_len() as u32;
        FieldWriter::new(&mut self.bytes)
            .u32(MAGIC)
            .u32(if check_data { FLAG_CHECK_DATA } else { 0 })
            .u64(volume)
            .u64(position.lsn.0)
            .u64(position.epoch)
            .bytes(&position.previous)
            .u32(payload)
            .u32(0);
        let digest = digest_of(crc(&self.bytes));
        self.bytes[AT_DIGEST..RECORD_HEADER].copy_from_slice(&digest);
        let padded = self.bytes.len().next_multiple_of(block_size);
        self.bytes.resize(padded, 0);
        (self.bytes, digest)
    }
}

/// A record that was read.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its number.
    pub lsn: Lsn,
    /// The mount that wrote it.
    pub epoch: u64,
    /// Its digest.
    pub digest: Digest,
    /// The data that it names has to be checked where no later record shows that it was flushed.
    pub check_data: bool,
    payload: Vec<u8>,
}

impl Record {
    /// Where the record whose first bytes are `header` says that it belongs, and the length of its payload.
    pub fn any_header(header: &[u8], volume: u64) -> Option<(LogPosition, usize)> {
        let mut fields = FieldReader::new(header.get(..RECORD_HEADER)?);
        let magic = fields.u32();
        let _flags = fields.u32();
        if magic != MAGIC || fields.u64() != volume {
            return None;
        }
        let (lsn, epoch) = (Lsn(fields.u64()), fields.u64());
        let position = LogPosition { lsn, block: 0, previous: fields.array(), epoch };
        Some((position, fields.u32() as usize))
    }

    /// Length of the payload of the record whose first bytes are `header`, where that may be the record after `position`.
    pub fn payload_len(header: &[u8], position: &LogPosition, volume: u64) -> Option<usize> {
        let mut fields = FieldReader::new(header.get(..RECORD_HEADER)?);
        let magic = fields.u32();
        let _flags = fields.u32();
        let matches = magic == MAGIC && fields.u64() == volume && fields.u64() == position.lsn.0;
        let epoch = fields.u64();
        let follows = epoch >= position.epoch && epoch < u64::MAX / 2 && fields.array() == position.previous;
        let length = fields.u32() as usize;
        ((matches && follows) || (magic == MAGIC && planted(Sabotage::IgnoreChain))).then_some(length)
    }

    /// Checks and takes apart a whole record.
    pub fn decode(bytes: &[u8], payload_len: usize, crc: impl Fn(&[u8]) -> u32) -> Result<Option<Record>> {
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
        let check_data = flags & FLAG_CHECK_DATA != 0;
        whole.drain(..RECORD_HEADER);
        let payload = whole;
        Ok(Some(Record { lsn, epoch, digest: stored, check_data, payload }))
    }

    /// The mutations; `None` where the payload is malformed.
    pub fn mutations(&self) -> Result<Option<Vec<Mutation>>> {
        let mut fields = FieldReader::new(&self.payload);
        let mut mutations = Vec::new();
        while !fields.rest().is_empty() {
            let key = Key(fields.array());
            let value = match fields.u8() {
                0 => None,
                1 => {
                    let length = usize::from(fields.u16());
                    let Some(bytes) = fields.bytes(length) else { return Ok(None) };
                    Some(memory::copy(bytes)?)
                }
                _ => return Ok(None),
            };
            memory::push(&mut mutations, Mutation { key, value })?;
        }
        Ok((!fields.overrun()).then_some(mutations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::crc32c_portable;
    use crate::types::InodeNumber;

    fn sample() -> (Vec<u8>, LogPosition) {
        let position = LogPosition { lsn: Lsn(5), block: 0, previous: [3; 16], epoch: 2 };
        let mut builder = RecordBuilder::new(0, 512).unwrap();
        builder.add(&Key::inode(InodeNumber(7)), Some(b"value")).unwrap();
        builder.add(&Key::inode(InodeNumber(8)), None).unwrap();
        (builder.finish(&position, 99, true, 512, |bytes| crc32c_portable(0, bytes)).0, position)
    }

    #[test]
    fn round_trip() {
        let (bytes, position) = sample();
        let length = Record::payload_len(&bytes, &position, 99).unwrap();
        let record = Record::decode(&bytes, length, |bytes| crc32c_portable(0, bytes)).unwrap().unwrap();
        assert_eq!((record.lsn, record.epoch, record.check_data), (Lsn(5), 2, true));
        let mutations = record.mutations().unwrap().unwrap();
        assert_eq!(mutations[0].value.as_deref(), Some(&b"value"[..]));
        assert_eq!(mutations[1], Mutation { key: Key::inode(InodeNumber(8)), value: None });
    }

    #[test]
    fn any_flipped_bit_and_any_wrong_position_is_refused() {
        let (bytes, position) = sample();
        let accept = |bytes: &[u8], position: &LogPosition| {
            let length = Record::payload_len(bytes, position, 99)?;
            Record::decode(bytes, length, |bytes| crc32c_portable(0, bytes)).unwrap()
        };
        assert!(accept(&bytes, &position).is_some());
        let covered = RECORD_HEADER + RecordBuilder::size_of(Some(5)) + RecordBuilder::size_of(None);
        for bit in 0..covered * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(accept(&flipped, &position).is_none(), "bit {bit}");
        }
        assert!(accept(&bytes, &LogPosition { lsn: Lsn(6), ..position }).is_none());
        assert!(accept(&bytes, &LogPosition { epoch: 3, ..position }).is_none());
        assert!(accept(&bytes, &LogPosition { previous: [0; 16], ..position }).is_none());
    }
}
