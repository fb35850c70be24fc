//! What an earlier volume has left in the ring of a new one.
//!
//! A record says which volume it is of by the first bytes of the uuid, and a uuid can be used twice: a host without entropy
//! gives every volume the same one, and a reproducible image asks for it. Then nothing but LSN and digests tells the
//! records of the two apart, and where the new volume does again what the old one did the digests are the same, too. So a
//! new log begins with an LSN that is above those of all headers in its ring: no record that is there can ever follow.
//! Erasing the ring would do the same, but writes all of it, and takes the holes out of a sparse image.

use steadfast_media::Medium;

use super::find::unless_unreadable;
use super::record::Header;
use crate::error::Result;
use crate::fs::memory;
use crate::layout::Superblock;
use crate::types::Lsn;

/// Bytes that are read at once: a multiple of every block size.
const CHUNK: u64 = 256 << 10;

/// No LSN of a real volume comes near.
const LSN_LIMIT: u64 = 1 << 61;

/// The LSN with which the log of a new volume begins. Blocks that cannot be read, and headers with an LSN beyond reason, are
/// erased; that is durable after a flush.
///
/// # Errors
/// The medium's; `OutOfMemory`.
pub fn lsn_behind_the_past(medium: &impl Medium, superblock: &Superblock) -> Result<Lsn> {
    let block_size = superblock.block_size as usize;
    let origin = superblock.log.start.0 * block_size as u64;
    let ring = superblock.log.count * block_size as u64;
    let mut next = Lsn::default();
    let mut bytes = memory::zeroed(CHUNK.min(ring) as usize)?;
    for at in (0..ring).step_by(CHUNK as usize) {
        let chunk = &mut bytes[..CHUNK.min(ring - at) as usize];
        let whole = read(medium, origin + at, chunk)?;
        for (index, block) in chunk.chunks_exact_mut(block_size).enumerate() {
            let offset = origin + at + (index * block_size) as u64;
            let readable = whole || read(medium, offset, block)?;
            let header = Header::decode(block, superblock.volume_id());
            let lsn = header.map_or(0, |header| header.lsn.0.saturating_add(1));
            if !readable || lsn > LSN_LIMIT {
                medium.write(offset, &memory::zeroed(block_size)?)?;
            } else {
                next = next.max(Lsn(lsn));
            }
        }
    }
    Ok(next)
}

/// Whether the medium could read this; `false` where it says twice that it never will.
fn read(medium: &impl Medium, offset: u64, bytes: &mut [u8]) -> Result<bool> {
    let length = bytes.len();
    let read = || {
        let mut buffer = memory::zeroed(length)?;
        medium.read(offset, &mut buffer)?;
        Ok(buffer)
    };
    let found = unless_unreadable(read)?;
    if let Ok(buffer) = &found {
        bytes.copy_from_slice(buffer);
    }
    Ok(found.is_ok())
}
