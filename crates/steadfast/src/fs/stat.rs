//! Attributes of an inode, and the parameters of operations.

use alloc::vec::Vec;

use crate::error::Result;
use crate::format::inode::FileKind;
use crate::fs::flags::FileFlags;
use crate::types::{InodeNumber, Timestamp};

/// Attributes of an inode, as `stat` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub inode: InodeNumber,
    /// Type.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky (the low 12 bits of `st_mode`).
    pub permissions: u32,
    /// Hard links (for a directory: 2 + subdirectories).
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding.
    pub device: u32,
    /// Bytes (regular file, symbolic link) or number of entries (directory).
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocated: u64,
    /// The file was truncated, and `allocated` still falls while background work frees the blocks.
    pub shrinking: bool,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
    /// Flags that users set.
    pub flags: FileFlags,
}

impl Attributes {
    /// The whole `st_mode`.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }
}

/// The caller that a new inode is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Owner of the new inode.
    pub uid: u32,
    /// Group of the new inode, unless the directory has set-group-id.
    pub gid: u32,
    /// File mode creation mask; a default ACL of the directory replaces it.
    pub umask: u32,
}

/// A new inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to the given bytes.
    Symlink(&'a [u8]),
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device with this number.
    CharDevice(u32),
    /// A block device with this number.
    BlockDevice(u32),
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The platform's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change; a field that is `None` keeps its value. The change time is always set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits (low 12 bits).
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file: a smaller size truncates, a larger one leaves a hole.
    pub size: Option<u64>,
    /// Access time.
    pub accessed: Option<SetTime>,
    /// Modification time.
    pub modified: Option<SetTime>,
    /// Change time, for a caller that keeps times itself (a kernel's write-back cache).
    pub changed: Option<Timestamp>,
    /// Clear set-user-id, and set-group-id of a group-executable file, as a write by an
    /// unprivileged user does.
    pub drop_privileges: bool,
    /// The flags of the inode refuse nothing: a kernel has checked them, or stores times that it
    /// keeps itself.
    pub unchecked: bool,
}

impl SetAttributes {
    /// Whether an inode with these flags may change so. A time that a program names is refused where
    /// "now" is not, which any write sets.
    pub(super) fn check(&self, flags: FileFlags) -> Result<()> {
        if self.unchecked {
            return Ok(());
        }
        let named = |time| matches!(time, Some(SetTime::At(_)));
        let now = self.accessed.is_some() || self.modified.is_some();
        let other = self.permissions.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.size.is_some()
            || named(self.accessed)
            || named(self.modified);
        flags.check_attributes(now, other)
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// The inode it names.
    pub inode: InodeNumber,
    /// Its type.
    pub kind: FileKind,
    /// Pass this to `read_directory` to continue after this entry. It stays valid whatever else
    /// changes. At least 3, below 2^63.
    pub cookie: u64,
}

/// How `rename` treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Fail with `AlreadyExists` (RENAME_NOREPLACE).
    NoReplace,
    /// Both exist and are swapped (RENAME_EXCHANGE).
    Exchange,
    /// Replace it, or fail as `NoReplace` does, and leave a *whiteout* under the old name: a
    /// character device with the number 0. It tells overlay file systems that a name of a lower
    /// layer is removed (RENAME_WHITEOUT).
    Whiteout {
        /// Owner of the whiteout.
        caller: Caller,
        /// Whether an existing target is replaced.
        replace: bool,
    },
}

impl RenameMode {
    /// Whether an existing target is removed.
    pub fn replaces(self) -> bool {
        matches!(self, RenameMode::Replace | RenameMode::Whiteout { replace: true, .. })
    }
}

/// The mode of `allocate` (the modes of fallocate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Allocate blocks for holes in the range; `keep_size` leaves the size unchanged.
    Allocate {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Make the range a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros, allocated; `keep_size` leaves the size unchanged.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
}

/// What `seek` searches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// The first byte of data at or after the offset (SEEK_DATA).
    Data,
    /// The first hole at or after the offset; the end of the file counts as a hole (SEEK_HOLE).
    Hole,
}

/// How `set_xattr` treats an existing attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetXattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// Fail with `AlreadyExists` if it exists (XATTR_CREATE).
    Create,
    /// Fail with `NoAttribute` if it does not exist (XATTR_REPLACE).
    Replace,
}
