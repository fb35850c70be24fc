//! Information about a volume.

use core::ffi::{c_char, c_int};

use crate::guard::{call_int, check_place, store};
use crate::volume::{sf_volume, with};

/// `sf_volume_info.flags`: opened for reading only.
pub const SF_INFO_READ_ONLY: u32 = 1;
/// `sf_volume_info.flags`: became read-only after a failure; `failure` has the cause.
pub const SF_INFO_FAILED: u32 = 2;
/// `sf_volume_info.flags`: one copy of the superblock is damaged.
pub const SF_INFO_SUPERBLOCK_DAMAGED: u32 = 4;

/// Space and counts of a volume.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct sf_space {
    /// Block size, bytes.
    pub block_size: u32,
    /// Longest name, bytes.
    pub name_max: u32,
    /// Blocks that files and metadata can use.
    pub blocks: u64,
    /// Free blocks, including those that become usable at the next checkpoint.
    pub blocks_free: u64,
    /// Blocks still available to files.
    pub blocks_available: u64,
    /// Freed blocks that become usable at the next checkpoint.
    pub blocks_almost_free: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Properties and state of a volume.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sf_volume_info {
    /// Version of the format on the medium.
    pub format_version: u32,
    /// Block size, bytes.
    pub block_size: u32,
    /// Size of a tree node, bytes.
    pub node_size: u32,
    /// Copies of each metadata block.
    pub metadata_copies: u32,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Label, zero-terminated.
    pub label: [c_char; 40],
    /// Bytes of the volume.
    pub size: u64,
    /// Size of the intent log in bytes; 0: there is no log.
    pub log_size: u64,
    /// Bytes of the log in use since the last checkpoint.
    pub log_used: u64,
    /// Generation of the newest durable checkpoint.
    pub generation: u64,
    /// Records that opening found in the log; 0 after a clean close.
    pub replayed_records: u64,
    /// Transaction points since the volume was opened.
    pub transaction_points: u64,
    /// Changes that a power cut at this moment would lose.
    pub uncommitted: u64,
    /// Metadata reads that needed the second copy.
    pub repaired_reads: u64,
    /// Rollbacks since the volume was opened.
    pub rollbacks: u64,
    /// The transaction mask.
    pub mask: u32,
    /// Interval of the timer, milliseconds.
    pub timer_ms: u32,
    /// SF_INFO_….
    pub flags: u32,
    /// Zero.
    pub reserved_flags: u32,
    /// Why the volume became read-only by itself; otherwise empty.
    pub failure: [c_char; 128],
    /// Zero.
    pub reserved: [u64; 4],
}

/// Truncates a text to the size of a field, with a zero at its end.
fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let end = text.floor_char_boundary(N - 1);
    for (to, from) in field.iter_mut().zip(text.as_bytes().iter().take(end)) {
        *to = *from as c_char;
    }
    field
}

/// Returns space and counts of the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_statistics(volume: *mut sf_volume, space: *mut sf_space) -> c_int {
    call_int("sf_statistics", || {
        check_place(space, "space")?;
        // SAFETY: the header requires an open volume, and for room for the structure.
        unsafe {
            let found = with(volume, |volume| Ok(volume.core.statistics()?))?;
            let answer = sf_space {
                block_size: found.block_size,
                name_max: found.name_max,
                blocks: found.blocks,
                blocks_free: found.blocks_free,
                blocks_available: found.blocks_available,
                blocks_almost_free: found.blocks_almost_free,
                inodes: found.inodes,
                reserved: [0; 4],
            };
            store(space, answer, "space")
        }
    })
}

/// Returns properties and state of the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sf_info(volume: *mut sf_volume, info: *mut sf_volume_info) -> c_int {
    call_int("sf_info", || {
        check_place(info, "info")?;
        // SAFETY: the header requires an open volume, and for room for the structure.
        unsafe {
            let found = with(volume, |volume| Ok(volume.core.info()))?;
            let flag = |set: bool, bit: u32| if set { bit } else { 0 };
            let answer = sf_volume_info {
                format_version: found.version,
                block_size: found.block_size,
                node_size: found.node_size,
                metadata_copies: found.metadata_copies.into(),
                uuid: found.uuid,
                label: field(&found.label),
                size: found.size,
                log_size: found.log_size,
                log_used: found.log_used,
                generation: found.generation,
                replayed_records: found.replayed_records,
                transaction_points: found.transaction_points,
                uncommitted: found.uncommitted,
                repaired_reads: found.repaired_reads,
                rollbacks: found.incarnation,
                mask: found.mask.0,
                timer_ms: found.timer_ms,
                flags: flag(found.read_only, SF_INFO_READ_ONLY)
                    | flag(found.poisoned.is_some(), SF_INFO_FAILED)
                    | flag(found.superblock_damaged, SF_INFO_SUPERBLOCK_DAMAGED),
                reserved_flags: 0,
                failure: field(found.poisoned.unwrap_or_default()),
                reserved: [0; 4],
            };
            store(info, answer, "info")
        }
    })
}
