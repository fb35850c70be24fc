//! Where a block is, and its checksum.

use std::sync::Arc;

use super::{BLOCK, crc32c};

/// A block that was never written.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A block that is at home and not in the log.
pub(crate) const HOME: u32 = u32::MAX - 1;

/// Location of a block: 16 bytes for each 4 KiB of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Segment.
    pub(crate) slot: u32,
    /// First byte within the segment.
    pub(crate) offset: u32,
    /// Its checksum; for a home in the recorded form ([`kept`]).
    pub(crate) crc: u32,
    /// The member that has it.
    pub(crate) member: u8,
    /// The shard that it is in.
    pub(crate) shard: u8,
}

impl Location {
    pub(crate) const NONE: Location =
        Location { slot: NOWHERE, offset: 0, crc: 0, member: 0, shard: 0 };

    /// Whether the block is at home.
    pub(crate) fn is_home(&self) -> bool {
        self.slot == HOME
    }

    /// Whether these bytes match the checksum of the block.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        let crc = crc32c(bytes);
        match self.is_home() {
            true => self.crc != LOST && self.crc == kept(crc),
            false => self.crc == crc,
        }
    }
}

/// Bytes of a block that is not yet on a server.
pub(crate) type Bytes = Arc<[u8; BLOCK]>;

/// Recorded for a block that was never written.
pub(crate) const NONE: u32 = 0;
/// Recorded for a block that no server can supply: no checksum matches it.
pub(crate) const LOST: u32 = 1;

/// A checksum in the form recorded for a home.
pub(crate) fn kept(crc: u32) -> u32 {
    crc.max(LOST + 1)
}
