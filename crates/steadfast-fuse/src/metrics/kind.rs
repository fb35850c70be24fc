//! The kinds of operations that the metrics distinguish.

use crate::abi::opcode;
use crate::ioctl;
use crate::request::Request;

/// A kind of operation. The numbers are part of the interface of [`crate::watch::OPERATIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Name lookup.
    Lookup = 0,
    /// Reading attributes.
    Getattr = 1,
    /// Changing attributes, truncating.
    Setattr = 2,
    /// Listing a directory.
    Readdir = 3,
    /// Opening a file.
    Open = 4,
    /// Creating a file, directory, symbolic link, device or hard link.
    Create = 5,
    /// Removing a name.
    Remove = 6,
    /// Renaming.
    Rename = 7,
    /// Reading data.
    Read = 8,
    /// Writing data, and the kernel writing back dirty pages.
    Write = 9,
    /// fallocate, copy_file_range, and seeking data and holes.
    Allocate = 10,
    /// Closing a file: the part that close(2) waits for.
    Close = 11,
    /// fsync, fdatasync, syncfs.
    Sync = 12,
    /// Extended attributes and ACLs.
    Xattr = 13,
    /// Commands: transact, checkpoint, rollback, mask.
    Command = 14,
    /// Everything else.
    Other = 15,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 16;

    /// All kinds, by number.
    pub const ALL: [Kind; Kind::COUNT] = [
        Kind::Lookup,
        Kind::Getattr,
        Kind::Setattr,
        Kind::Readdir,
        Kind::Open,
        Kind::Create,
        Kind::Remove,
        Kind::Rename,
        Kind::Read,
        Kind::Write,
        Kind::Allocate,
        Kind::Close,
        Kind::Sync,
        Kind::Xattr,
        Kind::Command,
        Kind::Other,
    ];

    /// The name for output and labels: one lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lookup => "lookup",
            Kind::Getattr => "getattr",
            Kind::Setattr => "setattr",
            Kind::Readdir => "readdir",
            Kind::Open => "open",
            Kind::Create => "create",
            Kind::Remove => "remove",
            Kind::Rename => "rename",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Allocate => "allocate",
            Kind::Close => "close",
            Kind::Sync => "sync",
            Kind::Xattr => "xattr",
            Kind::Command => "command",
            Kind::Other => "other",
        }
    }

    /// The kind of a request. `None` for requests without a waiting caller, and for requests of the
    /// counters, which would otherwise count themselves.
    pub(crate) fn of(request: &Request<'_>) -> Option<Kind> {
        Some(match request.header.opcode {
            opcode::FORGET
            | opcode::BATCH_FORGET
            | opcode::RELEASE
            | opcode::RELEASEDIR
            | opcode::DESTROY => {
                return None;
            }
            opcode::LOOKUP => Kind::Lookup,
            opcode::GETATTR | opcode::STATX => Kind::Getattr,
            opcode::SETATTR => Kind::Setattr,
            opcode::READDIR | opcode::READDIRPLUS => Kind::Readdir,
            opcode::OPEN => Kind::Open,
            opcode::CREATE
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::SYMLINK
            | opcode::LINK
            | opcode::TMPFILE => Kind::Create,
            opcode::UNLINK | opcode::RMDIR => Kind::Remove,
            opcode::RENAME | opcode::RENAME2 => Kind::Rename,
            opcode::READ => Kind::Read,
            opcode::WRITE => Kind::Write,
            opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64 => Kind::Allocate,
            opcode::FLUSH => Kind::Close,
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Kind::Sync,
            opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
                Kind::Xattr
            }
            opcode::IOCTL if ioctl::only_looks(request) => return None,
            opcode::IOCTL => Kind::Command,
            _ => Kind::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            let same = Kind::ALL.into_iter().filter(|other| other.name() == kind.name()).count();
            assert_eq!(same, 1, "{}", kind.name());
        }
    }
}
