//! Setting the size of a file.
//!
//! Shrinking needs no data I/O and no space. It removes extents (in steps if they exceed a batch,
//! see [`orphan`]). It leaves the last partial block unchanged, marked TAIL_STALE. Growing leaves a
//! hole. Before growing, the caller has finished a pending truncation and zeroed a stale tail,
//! because the old bytes of both would become visible.

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::inode::{FILE_SIZE_MAX, FLAG_INLINE, FLAG_TAIL_STALE, FLAG_TRUNCATING, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::orphan;
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::types::InodeNumber;

/// Sets the size of a regular file and stores the inode.
///
/// # Errors
/// `FileTooLarge`; `Busy` if the file grows and the caller has not prepared it.
pub(crate) fn set_size<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    attributes: &mut Inode,
    size: u64,
) -> Result<()> {
    if size > FILE_SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    if size > attributes.size {
        if attributes.has(FLAG_TRUNCATING) || attributes.has(FLAG_TAIL_STALE) {
            return Err(Error::Busy);
        }
        attributes.size = size;
        return attributes.store(tx, inode);
    }
    let shrinks = size < attributes.size;
    attributes.size = size;
    if attributes.has(FLAG_INLINE) {
        cut_inline(tx, inode, size)?;
        return attributes.store(tx, inode);
    }
    if shrinks {
        attributes.set(FLAG_TAIL_STALE, !size.is_multiple_of(parameters.block()));
    }
    orphan::truncate_step(tx, parameters, inode, attributes).map(drop)
}

/// Shortens inline data to at most `size` bytes.
fn cut_inline<K: Keyspace>(tx: &mut Tx<'_, K>, inode: InodeNumber, size: u64) -> Result<()> {
    let key = Key::new(inode, Kind::Inline, 0);
    let Some(mut found) = tx.get(&key)? else {
        return Ok(());
    };
    if found.len() as u64 <= size {
        return Ok(());
    }
    if size == 0 {
        return tx.delete(&key);
    }
    found.truncate(size as usize);
    tx.put(key, found)
}
