//! The superblock: after format only a change of the size or of the names changes it. There are two
//! copies, at the two ends of the volume.

use alloc::vec::Vec;

use steadfast_media::{Geometry, Medium};

use crate::error::{Error, Result};
use crate::format::{
    DIGEST_SIZE, FieldReader, FieldWriter, STRUCTURE_DIGEST, STRUCTURE_SIZE, cell_size, digest_of,
};
use crate::memory;
use crate::platform::Platform;
use crate::types::{BlockAddress, BlockRun, Timestamp};

/// Format version that this code writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Compatible features known to this code; unknown ones may be ignored.
pub const FEATURES_COMPATIBLE: u64 = 0;
/// Read-only-compatible features known to this code. With unknown ones the volume can be read but
/// not written.
pub const FEATURES_READ_ONLY: u64 = FEATURE_FILE_FLAGS;
/// A read-only-compatible feature: inodes may have flags that users set. Format leaves it out, and
/// the first flag sets it.
pub const FEATURE_FILE_FLAGS: u64 = 1 << 1;
/// Incompatible features known to this code. With unknown ones the volume cannot be opened.
pub const FEATURES_INCOMPATIBLE: u64 = 0;

/// Largest reserve, bytes.
const RESERVE_MAX: u64 = 32 << 20;
/// Minimum number of nodes in the reserve (all copies): the needs of removals and of the next
/// checkpoint.
pub const RESERVE_NODES_MIN: u64 = 8;
/// Nodes (all copies) that fit the smallest volume. With fewer than about 19, a full volume can
/// refuse to remove a file.
const NODES_MIN: u64 = 24;
/// Blocks of the smallest volume.
const BLOCKS_MIN: u64 = 64;

/// Blocks that files cannot take on a volume with `usable` blocks, if a node takes `node_cost`
/// blocks in all copies.
pub fn reserve_blocks(usable: u64, block_size: u32, node_cost: u64) -> u64 {
    let share = (usable / 64).min(RESERVE_MAX / u64::from(block_size));
    share.max(RESERVE_NODES_MIN * node_cost).min(usable / 4)
}

/// Blocks of the smallest volume with the parameters of `superblock`, whose own size does not
/// matter.
pub fn blocks_min(superblock: &Superblock) -> u64 {
    let node_cost = superblock.node_cost();
    (2 * superblock.head_blocks() + NODES_MIN * node_cost + superblock.log.count).max(BLOCKS_MIN)
}

const MAGIC: [u8; 8] = *b"STEADFST";
const CHECKSUM_CRC32C: u32 = 1;

/// Parameters of a volume. Field order is the order on the medium; see docs/FORMAT.md.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // each field is specified in docs/FORMAT.md
pub struct Superblock {
    pub version: u32,
    pub uuid: [u8; 16],
    pub features_compatible: u64,
    pub features_read_only: u64,
    pub features_incompatible: u64,
    pub blocks: u64,
    pub block_size: u32,
    pub node_size: u32,
    pub metadata_copies: u8,
    pub group_blocks: u32,
    pub log: BlockRun,
    pub inline_max: u32,
    pub reserve_blocks: u64,
    pub hash_key: [u8; 16],
    pub label: [u8; 32],
    pub created: Timestamp,
    /// The uuid that the volume was given later; zero: none.
    pub given_uuid: [u8; 16],
}

impl Superblock {
    /// Reads the volume's superblock from a good copy. The flag says that one copy was bad.
    ///
    /// The second copy is at the end of the volume. The first copy, which has the sizes, may be the
    /// bad one. So the search covers the end of the medium for every possible cell size.
    pub fn read(medium: &impl Medium, platform: &impl Platform) -> Result<(Superblock, bool)> {
        let size = medium.geometry().size;
        let (superblock, damaged) = match Self::read_at(medium, platform, 0) {
            Ok(first) => {
                let second = Self::read_at(medium, platform, first.second_offset());
                let damaged = first.byte_size() <= size && second.as_ref() != Ok(&first);
                (first, damaged)
            }
            Err(error @ (Error::UnsupportedVersion(_) | Error::UnsupportedFeatures(_))) => {
                return Err(error);
            }
            Err(error @ Error::UnsupportedParameter(_)) => return Err(error),
            Err(first_error) => {
                let found = (7..=16).map(|shift| 1u32 << shift).find_map(|block_size| {
                    let cell = cell_size(block_size);
                    let end = size - size % cell;
                    let second = Self::read_at(medium, platform, end.checked_sub(cell)?).ok()?;
                    (second.byte_size() == end && second.block_size == block_size).then_some(second)
                });
                (found.ok_or(first_error)?, true)
            }
        };
        if superblock.byte_size() > size {
            return Err(Error::Truncated { expected: superblock.byte_size(), found: size });
        }
        if superblock.block_size < medium.geometry().atomic_unit {
            return Err(Error::BadBlockSize(superblock.block_size));
        }
        Ok((superblock, damaged))
    }

    /// Whether the copy at byte `offset` equals this one.
    ///
    /// # Errors
    /// The medium's, or what is wrong with the copy.
    pub fn verify_copy(
        &self,
        medium: &impl Medium,
        platform: &impl Platform,
        offset: u64,
    ) -> Result<()> {
        match Self::read_at(medium, platform, offset)? {
            found if found == *self => Ok(()),
            _ => Err(Error::SuperblockDamaged),
        }
    }

    /// Rewrites the copy at byte `offset`. Durable after a flush.
    pub fn write_copy(
        &self,
        medium: &impl Medium,
        platform: &impl Platform,
        offset: u64,
    ) -> Result<()> {
        Ok(medium.write(offset, &self.cell(platform)?)?)
    }

    /// Gives the volume a label; an empty one means none.
    ///
    /// # Errors
    /// `InvalidArgument`; nothing has changed.
    pub fn set_label(&mut self, label: &str) -> Result<()> {
        let mut padded = [0; 32];
        let room = padded.get_mut(..label.len()).filter(|_| !label.contains('\0'));
        room.ok_or(Error::InvalidArgument("a label has at most 32 bytes, and no NUL"))?
            .copy_from_slice(label.as_bytes());
        self.label = padded;
        Ok(())
    }

    /// Writes both copies in place of those of `old`, which differs in names only. One copy is good
    /// at every moment: if both are good, the second one is written first. Durable when it returns.
    ///
    /// # Errors
    /// The medium's error: the old names or the new ones are stored. `Unsupported`: the medium
    /// tears the superblock, and its second copy would not be found; nothing has changed.
    pub fn replace(
        &self,
        old: &Superblock,
        medium: &impl Medium,
        platform: &impl Platform,
    ) -> Result<()> {
        let first_is_good = old.verify_copy(medium, platform, 0).is_ok();
        let second = self.second_offset();
        let Geometry { size, atomic_unit, .. } = medium.geometry();
        let whole = atomic_unit as usize >= STRUCTURE_SIZE;
        if !whole && size - size % self.cell_size() != self.byte_size() {
            return Err(Error::Unsupported(
                "this change on a medium whose atomic unit is below 512 bytes",
            ));
        }
        for offset in if first_is_good { [second, 0] } else { [0, second] } {
            self.write_copy(medium, platform, offset)?;
            medium.flush()?;
        }
        self.verify_copy(medium, platform, 0)?;
        self.verify_copy(medium, platform, second)
    }

    /// Reads the copy at byte `offset`, wherever the volume ends.
    pub fn read_at(
        medium: &impl Medium,
        platform: &impl Platform,
        offset: u64,
    ) -> Result<Superblock> {
        let unit = u64::from(medium.geometry().atomic_unit).max(STRUCTURE_SIZE as u64);
        let aligned = offset - offset % unit;
        let mut buffer = memory::zeroed(unit as usize)?;
        if aligned + unit > medium.geometry().size {
            return Err(Error::NotSteadfast);
        }
        medium.read(aligned, &mut buffer)?;
        let start = (offset - aligned) as usize;
        let bytes = buffer.get(start..start + STRUCTURE_SIZE).ok_or(Error::NotSteadfast)?;
        Self::decode(bytes, platform)
    }

    /// Decodes the 512 bytes of a copy.
    pub fn decode(bytes: &[u8], platform: &impl Platform) -> Result<Superblock> {
        let mut fields = FieldReader::new(bytes);
        if fields.array::<8>() != MAGIC {
            return Err(Error::NotSteadfast);
        }
        let crc = platform.crc32c(0, &bytes[..STRUCTURE_DIGEST]);
        if bytes[STRUCTURE_DIGEST..STRUCTURE_SIZE] != digest_of(crc) {
            return Err(Error::SuperblockDamaged);
        }
        let version = fields.u32();
        if version == 0 || version > VERSION {
            return Err(Error::UnsupportedVersion(version));
        }
        if fields.u32() != CHECKSUM_CRC32C {
            return Err(Error::UnsupportedParameter("checksum algorithm"));
        }
        let superblock = Superblock {
            version,
            uuid: fields.array(),
            features_compatible: fields.u64(),
            features_read_only: fields.u64(),
            features_incompatible: fields.u64(),
            blocks: fields.u64(),
            block_size: fields.u32(),
            node_size: fields.u32(),
            // A number that does not fit becomes 0, which `validate` refuses.
            metadata_copies: u8::try_from(fields.u32()).unwrap_or(0),
            group_blocks: fields.u32(),
            log: BlockRun { start: BlockAddress(fields.u64()), count: fields.u64() },
            inline_max: fields.u32(),
            reserve_blocks: (fields.u32(), fields.u64()).1,
            hash_key: fields.array(),
            label: fields.array(),
            created: Timestamp { seconds: fields.u64() as i64, nanoseconds: fields.u32() },
            given_uuid: fields.array(),
        };
        if superblock.features_incompatible & !FEATURES_INCOMPATIBLE != 0 {
            return Err(Error::UnsupportedFeatures(
                superblock.features_incompatible & !FEATURES_INCOMPATIBLE,
            ));
        }
        superblock.validate()?;
        Ok(superblock)
    }

    /// Its cell on the medium: the structure of 512 bytes, followed by zeros.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn cell(&self, platform: &impl Platform) -> Result<Vec<u8>> {
        let mut bytes = memory::zeroed(self.cell_size() as usize)?;
        FieldWriter::new(&mut bytes)
            .bytes(&MAGIC)
            .u32(self.version)
            .u32(CHECKSUM_CRC32C)
            .bytes(&self.uuid)
            .u64(self.features_compatible)
            .u64(self.features_read_only)
            .u64(self.features_incompatible)
            .u64(self.blocks)
            .u32(self.block_size)
            .u32(self.node_size)
            .u32(u32::from(self.metadata_copies))
            .u32(self.group_blocks)
            .u64(self.log.start.0)
            .u64(self.log.count)
            .u32(self.inline_max)
            .u32(0)
            .u64(self.reserve_blocks)
            .bytes(&self.hash_key)
            .bytes(&self.label)
            .u64(self.created.seconds as u64)
            .u32(self.created.nanoseconds)
            .bytes(&self.given_uuid);
        let digest = digest_of(platform.crc32c(0, &bytes[..STRUCTURE_DIGEST]));
        bytes[STRUCTURE_DIGEST..STRUCTURE_DIGEST + DIGEST_SIZE].copy_from_slice(&digest);
        Ok(bytes)
    }

    /// Checks everything that later code relies on, so that no image can cause an overflow or a
    /// division by zero.
    pub fn validate(&self) -> Result<()> {
        let bad = |what| Err(Error::UnsupportedParameter(what));
        if !self.block_size.is_power_of_two() || !(128..=65536).contains(&self.block_size) {
            return bad("block size");
        }
        let node = self.node_size;
        if !node.is_power_of_two() || !(512..=65536).contains(&node) || node < self.block_size {
            return bad("node size");
        }
        if !(1..=2).contains(&self.metadata_copies) {
            return bad("metadata copies");
        }
        let bits = self.group_blocks;
        if !bits.is_power_of_two() || bits < 64 || bits as usize / 8 + 1 > self.value_len_max() {
            return bad("group size");
        }
        let head = self.head_blocks();
        if self.blocks > i64::MAX as u64 / u64::from(self.block_size)
            || !self.blocks.is_multiple_of(self.cell_size() / u64::from(self.block_size))
            || self.blocks < 2 * head + 4 * self.node_blocks()
        {
            return bad("volume size");
        }
        if self.log.start.0 != head
            || self.log.count > self.blocks
            || self.log.end() > self.blocks - head
            || self.log.count * u64::from(self.block_size) > 1 << 30
        {
            return bad("log region");
        }
        if self.inline_max as usize > self.value_len_max() {
            return bad("inline size");
        }
        if self.reserve_blocks > self.blocks {
            return bad("reserve");
        }
        Ok(())
    }

    /// Erases copies of an earlier volume in the places where a second copy is searched for when
    /// the first one is bad. Such places are at the end of the medium, which may be longer than the
    /// new volume. They depend on the block size, which may have been another one. Durable after a
    /// flush.
    ///
    /// # Errors
    /// The medium's error of a write; `OutOfMemory`.
    pub fn erase_earlier(medium: &impl Medium, platform: &impl Platform) -> Result<()> {
        let geometry = medium.geometry();
        let unit = u64::from(geometry.atomic_unit).max(STRUCTURE_SIZE as u64);
        for cell in (9..=16).map(|shift| 1u64 << shift) {
            let end = geometry.size - geometry.size % cell;
            let Some(offset) = end.checked_sub(cell).filter(|offset| offset % unit == 0) else {
                continue;
            };
            match Self::read_at(medium, platform, offset) {
                // An unreadable block is no superblock.
                Err(Error::NotSteadfast | Error::Medium(_)) => {}
                Err(Error::OutOfMemory) => return Err(Error::OutOfMemory),
                Ok(_) | Err(_) => medium.write(offset, &memory::zeroed(unit as usize)?)?,
            }
        }
        Ok(())
    }

    /// The superblock of this volume with a size of `size` bytes (rounded down to whole cells).
    ///
    /// # Errors
    /// `VolumeTooSmall`, `InvalidArgument`.
    pub fn resized(&self, size: u64) -> Result<Superblock> {
        let cell = self.cell_size();
        let block_size = u64::from(self.block_size);
        let blocks = size.min(i64::MAX as u64) / cell * (cell / block_size);
        let needed = blocks_min(self);
        if blocks < needed {
            return Err(Error::VolumeTooSmall { size, needed: needed * block_size });
        }
        let mut resized = Superblock { blocks, ..self.clone() };
        let node_cost = self.node_cost();
        resized.reserve_blocks =
            reserve_blocks(resized.usable_blocks(), self.block_size, node_cost);
        resized.validate().map_err(|_| Error::InvalidArgument("size of the volume"))?;
        Ok(resized)
    }

    /// The uuid that identifies the volume to people and other programs. Its structures keep the
    /// uuid of format.
    pub fn known_uuid(&self) -> [u8; 16] {
        if self.given_uuid == [0; 16] { self.uuid } else { self.given_uuid }
    }

    /// The start of the uuid, which nodes and log records carry.
    pub fn volume_id(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.uuid;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Size of the volume in bytes.
    pub fn byte_size(&self) -> u64 {
        self.blocks * u64::from(self.block_size)
    }

    /// Bytes between fixed structures.
    pub fn cell_size(&self) -> u64 {
        cell_size(self.block_size)
    }

    /// Blocks that the three fixed cells at each end take.
    pub fn head_blocks(&self) -> u64 {
        3 * self.cell_size() / u64::from(self.block_size)
    }

    /// First block that can be allocated.
    pub fn first_block(&self) -> u64 {
        self.log.end()
    }

    /// One past the last block that can be allocated.
    pub fn end_block(&self) -> u64 {
        self.blocks - self.head_blocks()
    }

    /// Blocks that can be allocated.
    pub fn usable_blocks(&self) -> u64 {
        self.end_block() - self.first_block()
    }

    /// Blocks of one copy of a node.
    #[inline]
    pub fn node_blocks(&self) -> u64 {
        u64::from(self.node_size / self.block_size)
    }

    /// Blocks of all copies of one node.
    pub fn node_cost(&self) -> u64 {
        self.node_blocks() * u64::from(self.metadata_copies)
    }

    /// Bytes of all copies of one node.
    pub fn node_bytes(&self) -> u64 {
        self.node_cost() * u64::from(self.block_size)
    }

    /// Byte offset of the second superblock copy.
    pub fn second_offset(&self) -> u64 {
        self.byte_size() - self.cell_size()
    }

    /// Byte offsets of the two copies of the metaroot slot for `generation`.
    pub fn metaroot_offsets(&self, generation: u64) -> [u64; 2] {
        let cell = self.cell_size();
        let slot = generation % 2;
        [cell * (1 + slot), self.byte_size() - cell * (3 - slot)]
    }

    /// Largest value that fits a node, bytes.
    #[inline]
    pub fn value_len_max(&self) -> usize {
        crate::format::value_len_max(self.node_size as usize)
    }

    /// Unit of data checksums, bytes.
    #[inline]
    pub fn checksum_granule(&self) -> u32 {
        self.block_size.min(4096)
    }

    /// Largest file stored in the tree, bytes.
    #[inline]
    pub fn inline_max(&self) -> usize {
        self.inline_max as usize
    }

    /// Longest name, bytes: 255, or less in a small node.
    #[inline]
    pub fn name_max(&self) -> usize {
        // An entry's value has up to 16 bytes beside the name.
        (self.value_len_max() - 16).min(255)
    }
}
