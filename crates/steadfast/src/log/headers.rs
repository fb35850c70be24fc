//! The headers at the beginning of the ring's blocks, whatever they belong to. They are read in
//! long requests, and block by block only where the medium cannot read a long request.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::format::record::{Header, RECORD_HEADER};
use crate::log::ring::unless_unreadable;
use crate::memory;

/// Limit of the bytes read at once: a multiple of every block size. Fewer if there is no memory for
/// that.
const CHUNK: u64 = 64 << 10;

/// A request reads no more than one part of the ring in this many. A small ring is on a device with
/// little memory, and few requests read it all the same.
const RING_SHARE: u64 = 16;

/// The beginning of a block of the ring.
pub(super) enum Start {
    /// The header of a record of a volume with this uuid.
    Header(Header),
    /// The medium will never read this block.
    Unreadable,
}

/// Goes through the `count` blocks from block `first` of the ring on, in order. Calls `visit` for
/// each block that begins with either.
///
/// # Errors
/// The medium's, those of `visit`; `OutOfMemory`.
pub(super) fn headers(
    medium: &impl Medium,
    superblock: &Superblock,
    (first, count): (u64, u64),
    mut visit: impl FnMut(u64, Start) -> Result<()>,
) -> Result<()> {
    let block_size = u64::from(superblock.block_size);
    let (origin, ring) = (superblock.log.start.0, superblock.log.count);
    let chunk = (CHUNK / block_size).min(ring / RING_SHARE).max(1);
    let mut at_once = chunk.min(count.clamp(1, ring.max(1)));
    let alone = RECORD_HEADER.next_multiple_of(medium.geometry().atomic_unit.max(1) as usize);
    let announced = count.min(ring);
    let until_end = announced.min(ring - first);
    medium.will_read((origin + first) * block_size, until_end * block_size);
    if until_end < announced {
        medium.will_read(origin * block_size, (announced - until_end) * block_size);
    }
    let mut bytes = loop {
        match memory::zeroed((at_once * block_size) as usize) {
            Err(Error::OutOfMemory) if at_once > 1 => at_once /= 2,
            bytes => break bytes?,
        }
    };
    let mut done = 0;
    while done < count.min(ring) {
        let block = (first + done) % ring;
        let blocks = at_once.min(count.min(ring) - done).min(ring - block);
        let chunk = &mut bytes[..(blocks * block_size) as usize];
        let whole = read(medium, (origin + block) * block_size, chunk)?;
        for (block, bytes) in (block..).zip(chunk.chunks_exact_mut(block_size as usize)) {
            // The bytes after a header must not decide whether the header can be read.
            let bytes = if whole { bytes } else { &mut bytes[..alone.min(block_size as usize)] };
            if !whole && !read(medium, (origin + block) * block_size, bytes)? {
                visit(block, Start::Unreadable)?;
            } else if let Some(header) = Header::decode(bytes, superblock.volume_id()) {
                visit(block, Start::Header(header))?;
            }
        }
        done += blocks;
    }
    Ok(())
}

/// Whether the medium can read this; `false` if it reports twice that it never will.
fn read(medium: &impl Medium, offset: u64, bytes: &mut [u8]) -> Result<bool> {
    // The search needs the content of the medium, not of a cache above it.
    let mut attempt = || medium.read_afresh(offset, bytes).map_err(Into::into);
    Ok(unless_unreadable(&mut attempt)?.is_ok())
}
