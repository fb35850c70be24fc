//! The metaroot: the state of the whole volume at one checkpoint. The newest valid one wins at
//! open.

use alloc::vec;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::{
    DIGEST_SIZE, Digest, FieldReader, FieldWriter, HEIGHT_MAX, NodePointer, Root, STRUCTURE_DIGEST,
    STRUCTURE_SIZE, Superblock, digest_of,
};
use crate::mask::TransactionMask;
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::{Generation, Lsn};

const MAGIC: [u8; 8] = *b"SFMETART";

/// Where the next record of the intent log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// Number of the next record.
    pub lsn: Lsn,
    /// Block of the next record within the log region.
    pub block: u64,
    /// Digest of the record before it; chains the records.
    pub previous: Digest,
    /// Highest epoch (mount) that has written records so far.
    pub epoch: u64,
}

/// Counts of snapshots and clones in a state, known without reading their keys. Field order is the
/// order on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotCounts {
    /// Generation of the newest snapshot that is not being deleted; 0: none. Blocks born later
    /// belong to no snapshot.
    pub newest: Generation,
    /// Snapshot keys, including those of snapshots that are being deleted.
    pub keys: u64,
    /// Blocks that only snapshots hold: those in the dead lists.
    pub blocks: u64,
    /// Upper bound of the nodes that the tree shares with the newest snapshot.
    pub shared_nodes: u64,
    /// Shared-extent keys.
    pub shared_extents: u64,
}

/// The state at one checkpoint. Field order is the order on the medium; see docs/FORMAT.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each field is specified in docs/FORMAT.md
pub struct Metaroot {
    pub generation: Generation,
    pub root: NodePointer,
    pub height: u32,
    pub next_inode: u64,
    pub inodes: u64,
    pub used_blocks: u64,
    pub nodes: u64,
    pub log: LogPosition,
    pub mask: TransactionMask,
    pub timer_ms: u32,
    pub data_cursor: u64,
    pub node_cursor: u64,
    pub snapshots: SnapshotCounts,
}

/// Content of one copy of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotCopy {
    /// A valid metaroot.
    Valid(Metaroot),
    /// Nothing: never written, or erased. All bytes are this one.
    Blank(u8),
    /// Torn, damaged or unreadable.
    Invalid,
}

/// Bytes that are read for a metaroot: no more than the atomic unit. Unreadable bytes after it in
/// its cell must not make it unreadable. Otherwise a write of the cell that was interrupted
/// twice could bring it back.
pub(super) fn read_size(medium: &impl Medium) -> usize {
    STRUCTURE_SIZE.next_multiple_of(medium.geometry().atomic_unit.max(1) as usize)
}

impl SlotCopy {
    /// A copy with these bytes, which are no metaroot of its slot.
    pub(super) fn without_metaroot(bytes: &[u8]) -> SlotCopy {
        match bytes.first() {
            Some(first) if bytes.iter().all(|byte| byte == first) => SlotCopy::Blank(*first),
            _ => SlotCopy::Invalid,
        }
    }
}

/// Whether these are the bytes of a metaroot with another uuid: the volume was formatted again.
fn is_of_another_volume(bytes: &[u8], superblock: &Superblock, platform: &impl Platform) -> bool {
    let crc = bytes.get(..STRUCTURE_DIGEST).map(|body| digest_of(platform.crc32c(0, body)));
    let mut fields = FieldReader::new(bytes);
    crc.is_some_and(|digest| bytes.get(STRUCTURE_DIGEST..STRUCTURE_SIZE) == Some(&digest[..]))
        && fields.array::<8>() == MAGIC
        && fields.array::<16>() != superblock.uuid
}

impl Metaroot {
    /// Reads and classifies the copy at byte `offset`.
    pub fn read_copy(
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
        offset: u64,
    ) -> SlotCopy {
        let mut buffer = vec![0; read_size(medium)];
        if medium.read(offset, &mut buffer).is_err() {
            return SlotCopy::Invalid;
        }
        match Self::decode(&buffer, superblock, platform) {
            Some(found) => SlotCopy::Valid(found),
            None => SlotCopy::without_metaroot(&buffer[..STRUCTURE_SIZE]),
        }
    }

    /// Whether a metaroot on the medium shows that another writer has overtaken the writer of this
    /// one. Such a metaroot is newer, or a different one of the same generation, or one of another
    /// volume. Unreadable copies show nothing.
    pub fn is_overtaken(
        &self,
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> bool {
        let Ok(mut buffer) = memory::zeroed(read_size(medium)) else { return false };
        (0..2).any(|slot| {
            superblock.metaroot_offsets(slot).into_iter().any(|offset| {
                if medium.read_afresh(offset, &mut buffer).is_err() {
                    return false;
                }
                let Some(found) = Self::decode(&buffer, superblock, platform) else {
                    return is_of_another_volume(&buffer, superblock, platform);
                };
                found.generation.0 % 2 == slot
                    && (found.generation > self.generation
                        || found.generation == self.generation && found != *self)
            })
        })
    }

    /// The metaroot in a cell that was read, if it is valid.
    pub fn decode(
        bytes: &[u8],
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> Option<Metaroot> {
        let crc = platform.crc32c(0, bytes.get(..STRUCTURE_DIGEST)?);
        if bytes.get(STRUCTURE_DIGEST..STRUCTURE_SIZE)? != digest_of(crc) {
            return None;
        }
        let mut fields = FieldReader::new(bytes);
        if fields.array::<8>() != MAGIC || fields.array::<16>() != superblock.uuid {
            return None;
        }
        let metaroot = Metaroot {
            generation: Generation(fields.u64()),
            root: NodePointer::decode(&fields.array()),
            height: fields.u32(),
            next_inode: (fields.u32(), fields.u64()).1,
            inodes: fields.u64(),
            used_blocks: fields.u64(),
            nodes: fields.u64(),
            log: LogPosition {
                lsn: Lsn(fields.u64()),
                block: fields.u64(),
                previous: fields.array(),
                epoch: fields.u64(),
            },
            mask: TransactionMask(fields.u32()),
            timer_ms: fields.u32(),
            data_cursor: fields.u64(),
            node_cursor: fields.u64(),
            snapshots: SnapshotCounts {
                newest: Generation(fields.u64()),
                keys: fields.u64(),
                blocks: fields.u64(),
                shared_nodes: fields.u64(),
                shared_extents: fields.u64(),
            },
        };
        let valid = (1..=HEIGHT_MAX).contains(&metaroot.height)
            && metaroot.used_blocks <= superblock.usable_blocks()
            && (metaroot.log.block < superblock.log.count || metaroot.log.block == 0)
            && metaroot.generation.0 < u64::MAX / 2
            && metaroot.snapshots.newest < metaroot.generation.max(Generation(1))
            && metaroot.snapshots.blocks <= metaroot.used_blocks
            && metaroot.next_inode < u64::MAX / 2
            && metaroot.log.lsn.0 < u64::MAX / 2
            && metaroot.log.epoch < u64::MAX / 2;
        valid.then_some(metaroot)
    }

    /// The tree of this state.
    pub fn root(&self) -> Root {
        Root { pointer: self.root, height: self.height }
    }

    /// Its cell on the medium: the structure of 512 bytes, followed by zeros.
    pub(super) fn cell(
        &self,
        superblock: &Superblock,
        platform: &impl Platform,
    ) -> Result<Vec<u8>> {
        let mut bytes = memory::zeroed(superblock.cell_size() as usize)?;
        FieldWriter::new(&mut bytes)
            .bytes(&MAGIC)
            .bytes(&superblock.uuid)
            .u64(self.generation.0)
            .bytes(&self.root.encode())
            .u32(self.height)
            .u32(0)
            .u64(self.next_inode)
            .u64(self.inodes)
            .u64(self.used_blocks)
            .u64(self.nodes)
            .u64(self.log.lsn.0)
            .u64(self.log.block)
            .bytes(&self.log.previous)
            .u64(self.log.epoch)
            .u32(self.mask.0)
            .u32(self.timer_ms)
            .u64(self.data_cursor)
            .u64(self.node_cursor)
            .u64(self.snapshots.newest.0)
            .u64(self.snapshots.keys)
            .u64(self.snapshots.blocks)
            .u64(self.snapshots.shared_nodes)
            .u64(self.snapshots.shared_extents);
        let digest = digest_of(platform.crc32c(0, &bytes[..STRUCTURE_DIGEST]));
        bytes[STRUCTURE_DIGEST..STRUCTURE_DIGEST + DIGEST_SIZE].copy_from_slice(&digest);
        Ok(bytes)
    }

    /// Writes both copies of this generation's slot. The second copy is written after `flush` has
    /// made the first one durable, so no power cut spoils both. Durable in the first copy when it
    /// returns. The next flush makes the second copy durable, before this slot is written again.
    pub fn write(
        &self,
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
        flush: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let slot = if planted(Sabotage::OneMetarootSlot) { 0 } else { self.generation.0 };
        // Memory for the cell is allocated before the first copy is written, so lack of memory
        // cannot leave a half-written metaroot.
        let cell = self.cell(superblock, platform)?;
        let [first, second] = superblock.metaroot_offsets(slot);
        medium.write(first, &cell)?;
        if planted(Sabotage::BothMetarootsAtOnce) {
            medium.write(second, &cell)?;
        }
        flush()?;
        Ok(medium.write(second, &cell)?)
    }

    /// Writes the copy at byte `offset`, one of the copies of this generation's slot. Durable after
    /// a flush.
    pub fn write_copy(
        &self,
        medium: &impl Medium,
        superblock: &Superblock,
        platform: &impl Platform,
        offset: u64,
    ) -> Result<()> {
        Ok(medium.write(offset, &self.cell(superblock, platform)?)?)
    }
}
