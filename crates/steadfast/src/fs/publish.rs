//! Making written blocks part of a file, in one batch: the last step of a write.

use alloc::vec::Vec;

use crate::engine::keyspace::{Keyspace, KeyspaceRead};
use crate::error::{Error, Result};
use crate::format::extent::{Checksums, Extent, written_blocks_max};
use crate::format::inode::{FLAG_INLINE, FLAG_TAIL_STALE, Inode};
use crate::format::key::{Key, Kind};
use crate::fs::extent_map::{self, Mapped};
use crate::fs::parameters::Parameters;
use crate::fs::tx::Tx;
use crate::types::{BlockRun, Generation, InodeNumber};

/// Blocks that hold new data of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewRun {
    /// Index of the first block within the file.
    pub index: u64,
    /// Their addresses.
    pub run: BlockRun,
    /// Set if they belonged to an unwritten extent of the file and were written in place; otherwise
    /// they are allocated.
    pub in_place: Option<Generation>,
    /// Checksum of each granule; empty: unwritten.
    pub checksums: Checksums,
}

/// New parts of a file.
pub(crate) type Parts = Vec<NewRun>;

/// A change of a file's data.
#[derive(Debug, Clone)]
pub(crate) struct WritePlan {
    /// First block that is replaced.
    pub from: u64,
    /// Block after the last one that is replaced.
    pub end: u64,
    /// The new parts, in order; a gap becomes a hole.
    pub parts: Parts,
    /// Minimum size of the file afterwards, bytes.
    pub size: u64,
    /// Whether the first part may continue the extent before it.
    pub may_join: bool,
    /// Whether the file's times change. A step without a visible effect leaves them, because a
    /// later step of the same request may fail.
    pub times: bool,
}

/// Number of extents that a run of written blocks needs.
pub(crate) fn extents_needed(blocks: u64, extent_max: u32) -> usize {
    usize::try_from(blocks.div_ceil(u64::from(extent_max.max(1)))).unwrap_or(usize::MAX)
}

/// Replaces the extents of the range, updates size, times and flags, and stores the inode.
///
/// # Errors
/// `Unsupported` if the plan needs more than one batch.
// Its variables must not stay on the stack of the caller.
#[inline(never)]
pub(crate) fn publish<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    inode: InodeNumber,
    plan: &WritePlan,
) -> Result<()> {
    let mut attributes = Inode::load_regular(tx, inode)?;
    if attributes.has(FLAG_INLINE) {
        tx.delete(&Key::new(inode, Kind::Inline, 0))?;
        attributes.set(FLAG_INLINE, false);
    }
    let budget = tx.room().saturating_sub(1);
    let done =
        extent_map::clear(tx, parameters, (inode, &mut attributes), plan.from, plan.end, budget)?;
    if done != plan.end {
        return Err(Error::Unsupported("data range in too many pieces"));
    }
    insert_parts(tx, parameters, (inode, &mut attributes), plan)?;
    let tail = parameters.block_of(attributes.size);
    if (plan.from..plan.end).contains(&tail) {
        attributes.set(FLAG_TAIL_STALE, false);
    }
    attributes.size = attributes.size.max(plan.size);
    if plan.times {
        attributes.touch(tx.now());
    }
    attributes.store(tx, inode)
}

/// Adds the extents of the parts of a plan, in a hole. The caller stores the inode.
#[inline(never)]
fn insert_parts<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    parameters: &Parameters,
    file: (InodeNumber, &mut Inode),
    plan: &WritePlan,
) -> Result<()> {
    let (inode, attributes) = file;
    let mut may_join = plan.may_join;
    let extent_max =
        written_blocks_max(parameters.block_size, parameters.granule, tx.value_len_max());
    for part in &plan.parts {
        let birth = part.in_place.unwrap_or(tx.keyspace().generation());
        let mut done = 0;
        while done < part.run.count {
            let unwritten = part.checksums.is_empty();
            let length = match unwritten {
                true => part.run.count,
                false => u64::from(extent_max).min(part.run.count - done),
            };
            let run = BlockRun {
                start: crate::types::BlockAddress(part.run.start.0 + done),
                count: length,
            };
            let mut extent = Extent::new_unwritten(run, birth)?;
            if !unwritten {
                let per_block = parameters.granules_per_block() as usize;
                let part = part
                    .checksums
                    .get(done as usize * per_block..(done + length) as usize * per_block);
                extent.checksums =
                    Checksums::of(part.ok_or(Error::InvalidArgument("checksums missing"))?)?;
                extent.unwritten = false;
            }
            let mapped = Mapped { index: part.index + done, extent };
            extent_map::insert(tx, parameters, (inode, &mut *attributes), &mapped, may_join)?;
            may_join = true;
            done += length;
        }
    }
    Ok(())
}

/// Writes into a file that is stored in the tree; `data` ends within the largest inline size.
///
/// # Errors
/// `Busy` if the file has extents by now.
pub(crate) fn write_inline<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    offset: usize,
    data: &[u8],
) -> Result<()> {
    let mut attributes = Inode::load_regular(tx, inode)?;
    if !attributes.has(FLAG_INLINE) {
        return Err(Error::Busy);
    }
    let key = Key::new(inode, Kind::Inline, 0);
    let end = offset.checked_add(data.len()).ok_or(Error::FileTooLarge)?;
    let changed = |old: &[u8]| -> Result<Vec<u8>> {
        let (kept, after) = (old.get(..offset).unwrap_or(old), old.get(end..).unwrap_or_default());
        let mut value = Vec::new();
        value.try_reserve_exact(end + after.len()).map_err(|_| Error::OutOfMemory)?;
        value.extend_from_slice(kept);
        value.resize(offset, 0);
        value.extend_from_slice(data);
        value.extend_from_slice(after);
        Ok(value)
    };
    let value = match tx.get_with(&key, changed)? {
        Some(value) => value?,
        None => changed(&[])?,
    };
    tx.put(key, value)?;
    attributes.size = attributes.size.max(end as u64);
    attributes.touch(tx.now());
    attributes.store(tx, inode)
}

/// Clears TAIL_STALE if nothing can be stale: the tail is a hole or unwritten.
pub(crate) fn clear_tail_stale<K: Keyspace>(tx: &mut Tx<'_, K>, inode: InodeNumber) -> Result<()> {
    let mut attributes = Inode::load_regular(tx, inode)?;
    attributes.set(FLAG_TAIL_STALE, false);
    attributes.store(tx, inode)
}

/// Sets times, and a larger size, after the allocation of a range has changed.
pub(crate) fn finish_allocation<K: Keyspace>(
    tx: &mut Tx<'_, K>,
    inode: InodeNumber,
    size: Option<u64>,
) -> Result<()> {
    let mut attributes = Inode::load_regular(tx, inode)?;
    if let Some(size) = size {
        attributes.size = attributes.size.max(size);
    }
    attributes.touch(tx.now());
    attributes.store(tx, inode)
}
