//! Identifying the volume when its superblocks or metaroots are damaged.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::{
    Metaroot, STRUCTURE_SIZE, SlotCopy, Superblock, VERSION, cell_size, digest_of,
};
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, Timestamp};

/// Bytes read at once in the search for a superblock.
const CHUNK: u64 = 1 << 20;

/// The superblock: a copy in its place, else one found anywhere, else one inferred from a metaroot
/// and its root node.
pub fn superblock(
    medium: &impl Medium,
    platform: &impl Platform,
    notes: &mut Vec<String>,
) -> Result<Superblock> {
    let failure = match Superblock::read(medium, platform) {
        Ok((superblock, damaged)) => {
            if damaged {
                notes.push("one superblock copy is damaged; the other one was used".into());
            }
            return Ok(superblock);
        }
        Err(
            error @ (Error::UnsupportedVersion(_)
            | Error::UnsupportedFeatures(_)
            | Error::BadBlockSize(_)
            | Error::UnsupportedParameter(_)),
        ) => return Err(error),
        Err(error) => error,
    };
    let size = medium.geometry().size;
    if let Ok(superblock) = Superblock::read_at(medium, platform, 0) {
        let missing = superblock.byte_size().saturating_sub(size);
        notes.push(format!("the medium ends {missing} bytes before the volume does"));
        return Ok(superblock);
    }
    if let Some((superblock, offset)) = search_superblock(medium, platform) {
        notes.push(format!("the superblock was found by searching, at byte {offset}"));
        return Ok(superblock);
    }
    if let Some(superblock) = infer(medium, platform) {
        notes.push(
            "no superblock is left: block size, node size and identity were worked out from a metaroot and its root node"
                .into(),
        );
        return Ok(superblock);
    }
    Err(failure)
}

/// A valid superblock anywhere whose content matches its place, and where it is. There may be
/// several. One may belong to an earlier volume, which no metaroot fits. Another may be the second
/// copy from before the volume grew, which has a smaller size.
pub(crate) fn search_superblock(
    medium: &impl Medium,
    platform: &impl Platform,
) -> Option<(Superblock, u64)> {
    let size = medium.geometry().size;
    let step = STRUCTURE_SIZE as u64;
    let mut buffer = vec![0; CHUNK as usize];
    let mut best: Option<((u64, u64), Superblock, u64)> = None;
    let mut at = 0;
    while at < size {
        let length = CHUNK.min(size - at) as usize;
        let bytes = &mut buffer[..length];
        if medium.read(at, bytes).is_ok() {
            for (index, piece) in bytes.chunks_exact(STRUCTURE_SIZE).enumerate() {
                let offset = at + index as u64 * step;
                if let Ok(found) = Superblock::decode(piece, platform)
                    && (offset == 0 || offset == found.second_offset())
                {
                    let (roots, _) = metaroots(medium, &found, platform);
                    let rank = (roots.first().map_or(0, |root| root.generation.0), found.blocks);
                    if best.as_ref().is_none_or(|(known, ..)| *known < rank) {
                        best = Some((rank, found, offset));
                    }
                }
            }
        }
        at += length as u64;
    }
    best.map(|(_, superblock, offset)| (superblock, offset))
}

/// Parameters that fit a metaroot in its place and its root node. The log region is unknown: no
/// other structure has its length.
fn infer(medium: &impl Medium, platform: &impl Platform) -> Option<Superblock> {
    let size = medium.geometry().size;
    for block_size in (7..=16).map(|shift| 1u32 << shift) {
        let cell = cell_size(block_size);
        let whole = size - size % cell;
        if whole < 8 * cell || block_size < medium.geometry().atomic_unit {
            continue;
        }
        for offset in [cell, 2 * cell, whole - 3 * cell, whole - 2 * cell] {
            let mut buffer = vec![0; cell as usize];
            if medium.read(offset, &mut buffer).is_err() {
                continue;
            }
            let Some(uuid) = buffer.get(8..24).and_then(|bytes| bytes.try_into().ok()) else {
                continue;
            };
            let head = 3 * cell / u64::from(block_size);
            let mut guess = Superblock {
                version: VERSION,
                uuid,
                features_compatible: 0,
                features_read_only: 0,
                features_incompatible: 0,
                blocks: whole / u64::from(block_size),
                block_size,
                node_size: block_size.max(STRUCTURE_SIZE as u32),
                metadata_copies: 1,
                group_blocks: 64,
                log: BlockRun { start: BlockAddress(head), count: 0 },
                inline_max: 0,
                reserve_blocks: 0,
                hash_key: uuid,
                label: [0; 32],
                created: Timestamp::default(),
                given_uuid: [0; 16],
            };
            let SlotCopy::Valid(metaroot) = Metaroot::read_copy(medium, &guess, platform, offset)
            else {
                continue;
            };
            for node_size in (9..=16).map(|shift| 1u32 << shift).filter(|size| *size >= block_size)
            {
                guess.node_size = node_size;
                guess.metadata_copies = metaroot.root.copies().count() as u8;
                let fits = metaroot.root.copies().any(|address| {
                    let mut node = vec![0; node_size as usize];
                    let at = address.0.checked_mul(u64::from(block_size));
                    at.is_some_and(|at| at < size && medium.read(at, &mut node).is_ok())
                        && digest_of(platform.crc32c(0, &node)) == metaroot.root.digest
                });
                if fits && guess.validate().is_ok() {
                    return Some(guess);
                }
            }
        }
    }
    None
}

/// The valid metaroots, the newest first, and whether a newer one may be lost.
pub fn metaroots(
    medium: &impl Medium,
    superblock: &Superblock,
    platform: &impl Platform,
) -> (Vec<Metaroot>, bool) {
    let mut found: Vec<Metaroot> = Vec::new();
    let mut slot_lost = false;
    for slot in 0..2 {
        let copies = superblock
            .metaroot_offsets(slot)
            .map(|offset| Metaroot::read_copy(medium, superblock, platform, offset));
        let before = found.len();
        for copy in copies {
            if let SlotCopy::Valid(metaroot) = copy
                && metaroot.generation.0 % 2 == slot
                && !found.contains(&metaroot)
            {
                found.push(metaroot);
            }
        }
        slot_lost |= found.len() == before && copies.contains(&SlotCopy::Invalid);
    }
    found.sort_unstable_by_key(|metaroot| core::cmp::Reverse(metaroot.generation));
    (found, slot_lost)
}
