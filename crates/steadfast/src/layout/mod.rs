//! Where things are on the medium, and the two fixed structures: superblock and metaroot.
//!
//! ```text
//! cell 0       cell 1        cell 2        log          blocks …         cell −3       cell −2       cell −1
//! superblock A metaroot 0/A  metaroot 1/A  intent log   nodes and data   metaroot 0/B  metaroot 1/B  superblock B
//! ```
//! A cell is the larger of a block and 512 bytes, so that no two of these structures share an
//! atomic unit. Generation `g` of the metaroot is written to slot `g mod 2`, both copies.

mod fields;
mod metaroot;
mod slots;
mod superblock;

pub use fields::{Reader as FieldReader, Writer as FieldWriter};
pub use metaroot::{LogPosition, Metaroot, SlotCopy, SnapshotCounts};
pub use slots::Slots;
pub use superblock::{
    FEATURES_COMPATIBLE, FEATURES_INCOMPATIBLE, FEATURES_READ_ONLY, RESERVE_NODES_MIN, Superblock,
    VERSION, blocks_min, reserve_blocks,
};

/// Size of superblock and metaroot in bytes, whatever the block size.
pub const STRUCTURE_SIZE: usize = 512;

/// Where the checksum of superblock and metaroot begins; it covers everything before it.
pub const STRUCTURE_DIGEST: usize = STRUCTURE_SIZE - DIGEST_SIZE;

/// Room for a checksum, bytes. CRC-32C fills the first four (little endian), the rest is zero.
pub const DIGEST_SIZE: usize = 16;

/// A stored checksum.
pub type Digest = [u8; DIGEST_SIZE];

/// Puts a CRC-32C into a digest field.
pub fn digest_of(crc: u32) -> Digest {
    let mut digest = [0; DIGEST_SIZE];
    digest[..4].copy_from_slice(&crc.to_le_bytes());
    digest
}

/// Bytes between the starts of the fixed structures.
pub fn cell_size(block_size: u32) -> u64 {
    u64::from(block_size).max(STRUCTURE_SIZE as u64)
}
