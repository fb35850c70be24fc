//! Flags that users give files and directories (chattr), and the rules of the flags that protect
//! them: what an operation may not do to an inode, or to the names in a directory.
//!
//! A write to an inode is not refused: a kernel writes pages back that a program has changed
//! earlier. The flags count where a file is opened.

use crate::error::{Error, Result};
use crate::format::inode::{FILE_FLAGS, FILE_FLAGS_SHIFT, FileKind, Inode};

/// Flags of a file or directory, with the numbers of FS_IOC_GETFLAGS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct FileFlags(pub u32);

impl FileFlags {
    /// No flag.
    pub const NONE: FileFlags = FileFlags(0);
    /// Content, names and most attributes cannot change.
    pub const IMMUTABLE: FileFlags = FileFlags(0x10);
    /// A file can only become longer, and a directory can only get further names.
    pub const APPEND_ONLY: FileFlags = FileFlags(0x20);
    /// Programs that make backups leave the file out. The file system only keeps the flag.
    pub const NO_DUMP: FileFlags = FileFlags(0x40);
    /// Reading does not change the access time.
    pub const NO_ACCESS_TIME: FileFlags = FileFlags(0x80);
    /// All flags that exist.
    pub const ALL: FileFlags = FileFlags(0xf0);
    /// The flags that protect an inode. Only a caller with a right of its own may change them
    /// (CAP_LINUX_IMMUTABLE).
    pub const PROTECTING: FileFlags = FileFlags(0x30);

    /// Whether one of the flags in `other` is set.
    pub const fn intersects(self, other: FileFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a file with these flags may be opened: for writing (`writes`), with O_APPEND
    /// (`appends`), with O_TRUNC (`truncates`).
    ///
    /// # Errors
    /// `NotPermitted`.
    pub fn check_open(self, writes: bool, appends: bool, truncates: bool) -> Result<()> {
        let changes = writes || truncates;
        let not_at_end = truncates || writes && !appends;
        refuse(
            changes && self.intersects(FileFlags::IMMUTABLE)
                || not_at_end && self.intersects(FileFlags::APPEND_ONLY),
        )
    }

    /// Whether the directory may get a name.
    pub(super) fn check_add(self) -> Result<()> {
        refuse(self.intersects(FileFlags::IMMUTABLE))
    }

    /// Whether the directory may lose a name, or the inode one of its names. Bytes that the file
    /// has, and its extended attributes, need the same.
    pub(super) fn check_change(self) -> Result<()> {
        refuse(self.intersects(FileFlags::PROTECTING))
    }

    /// Whether the directory may change as a rename does: a name is added, or (`replaces`) becomes
    /// that of another inode.
    pub(super) fn check_target(self, replaces: bool) -> Result<()> {
        if replaces { self.check_change() } else { self.check_add() }
    }

    /// Whether the attributes may change: by a write at this moment (`now`), or otherwise
    /// (`other`). The size is an attribute, because bytes come and go with it.
    pub(super) fn check_attributes(self, now: bool, other: bool) -> Result<()> {
        refuse(
            now && self.intersects(FileFlags::IMMUTABLE)
                || other && self.intersects(FileFlags::PROTECTING),
        )
    }
}

fn refuse(refused: bool) -> Result<()> {
    if refused { Err(Error::NotPermitted) } else { Ok(()) }
}

impl Inode {
    /// The flags of a file or directory. Only damage gives them to another kind of inode, and there
    /// they do not count: they could not be cleared.
    pub fn file_flags(&self) -> FileFlags {
        match self.kind {
            FileKind::Regular | FileKind::Directory => {
                FileFlags((self.flags & FILE_FLAGS) >> FILE_FLAGS_SHIFT)
            }
            _ => FileFlags::NONE,
        }
    }
}
