//! Records that must not count: those that an earlier volume has left in the ring of a new one, and
//! those that were given up.
//!
//! A record identifies its volume by the first bytes of the uuid, and two volumes can have the same
//! uuid. A host without entropy gives every volume the same one, and a reproducible image requests
//! it. Then only LSN and digests distinguish the records of the two. If the new volume repeats the
//! operations of the old one, the digests are equal too. So a new log begins with an LSN above
//! those of all headers in its ring: no record that is there can ever follow. Erasing the ring
//! would do the same, but it writes the whole ring and fills the holes of a sparse image.

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::Superblock;
use crate::log::headers::{Start, headers};
use crate::memory;
use crate::types::Lsn;

/// No LSN of a real volume comes near this.
const LSN_LIMIT: u64 = 1 << 61;

/// An LSN above those of all headers in the ring. Unreadable blocks, and headers with an LSN beyond
/// the limit, are erased; that is durable after a flush.
///
/// # Errors
/// The medium's; `OutOfMemory`.
pub fn lsn_after_the_past(medium: &impl Medium, superblock: &Superblock) -> Result<Lsn> {
    let block_size = u64::from(superblock.block_size);
    let mut next = Lsn::default();
    headers(medium, superblock, (0, superblock.log.count), |block, start| match start {
        Start::Header(header) if header.lsn.0 < LSN_LIMIT => {
            next = next.max(Lsn(header.lsn.0 + 1));
            Ok(())
        }
        Start::Header(_) | Start::Unreadable => {
            let offset = (superblock.log.start.0 + block) * block_size;
            Ok(medium.write(offset, &memory::zeroed(block_size as usize)?)?)
        }
    })?;
    Ok(next)
}
