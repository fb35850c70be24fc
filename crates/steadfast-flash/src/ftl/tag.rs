//! The tag: the description of a page in its first 16 OOB bytes. All integers are little-endian.
//!
//! ```text
//! id u32 | sequence u56, kind u8 | CRC-32C u32 of data, id, sequence and kind
//! ```
//! A page with a wrong tag is torn or foreign.

use crc::{CRC_32_ISCSI, Crc, Table};

const CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of a tag.
pub const TAG_SIZE: usize = 16;
/// Highest sequence number plus one.
const SEQUENCE_END: u64 = 1 << 56;

/// Contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A logical page; the id is its number.
    Data,
    /// A logical page whose data was lost before it was moved: reading it is an error.
    Lost,
    /// A page of the map.
    Map,
    /// A page of the directory of the map.
    Directory,
    /// A page of the block table.
    Table,
    /// Changes that did not fit the journal page.
    Spill,
    /// A journal page: the whole state, directly or by reference. The id is the position of its
    /// block in the chain.
    Journal,
    /// The position of the journal.
    Anchor,
    /// The places of the second copies of directory and table.
    Second,
    /// Read counts of blocks.
    Reads,
}

const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Lost,
    Kind::Map,
    Kind::Directory,
    Kind::Table,
    Kind::Spill,
    Kind::Journal,
    Kind::Anchor,
    Kind::Second,
    Kind::Reads,
];

/// A decoded tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Contents of the page.
    pub kind: Kind,
    /// Number of the page within its kind.
    pub id: u32,
    /// Increases with every programmed page.
    pub sequence: u64,
}

impl Tag {
    /// The tag of a page with this data.
    #[must_use]
    pub fn encode(&self, data: &[u8]) -> [u8; TAG_SIZE] {
        let mut bytes = [0; TAG_SIZE];
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u64 + 1;
        bytes[..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..12]
            .copy_from_slice(&((kind << 56) | (self.sequence % SEQUENCE_END)).to_le_bytes());
        let crc = checksum(data, &bytes[..12]);
        bytes[12..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the tag of a page that was read, if it matches the data.
    #[must_use]
    pub fn decode(data: &[u8], oob: &[u8; TAG_SIZE]) -> Option<Tag> {
        let tag = Tag::unchecked(oob)?;
        let crc = u32::from_le_bytes([oob[12], oob[13], oob[14], oob[15]]);
        (crc == checksum(data, &oob[..12])).then_some(tag)
    }

    /// Decodes the tag without verifying it against the data.
    #[must_use]
    pub fn unchecked(oob: &[u8; TAG_SIZE]) -> Option<Tag> {
        let id = u32::from_le_bytes([oob[0], oob[1], oob[2], oob[3]]);
        let mut word = [0; 8];
        word.copy_from_slice(&oob[4..12]);
        let word = u64::from_le_bytes(word);
        let kind = *KINDS.get(((word >> 56) as usize).checked_sub(1)?)?;
        Some(Tag { kind, id, sequence: word % SEQUENCE_END })
    }
}

/// The kind of a page from its out-of-band bytes alone, not verified: for statistics.
#[must_use]
pub fn page_kind(oob: &[u8]) -> Option<Kind> {
    Tag::unchecked(oob.first_chunk()?).map(|tag| tag.kind)
}

fn checksum(data: &[u8], tag: &[u8]) -> u32 {
    let mut digest = CASTAGNOLI.digest();
    digest.update(data);
    digest.update(tag);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_fits_its_page_only() {
        let tag = Tag { kind: Kind::Spill, id: 77, sequence: (1 << 56) - 2 };
        let oob = tag.encode(b"data");
        assert_eq!(Tag::decode(b"data", &oob), Some(tag));
        assert_eq!(Tag::decode(b"date", &oob), None);
        for bit in 0..TAG_SIZE * 8 {
            let mut flipped = oob;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::decode(b"data", &flipped), None, "bit {bit}");
        }
        assert_eq!(Tag::unchecked(&[0xff; TAG_SIZE]), None);
    }
}
