//! The on-media format: how every structure is encoded, and where the fixed ones are. FORMAT.md is
//! its specification.
//!
//! ```text
//! cell 0       cell 1        cell 2        log          blocks …         cell −3       cell −2       cell −1
//! superblock A metaroot 0/A  metaroot 1/A  intent log   nodes and data   metaroot 0/B  metaroot 1/B  superblock B
//! ```
//! A cell is the larger of a block and 512 bytes, so that no two of these structures share an
//! atomic unit. Generation `g` of the metaroot is written to slot `g mod 2`, both copies.

mod dead_list;
pub(crate) mod dirent;
pub mod extent;
mod fields;
mod group_payload;
pub(crate) mod inode;
pub mod key;
mod metaroot;
pub mod node;
mod pack;
pub(crate) mod payload;
mod pointer;
pub mod record;
mod shared;
mod slots;
mod snapshot;
mod superblock;

pub(crate) use dead_list::{
    DeadEntry, dead_item_len, decode_dead_list, encode_dead_list, entries_max,
};
pub use fields::{FieldReader, FieldWriter};
pub(crate) use group_payload::GroupPayload;
pub use metaroot::{LogPosition, Metaroot, SlotCopy, SnapshotCounts};
pub use node::{NODE_MAGIC, Node, item_capacity, item_size, value_len_max};
pub(crate) use pack::GAIN_MAX;
pub use payload::{Mutation, Value};
pub use pointer::{HEIGHT_MAX, NodePointer, Root};
pub use record::{RECORD_HEADER, RecordBuilder};
pub(crate) use shared::Shared;
pub use slots::{ERASED, Slots};
pub use snapshot::Snapshot;
pub(crate) use snapshot::{GENERATION_MAX, SnapshotRecord, check_name};
pub use superblock::{
    FEATURE_FILE_FLAGS, FEATURES_COMPATIBLE, FEATURES_INCOMPATIBLE, FEATURES_READ_ONLY,
    RESERVE_NODES_MIN, Superblock, VERSION, blocks_min, reserve_blocks,
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
