//! The value of a [`Kind::Snapshot`](crate::format::key::Kind::Snapshot) key: one snapshot.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::{FieldReader, FieldWriter, HEIGHT_MAX, NodePointer, Root, SnapshotCounts};
use crate::memory;
use crate::types::{BlockAddress, Generation, Timestamp};

/// Bytes in front of the name.
const FIXED_LEN: usize = NodePointer::LEN + 4 + 4 + 12 + 10 * 8 + 2;
/// Highest generation of a snapshot: its number and a sequence number share a key's suffix.
pub(crate) const GENERATION_MAX: u64 = (1 << 40) - 1;

/// Longest name, bytes.
pub(crate) const NAME_MAX: usize = 63;

/// The snapshot is being deleted: it no longer has a name, and its blocks are being freed.
const FLAG_DELETING: u32 = 1;

/// The public description of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name: 1 to 63 bytes, unique on the volume.
    pub name: String,
    /// The generation of the state that it holds; orders snapshots by age.
    pub generation: Generation,
    /// When it was taken.
    pub created: Timestamp,
    /// Inodes in it.
    pub inodes: u64,
    /// Blocks of metadata and data that it refers to; it often shares most of them with the
    /// snapshots before and after it.
    pub used_blocks: u64,
}

/// A snapshot with everything that is stored of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotRecord {
    /// The state's tree.
    pub root: Root,
    /// The state's generation; it is in the key, not in the value.
    pub generation: Generation,
    /// It is being deleted.
    pub deleting: bool,
    pub created: Timestamp,
    pub inodes: u64,
    /// Set bits of the state's bitmaps.
    pub used_blocks: u64,
    pub nodes: u64,
    pub next_inode: u64,
    /// The snapshot counts of the state itself.
    pub snapshots: SnapshotCounts,
    pub name: String,
}

impl SnapshotRecord {
    /// Blocks of data of its state, where a node has `node_cost` blocks.
    pub fn data_blocks(&self, node_cost: u64) -> u64 {
        let nodes = self.nodes.saturating_mul(node_cost);
        self.used_blocks.saturating_sub(nodes).saturating_sub(self.snapshots.blocks)
    }

    /// Decodes the value under the key of `generation`; every value and generation is possible.
    ///
    /// # Errors
    /// `CorruptMetadata`, `OutOfMemory`.
    pub fn decode(generation: Generation, value: &[u8]) -> Result<SnapshotRecord> {
        let damaged = |reason| Error::CorruptMetadata { address: BlockAddress::NONE, reason };
        let mut fields = FieldReader::new(value);
        let pointer = NodePointer::decode(&fields.array());
        let height = fields.u32();
        let flags = fields.u32();
        let created = Timestamp { seconds: fields.u64() as i64, nanoseconds: fields.u32() };
        let [inodes, used_blocks, nodes, next_inode] = core::array::from_fn(|_| fields.u64());
        let snapshots = SnapshotCounts {
            newest: Generation(fields.u64()),
            keys: fields.u64(),
            blocks: fields.u64(),
            shared_nodes: fields.u64(),
            shared_extents: fields.u64(),
        };
        let _reserved = fields.u64();
        let length = usize::from(fields.u16());
        let rest = fields.rest();
        if fields.overrun() || rest.len() != length || flags & !FLAG_DELETING != 0 {
            return Err(damaged("snapshot: wrong length or flags"));
        }
        let possible = (1..=HEIGHT_MAX).contains(&height)
            && generation.0 <= GENERATION_MAX
            && pointer.generation <= generation
            && snapshots.newest < generation
            && created.nanoseconds < 1_000_000_000;
        if !possible {
            return Err(damaged("snapshot: values out of range"));
        }
        check_name_bytes(rest).map_err(|_| damaged("snapshot: not a valid name"))?;
        let text = core::str::from_utf8(rest).map_err(|_| damaged("snapshot: not a valid name"))?;
        let mut name = String::new();
        name.try_reserve_exact(text.len()).map_err(|_| Error::OutOfMemory)?;
        name.push_str(text);
        let root = Root { pointer, height };
        let deleting = flags & FLAG_DELETING != 0;
        Ok(SnapshotRecord {
            root,
            generation,
            deleting,
            created,
            inodes,
            used_blocks,
            nodes,
            next_inode,
            snapshots,
            name,
        })
    }

    /// The value.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = memory::zeroed(FIXED_LEN + self.name.len())?;
        FieldWriter::new(&mut bytes)
            .bytes(&self.root.pointer.encode())
            .u32(self.root.height)
            .u32(if self.deleting { FLAG_DELETING } else { 0 })
            .u64(self.created.seconds as u64)
            .u32(self.created.nanoseconds)
            .u64(self.inodes)
            .u64(self.used_blocks)
            .u64(self.nodes)
            .u64(self.next_inode)
            .u64(self.snapshots.newest.0)
            .u64(self.snapshots.keys)
            .u64(self.snapshots.blocks)
            .u64(self.snapshots.shared_nodes)
            .u64(self.snapshots.shared_extents)
            .u64(0)
            .u16(self.name.len() as u16)
            .bytes(self.name.as_bytes());
        Ok(bytes)
    }

    /// Its public description.
    pub fn to_snapshot(&self) -> Result<Snapshot> {
        let mut name = String::new();
        name.try_reserve_exact(self.name.len()).map_err(|_| Error::OutOfMemory)?;
        name.push_str(&self.name);
        Ok(Snapshot {
            name,
            generation: self.generation,
            created: self.created,
            inodes: self.inodes,
            used_blocks: self.used_blocks.saturating_sub(self.snapshots.blocks),
        })
    }
}

/// Whether a snapshot may have this name.
///
/// # Errors
/// `InvalidName`, `NameTooLong`.
pub(crate) fn check_name(name: &str) -> Result<()> {
    check_name_bytes(name.as_bytes())
}

fn check_name_bytes(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::InvalidName);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SnapshotRecord {
        let pointer = NodePointer {
            addresses: [BlockAddress(7), BlockAddress::NONE],
            generation: Generation(9),
            digest: [3; 16],
        };
        SnapshotRecord {
            root: Root { pointer, height: 2 },
            generation: Generation(10),
            deleting: false,
            created: Timestamp { seconds: -5, nanoseconds: 7 },
            inodes: 11,
            used_blocks: 12,
            nodes: 13,
            next_inode: 14,
            snapshots: SnapshotCounts {
                newest: Generation(4),
                keys: 5,
                blocks: 6,
                shared_nodes: 7,
                shared_extents: 8,
            },
            name: "täglich".into(),
        }
    }

    #[test]
    fn round_trip() {
        for deleting in [false, true] {
            let record = SnapshotRecord { deleting, ..sample() };
            assert_eq!(
                SnapshotRecord::decode(record.generation, &record.encode().unwrap()).unwrap(),
                record
            );
        }
    }

    #[test]
    fn damage_is_an_error() {
        let value = sample().encode().unwrap();
        for length in 0..value.len() {
            assert!(SnapshotRecord::decode(Generation(10), &value[..length]).is_err());
        }
        assert!(SnapshotRecord::decode(Generation(8), &value).is_err(), "a root from the future");
        assert!(SnapshotRecord::decode(Generation(GENERATION_MAX), &value).is_ok());
        for impossible in [GENERATION_MAX + 1, u64::MAX] {
            assert!(SnapshotRecord::decode(Generation(impossible), &value).is_err());
        }
        for (at, byte) in
            [(40, 0), (40, 65), (44, 2), (value.len() - 1, 0xff), (value.len() - 2, b'/')]
        {
            let mut bad = value.clone();
            bad[at] = byte;
            assert!(SnapshotRecord::decode(Generation(10), &bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn names() {
        for good in ["a", "2026-11-22 00:00", "...", &"x".repeat(63)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", ".", "..", "a/b", "a\0"] {
            assert_eq!(check_name(bad), Err(Error::InvalidName));
        }
        assert_eq!(check_name(&"x".repeat(64)), Err(Error::NameTooLong));
    }
}
