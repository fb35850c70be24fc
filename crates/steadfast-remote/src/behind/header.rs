//! The header of a write-behind log: its array, and the sizes of its parts.
//!
//! Two places of 4 KiB at the front are written in turn; the newest valid header counts. All
//! numbers are little-endian; the checksum covers everything after itself.
//!
//! | from | what |
//! |---:|---|
//! | 0 | headers |
//! | 64 KiB | first half of the journal: header and table of a batch, then its blocks |
//! | ... | second half, of the same size |
//! | ... | image of the medium |

use super::layer::HOLES_MAX;
use super::{BLOCK, LogError};
use crate::array::crc32c;

const MAGIC: [u8; 8] = *b"SfBehind";
const VERSION: u32 = 1;
/// Places for headers.
pub(super) const PLACES: u64 = 2;
/// First byte of the journal.
pub(super) const AREA: u64 = 64 << 10;
/// Longest reason for a failure, bytes.
const REASON_MAX: usize = 256;
/// Limits of how far a log may be behind, bytes.
pub(super) const BOUND_MIN: u64 = 8 * BLOCK as u64;
pub(super) const BOUND_MAX: u64 = 4 << 30;

/// Header of the write-behind log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogHeader {
    /// Increases with every header.
    pub(super) number: u64,
    /// The array.
    pub(super) uuid: [u8; 16],
    /// The array that a restore is making from the log; zeros if there is none.
    pub(super) heir: [u8; 16],
    /// Bytes of the medium.
    pub(super) size: u64,
    /// Most bytes of blocks in a batch.
    pub(super) bound: u64,
    /// Why the log was given up; empty if it was not.
    pub(super) failed: String,
}

impl LogHeader {
    /// Blocks of the medium.
    pub(super) fn blocks(&self) -> u32 {
        (self.size / BLOCK as u64) as u32
    }

    /// Most bytes of header and table of a batch.
    pub(super) fn table_bytes(&self) -> u64 {
        let entries = self.bound / BLOCK as u64 + HOLES_MAX as u64;
        (super::batch::FIXED_BYTES as u64 + 8 * entries).next_multiple_of(BLOCK as u64)
    }

    /// First byte of a half of the journal.
    pub(super) fn half(&self, number: u64) -> u64 {
        AREA + number % 2 * (self.table_bytes() + self.bound)
    }

    /// First byte of the image.
    pub(super) fn image(&self) -> u64 {
        AREA + 2 * (self.table_bytes() + self.bound)
    }

    /// Bytes of the whole log.
    pub(super) fn total(&self) -> u64 {
        self.image() + self.size
    }

    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.heir);
        for number in [self.number, self.size, self.bound, 0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let mut length = self.failed.len().min(REASON_MAX);
        while !self.failed.is_char_boundary(length) {
            length -= 1;
        }
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.extend(self.failed.bytes().take(length));
        bytes.resize(BLOCK, 0);
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header of 4 KiB.
    pub(super) fn decode(bytes: &[u8]) -> Option<LogHeader> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() != BLOCK
            || bytes.get(..8)? != MAGIC
            || u32_at(8)? != crc32c(bytes.get(12..)?)
        {
            return None;
        }
        if u32_at(12)? != VERSION {
            return None;
        }
        let length = (u32_at(80)? as usize).min(REASON_MAX);
        let header = LogHeader {
            uuid: *bytes.get(16..)?.first_chunk()?,
            heir: *bytes.get(32..)?.first_chunk()?,
            number: u64_at(48)?,
            size: u64_at(56)?,
            bound: u64_at(64)?,
            failed: String::from_utf8_lossy(bytes.get(84..84 + length)?).into_owned(),
        };
        header.is_sound().then_some(header)
    }

    /// Whether these sizes are valid and cannot overflow.
    fn is_sound(&self) -> bool {
        let whole = |bytes: u64| bytes.is_multiple_of(BLOCK as u64);
        self.number < u64::MAX
            && whole(self.size)
            && whole(self.bound)
            && (1..u64::from(u32::MAX)).contains(&(self.size / BLOCK as u64))
            && (BOUND_MIN..=BOUND_MAX).contains(&self.bound)
    }

    /// The header of a new log.
    pub(super) fn first(uuid: [u8; 16], size: u64, bound: u64) -> Result<LogHeader, LogError> {
        let bound = bound - bound % BLOCK as u64;
        let header =
            LogHeader { number: 1, uuid, heir: [0; 16], size, bound, failed: String::new() };
        if header.is_sound() { Ok(header) } else { Err(LogError::Bound(BOUND_MIN, BOUND_MAX)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_go_both_ways_and_any_flipped_bit_is_seen() {
        let mut header = LogHeader::first([7; 16], 64 << 20, 4 << 20).unwrap();
        header.heir = [9; 16];
        header.failed = "no room".to_owned();
        let bytes = header.encode();
        assert_eq!(LogHeader::decode(&bytes).unwrap(), header);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(LogHeader::decode(&flipped), None, "bit {bit}");
        }
        header.failed = "é".repeat(200);
        assert_eq!(LogHeader::decode(&header.encode()).unwrap().failed, "é".repeat(128));
        assert!(LogHeader::first([7; 16], 64 << 20, 1).is_err());
    }
}
