//! Identifies a medium from its superblock alone, for programs that examine every new medium.

use alloc::string::String;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::Superblock;
use crate::platform::Platform;
use crate::types::Timestamp;

/// The identity of a volume. It does not change while the volume is in use, so it may be read at
/// any time without a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Format version.
    pub version: u32,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// Label for people.
    pub label: String,
    /// Size of the volume, bytes.
    pub size: u64,
    /// Block size, bytes.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Blocks whose allocation is kept together.
    pub group_blocks: u32,
    /// Largest file that is kept in its inode, bytes.
    pub inline_max: u32,
    /// Blocks that stay free for deleting and rolling back on a full volume.
    pub reserve_blocks: u64,
}

/// Reads the superblock in a bounded number of small reads. The volume is not opened: its log and
/// its state are not read.
///
/// # Errors
/// `NotSteadfast`, `SuperblockDamaged`, `UnsupportedVersion`, `UnsupportedFeatures`,
/// `UnsupportedParameter`, `Truncated`, `BadBlockSize`, or the medium's error.
pub fn identify<M: Medium, P: Platform>(medium: &M, platform: &P) -> Result<Identity> {
    let (superblock, _) = Superblock::read(medium, platform)?;
    let label = superblock.label.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Identity {
        version: superblock.version,
        uuid: superblock.known_uuid(),
        label: String::from_utf8_lossy(label).into_owned(),
        size: superblock.byte_size(),
        block_size: superblock.block_size,
        blocks: superblock.blocks,
        created: superblock.created,
        group_blocks: superblock.group_blocks,
        inline_max: superblock.inline_max,
        reserve_blocks: superblock.reserve_blocks,
    })
}
