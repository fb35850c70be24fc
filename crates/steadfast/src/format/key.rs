//! Keys: the file system is one ordered map from (inode, kind, suffix) to a value.
//!
//! The encoding is 17 bytes: inode (big endian), kind, suffix (big endian). So the order of the
//! bytes is the order of the keys. All keys of one inode are adjacent.

use core::cmp::Ordering;
use core::hash::{Hash, Hasher};

use crate::types::{BlockAddress, Generation, InodeNumber};

/// Bits of a dead list's sequence number in its key; the snapshot's generation is above.
const DEAD_SEQUENCE_BITS: u32 = 24;

/// What a key holds. The numbers are part of the format (docs/FORMAT.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Attributes of an inode; suffix 0.
    Inode = 1,
    /// A directory entry; suffix is the hash of the name with a probe number in the low four bits.
    Dirent = 2,
    /// An extended attribute or a further piece of one; suffix is hash, probe and piece number.
    Xattr = 3,
    /// Target of a symbolic link; suffix is the piece number.
    Symlink = 4,
    /// All data of a small file; suffix 0.
    Inline = 5,
    /// A run of a file's blocks; suffix is the index of the first block within the file.
    Extent = 6,
    /// Allocation bitmap of a group of blocks (inode 0); suffix is the group's index.
    Group = 16,
    /// An inode to be reclaimed or truncated (inode 0); suffix is the inode number.
    Orphan = 17,
    /// Reference count of blocks that several extents share (inode 0); suffix is the first block's
    /// address.
    SharedExtent = 18,
    /// Blocks that only snapshots hold (inode 0); suffix is the snapshot's generation and a
    /// sequence number.
    DeadList = 19,
    /// A snapshot (inode 0); suffix is its generation.
    Snapshot = 20,
}

impl Kind {
    /// The kind with this number.
    #[inline]
    pub fn from_u8(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Inode,
            2 => Kind::Dirent,
            3 => Kind::Xattr,
            4 => Kind::Symlink,
            5 => Kind::Inline,
            6 => Kind::Extent,
            16 => Kind::Group,
            17 => Kind::Orphan,
            18 => Kind::SharedExtent,
            19 => Kind::DeadList,
            20 => Kind::Snapshot,
            _ => return None,
        })
    }
}

/// A key in its encoded form; comparing the bytes compares the keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u8; Key::LEN]);

impl Hash for Key {
    /// As numbers, which are hashed faster than bytes.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.inode_number().0);
        state.write_u64(self.suffix() ^ u64::from(self.0[Key::KIND_AT]).rotate_right(8));
    }
}

/// The order of two encoded keys. Numbers are compared faster than bytes, and most keys are of
/// different inodes.
#[inline]
pub(crate) fn compare(key: &[u8; Key::LEN], other: &[u8; Key::LEN]) -> Ordering {
    inode_part(key).cmp(&inode_part(other)).then_with(|| compare_within(key, other))
}

/// The inode of an encoded key, in the order of keys.
#[inline]
pub(crate) fn inode_part(key: &[u8; Key::LEN]) -> u64 {
    number(&key[..Key::KIND_AT])
}

/// The order of two encoded keys of one inode.
#[inline]
pub(crate) fn compare_within(key: &[u8; Key::LEN], other: &[u8; Key::LEN]) -> Ordering {
    key[Key::KIND_AT]
        .cmp(&other[Key::KIND_AT])
        .then_with(|| number(&key[Key::KIND_AT + 1..]).cmp(&number(&other[Key::KIND_AT + 1..])))
}

#[inline]
fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap_or_default())
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> Ordering {
        compare(&self.0, &other.0)
    }
}

impl PartialOrd for Key {
    #[inline]
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Key {
    /// Encoded length in bytes.
    pub const LEN: usize = 17;
    /// Number of low bits of the suffix in which names with the same hash differ.
    pub(crate) const SLOT_BITS: u32 = 4;
    /// Index of the byte that holds the kind.
    pub(crate) const KIND_AT: usize = 8;
    /// The smallest key.
    pub const MIN: Key = Key([0; Key::LEN]);
    /// The largest key.
    pub const MAX: Key = Key([0xff; Key::LEN]);

    /// Encodes a key.
    #[inline]
    pub fn new(inode: InodeNumber, kind: Kind, suffix: u64) -> Key {
        Key::from_parts(inode.0, kind as u8, suffix)
    }

    /// A key of any kind, known or not.
    #[inline]
    pub(crate) fn from_parts(inode: u64, kind: u8, suffix: u64) -> Key {
        let mut bytes = [0; Key::LEN];
        bytes[..8].copy_from_slice(&inode.to_be_bytes());
        bytes[Key::KIND_AT] = kind;
        bytes[9..].copy_from_slice(&suffix.to_be_bytes());
        Key(bytes)
    }

    /// Key of an inode's attributes.
    #[inline]
    pub fn inode(inode: InodeNumber) -> Key {
        Key::new(inode, Kind::Inode, 0)
    }

    /// Key of the extent that starts at block `index` of the file.
    pub fn extent(inode: InodeNumber, index: u64) -> Key {
        Key::new(inode, Kind::Extent, index)
    }

    /// The lowest key that a name with the hash of this directory entry can have.
    #[inline]
    pub(crate) fn first_slot(&self) -> Key {
        let mut key = *self;
        key.0[Key::LEN - 1] &= !((1 << Key::SLOT_BITS) - 1);
        key
    }

    /// Whether no name with the same hash can have a lower key.
    #[inline]
    pub(crate) fn is_first_slot(&self) -> bool {
        self.0[Key::LEN - 1] & ((1 << Key::SLOT_BITS) - 1) == 0
    }

    /// The highest key that a name with the hash of this directory entry can have.
    #[inline]
    pub(crate) fn last_slot(&self) -> Key {
        let mut key = *self;
        key.0[Key::LEN - 1] |= (1 << Key::SLOT_BITS) - 1;
        key
    }

    /// Key of the orphan record of `inode`.
    pub fn orphan(inode: InodeNumber) -> Key {
        Key::new(InodeNumber::SYSTEM, Kind::Orphan, inode.0)
    }

    /// Key of a group's allocation bitmap.
    pub fn group(index: u64) -> Key {
        Key::new(InodeNumber::SYSTEM, Kind::Group, index)
    }

    /// Key of the shared-extent count of the block at `address`.
    pub fn shared_extent(address: BlockAddress) -> Key {
        Key::new(InodeNumber::SYSTEM, Kind::SharedExtent, address.0)
    }

    /// Key of the snapshot of `generation`.
    pub fn snapshot(generation: Generation) -> Key {
        Key::new(InodeNumber::SYSTEM, Kind::Snapshot, generation.0)
    }

    /// First and last possible key of the dead list of the snapshot of `generation`.
    pub fn dead_list_range(generation: Generation) -> (Key, Key) {
        let first = generation.0 << DEAD_SEQUENCE_BITS;
        let last = first | ((1 << DEAD_SEQUENCE_BITS) - 1);
        (
            Key::new(InodeNumber::SYSTEM, Kind::DeadList, first),
            Key::new(InodeNumber::SYSTEM, Kind::DeadList, last),
        )
    }

    /// The snapshot's generation in the key of a dead list.
    pub fn dead_list_generation(&self) -> Generation {
        Generation(self.suffix() >> DEAD_SEQUENCE_BITS)
    }

    /// First and last possible key of one kind of one inode.
    pub fn kind_range(inode: InodeNumber, kind: Kind) -> (Key, Key) {
        (Key::new(inode, kind, 0), Key::new(inode, kind, u64::MAX))
    }

    /// The inode part.
    #[inline]
    pub fn inode_number(&self) -> InodeNumber {
        InodeNumber(u64::from_be_bytes(self.0[..8].try_into().unwrap_or_default()))
    }

    /// The kind part; `None` for a number that this version does not know.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.0[8])
    }

    /// The suffix part.
    #[inline]
    pub fn suffix(&self) -> u64 {
        u64::from_be_bytes(self.0[9..].try_into().unwrap_or_default())
    }

    /// The next smaller key; `None` before [`Key::MIN`].
    pub fn predecessor(&self) -> Option<Key> {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            let (next, borrow) = byte.overflowing_sub(1);
            *byte = next;
            if !borrow {
                return Some(Key(bytes));
            }
        }
        None
    }

    /// The next larger key; `None` after [`Key::MAX`].
    #[inline]
    pub fn successor(&self) -> Option<Key> {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            let (next, carry) = byte.overflowing_add(1);
            *byte = next;
            if !carry {
                return Some(Key(bytes));
            }
        }
        None
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.kind() {
            Some(kind) => write!(f, "{}/{kind:?}/{:#x}", self.inode_number().0, self.suffix()),
            None => write!(f, "{}/{}?/{:#x}", self.inode_number().0, self.0[8], self.suffix()),
        }
    }
}
