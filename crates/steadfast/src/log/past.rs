//! What must not count: records that an earlier volume has left in the ring of a new one, or that
//! were given up.
//!
//! A record says which volume it is of by the first bytes of the uuid, and a uuid can be used
//! twice: a host without entropy gives every volume the same one, and a reproducible image asks for
//! it. Then nothing but LSN and digests tells the records of the two apart, and where the new
//! volume does again what the old one did the digests are the same, too. So a new log begins with
//! an LSN that is above those of all headers in its ring: no record that is there can ever follow.
//! Erasing the ring would do the same, but writes all of it, and takes the holes out of a sparse
//! image.

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::Superblock;
use crate::log::headers::{Start, headers};
use crate::memory;
use crate::types::Lsn;

/// No LSN of a real volume comes near.
const LSN_LIMIT: u64 = 1 << 61;

/// An LSN that is above those of all headers in the ring. Blocks that cannot be read, and headers
/// with an LSN beyond reason, are erased; that is durable after a flush.
///
/// # Errors
/// The medium's; `OutOfMemory`.
pub fn lsn_behind_the_past(medium: &impl Medium, superblock: &Superblock) -> Result<Lsn> {
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
