//! Reading the ring of the log.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;

/// Reads bytes `from..to` of what begins at block `at` of the ring, rounded up to the atomic unit
/// and no further. Unreadable bytes after a record in its last block must not make it unreadable.
/// Otherwise a half-done erasure could bring it back.
pub(super) fn read_ring<M: Medium, P: Platform>(
    store: &Store<M, P>,
    at: u64,
    from: usize,
    to: usize,
) -> Result<Vec<u8>> {
    let region = store.device.superblock.log;
    let block_size = u64::from(store.device.superblock.block_size);
    let to = to.next_multiple_of(store.device.medium.geometry().atomic_unit.max(1) as usize);
    let mut bytes = memory::zeroed(to.saturating_sub(from))?;
    let ring = region.count * block_size;
    let start = at * block_size + from as u64;
    let (start, until_end) =
        if start < ring { (start, ring - start) } else { (start - ring, u64::MAX) };
    let first = until_end.min(bytes.len() as u64) as usize;
    let (head, tail) = bytes.split_at_mut(first);
    let origin = region.start.0 * block_size;
    store.device.medium.read(origin + start, head)?;
    if !tail.is_empty() {
        store.device.medium.read(origin, tail)?;
    }
    Ok(bytes)
}

/// Result of `read`; or its error, if the medium reports twice that it will never succeed.
pub(super) fn unless_unreadable<T>(
    mut read: impl FnMut() -> Result<T>,
) -> Result<core::result::Result<T, Error>> {
    match read().or_else(|error| if error.is_unreadable() { read() } else { Err(error) }) {
        Err(error) if error.is_unreadable() => Ok(Err(error)),
        result => result.map(Ok),
    }
}
