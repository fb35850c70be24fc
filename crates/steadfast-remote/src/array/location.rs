//! Where a block is, and its checksum.

use std::sync::Arc;

use super::{BLOCK, crc32c};

/// A block that was never written.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Location of a block: 16 bytes for each 4 KiB of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Segment.
    pub(crate) slot: u32,
    /// First byte within the segment.
    pub(crate) offset: u32,
    /// Its checksum.
    pub(crate) crc: u32,
    /// The member that has it.
    pub(crate) member: u8,
    /// The shard that it is in.
    pub(crate) shard: u8,
}

impl Location {
    pub(crate) const NONE: Location =
        Location { slot: NOWHERE, offset: 0, crc: 0, member: 0, shard: 0 };

    /// Whether these bytes match the checksum of the block.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        self.crc == crc32c(bytes)
    }
}

/// Bytes of a block that is not yet on a server.
pub(crate) type Bytes = Arc<[u8; BLOCK]>;
