//! The bitmaps of a new volume.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::Superblock;
use crate::memory;
use crate::space::allocation_group::{self, Bitmap};
use crate::types::BlockRun;

/// The groups of a volume of which only `runs` are used, and their values in the tree.
///
/// # Errors
/// `OutOfMemory`.
pub fn first_groups(superblock: &Superblock, runs: &[BlockRun]) -> Result<Vec<(u64, Vec<u8>)>> {
    let size = u64::from(superblock.group_blocks);
    let mut values: Vec<(u64, Vec<u8>)> = Vec::new();
    for run in runs {
        for index in run.start.0 / size..=(run.end() - 1) / size {
            let within = |block: u64| block.clamp(index * size, (index + 1) * size) - index * size;
            let mut allocatable = Bitmap::zeroed(size)?;
            allocatable.set(within(superblock.first_block()), within(superblock.end_block()), true);
            let mut used = Bitmap::zeroed(size)?;
            for run in runs {
                used.set(within(run.start.0), within(run.end()), true);
            }
            let known = values.iter().any(|(known, _)| *known == index);
            if let Some(value) = allocation_group::encode(&used, &allocatable)?.filter(|_| !known) {
                memory::push(&mut values, (index, value))?;
            }
        }
    }
    Ok(values)
}
