//! The value of a [`Kind::Inode`](super::key::Kind::Inode) key: attributes of one inode.
//!
//! 112 bytes, little endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | mode: type and permission bits of `st_mode` |
//! | 4 | 4 | uid |
//! | 8 | 4 | gid |
//! | 12 | 4 | links: names of a file; 2 + subdirectories of a directory; 0: removed, or without a name yet |
//! | 16 | 8 | size: bytes (regular file, symbolic link), entries (directory), 0 (others); at most 2^63 − 1 |
//! | 24 | 8 | blocks in extents |
//! | 32 | 12 | access time: seconds since 1970 (signed, 8 bytes), nanoseconds (4 bytes, below 10^9) |
//! | 44 | 12 | modification time |
//! | 56 | 12 | change time |
//! | 68 | 12 | creation time |
//! | 80 | 4 | device number of a device node |
//! | 84 | 4 | flags |
//! | 88 | 8 | inode of the parent directory (directories; the root is its own parent) |
//! | 96 | 16 | reserved: zero when written first, kept as found |
//!
//! Flags:
//!
//! | bit | name | meaning |
//! |---|---|---|
//! | 0 | INLINE | a regular file without extents: its first bytes are the value under Inline (absent: none; never longer than size), the rest up to size is zero |
//! | 1 | TAIL_STALE | bytes of the last block at and beyond size are not zero; they are zeroed before size grows |
//! | 2 | TRUNCATING | extents beyond size are still to be removed; an orphan key exists |
//! | 3 | RECLAIMING | removed, and its keys are being deleted in steps |
//! | 4 | UNNAMED | made without a name (O_TMPFILE) and may be given one |
//! | 5 | ACL_ACCESS | has the attribute `system.posix_acl_access` |
//! | 6 | ACL_DEFAULT | has the attribute `system.posix_acl_default` |
//! | 7 | IMMUTABLE | a file or directory that cannot change |
//! | 8 | APPEND_ONLY | a file that can only become longer, a directory that can only get names |
//! | 9 | NO_DUMP | programs that make backups leave it out |
//! | 10 | NO_ACCESS_TIME | reading does not change the access time |
//!
//! Invariants: an orphan key exists exactly if links is 0 or TRUNCATING is set. INLINE and extents
//! exclude each other. The field "blocks" is the sum of the lengths of the extents. With one of the
//! bits 7 to 10 in any inode the superblock has the feature FILE_FLAGS.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::memory;
use crate::sabotage::{Sabotage, planted};
use crate::types::{BlockAddress, InodeNumber, Timestamp};

/// Largest size of a file and largest end of any range: 2^63 − 1 bytes.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// The type of an inode, with the numbers of `d_type` (readdir).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// FIFO.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// The kind in the type bits of a `st_mode`.
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_u8(((mode >> 12) & 0xf) as u8)
    }

    /// The kind with this `d_type` number.
    pub fn from_u8(number: u8) -> Option<FileKind> {
        Some(match number {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }
}

/// Length of the value.
pub(crate) const INODE_LEN: usize = 112;

/// Limit of the links of an inode.
pub(crate) const LINKS_MAX: u32 = u32::MAX - 2;

pub(crate) const FLAG_INLINE: u32 = 1 << 0;
pub(crate) const FLAG_TAIL_STALE: u32 = 1 << 1;
pub(crate) const FLAG_TRUNCATING: u32 = 1 << 2;
pub(crate) const FLAG_RECLAIMING: u32 = 1 << 3;
pub(crate) const FLAG_UNNAMED: u32 = 1 << 4;
pub(crate) const FLAG_ACL_ACCESS: u32 = 1 << 5;
pub(crate) const FLAG_ACL_DEFAULT: u32 = 1 << 6;
/// The bits of [`FileFlags`](crate::fs::FileFlags).
pub(crate) const FILE_FLAGS: u32 = 0b1111 << 7;
/// How far [`FileFlags`](crate::fs::FileFlags) are shifted to become these bits.
pub(crate) const FILE_FLAGS_SHIFT: u32 = 3;

/// Set-group-id in the permission bits.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// Set-user-id in the permission bits.
pub(crate) const SET_USER_ID: u32 = 0o4000;
/// The permission bits.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Attributes of an inode as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inode {
    pub kind: FileKind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub size: u64,
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    pub device: u32,
    pub flags: u32,
    pub parent: InodeNumber,
    pub reserved: [u8; 16],
}

/// Metadata that matches its checksum and is still invalid.
pub(crate) fn damaged(reason: &'static str) -> Error {
    Error::CorruptMetadata { address: BlockAddress::NONE, reason }
}

#[inline]
fn u32_at(bytes: &[u8; INODE_LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8; INODE_LEN], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[inline]
fn time_at(bytes: &[u8; INODE_LEN], at: usize) -> Result<Timestamp> {
    let nanoseconds = u32_at(bytes, at + 8);
    if nanoseconds >= 1_000_000_000 {
        return Err(damaged("inode: nanoseconds out of range"));
    }
    Ok(Timestamp { seconds: u64_at(bytes, at) as i64, nanoseconds })
}

#[inline]
fn put<const N: usize>(bytes: &mut [u8; INODE_LEN], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

impl Inode {
    /// A new inode with no links and all times `now`.
    pub fn new(kind: FileKind, permissions: u32, uid: u32, gid: u32, now: Timestamp) -> Inode {
        Inode {
            kind,
            permissions: permissions & PERMISSIONS,
            uid,
            gid,
            links: 0,
            size: 0,
            blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            device: 0,
            flags: if kind == FileKind::Regular { FLAG_INLINE } else { 0 },
            parent: InodeNumber(0),
            reserved: [0; 16],
        }
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// `CorruptMetadata` if a field is out of range.
    #[inline]
    pub fn decode(value: &[u8]) -> Result<Inode> {
        let bytes: &[u8; INODE_LEN] =
            value.try_into().map_err(|_| damaged("inode: wrong length"))?;
        let mode = u32_at(bytes, 0);
        let kind = FileKind::from_mode(mode).ok_or(damaged("inode: unknown type"))?;
        if mode >> 16 != 0 {
            return Err(damaged("inode: unknown mode bits"));
        }
        let size = u64_at(bytes, 16);
        if size > FILE_SIZE_MAX {
            return Err(damaged("inode: size out of range"));
        }
        let mut reserved = [0; 16];
        reserved.copy_from_slice(&bytes[96..]);
        Ok(Inode {
            kind,
            permissions: mode & PERMISSIONS,
            uid: u32_at(bytes, 4),
            gid: u32_at(bytes, 8),
            links: u32_at(bytes, 12),
            size,
            blocks: u64_at(bytes, 24),
            accessed: time_at(bytes, 32)?,
            modified: time_at(bytes, 44)?,
            changed: time_at(bytes, 56)?,
            created: time_at(bytes, 68)?,
            device: u32_at(bytes, 80),
            flags: u32_at(bytes, 84),
            parent: InodeNumber(u64_at(bytes, 88)),
            reserved,
        })
    }

    /// The value, in memory that is blank.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn encode_in(&self, mut blank: Vec<u8>) -> Result<Vec<u8>> {
        let mut bytes = [0; INODE_LEN];
        for (at, word) in [
            (0, self.kind.mode_bits() | self.permissions),
            (4, self.uid),
            (8, self.gid),
            (12, self.links),
            (80, self.device),
            (84, self.flags),
        ] {
            put(&mut bytes, at, word.to_le_bytes());
        }
        for (at, word) in [(16, self.size), (24, self.blocks), (88, self.parent.0)] {
            put(&mut bytes, at, word.to_le_bytes());
        }
        for (at, time) in
            [(32, self.accessed), (44, self.modified), (56, self.changed), (68, self.created)]
        {
            put(&mut bytes, at, time.seconds.to_le_bytes());
            put(&mut bytes, at + 8, time.nanoseconds.to_le_bytes());
        }
        put(&mut bytes, 96, self.reserved);
        memory::extend(&mut blank, &bytes)?;
        Ok(blank)
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set(&mut self, flag: u32, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    /// Notes that the content changed at `now`.
    pub fn touch(&mut self, now: Timestamp) {
        if !planted(Sabotage::LoseModificationTime) {
            self.modified = now;
        }
        self.changed = now;
    }

    /// Adds to the link count.
    ///
    /// # Errors
    /// `TooManyLinks`.
    pub fn add_link(&mut self) -> Result<()> {
        if self.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.links += 1;
        Ok(())
    }
}

/// The value of the root directory's inode key in a new volume.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn root_value(uid: u32, gid: u32, permissions: u32, now: Timestamp) -> Result<Vec<u8>> {
    let mut root = Inode::new(FileKind::Directory, permissions, uid, gid, now);
    root.links = 2;
    root.parent = InodeNumber::ROOT;
    root.encode_in(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let now = Timestamp { seconds: -5, nanoseconds: 999_999_999 };
        let mut inode = Inode::new(FileKind::CharDevice, 0o4755, 1000, 1001, now);
        inode.size = FILE_SIZE_MAX;
        inode.device = 0x501;
        inode.parent = InodeNumber(u64::MAX);
        inode.reserved = [9; 16];
        let bytes = inode.encode_in(Vec::new()).unwrap();
        assert_eq!(bytes.len(), INODE_LEN);
        assert_eq!(Inode::decode(&bytes).unwrap(), inode);
        assert!(Inode::decode(&bytes[1..]).is_err());
        for (at, value) in [(1, 0xff), (2, 1), (23, 0x80), (43, 0xff)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(Inode::decode(&bad).is_err(), "byte {at}");
        }
    }
}
