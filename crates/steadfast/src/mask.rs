//! The transaction mask: which events set a transaction point.

/// A set of events. Each event makes everything accepted so far durable before it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionMask(pub u32);

impl TransactionMask {
    /// No automatic transaction points at all: only `transact` sets them.
    pub const MANUAL: TransactionMask = TransactionMask(0);
    /// At a regular interval while there is something to commit.
    pub const TIMER: TransactionMask = TransactionMask(1 << 0);
    /// A file, FIFO, socket or device node was created.
    pub const CREATE: TransactionMask = TransactionMask(1 << 1);
    /// A name was removed.
    pub const UNLINK: TransactionMask = TransactionMask(1 << 2);
    /// A directory was made.
    pub const MKDIR: TransactionMask = TransactionMask(1 << 3);
    /// A directory was removed.
    pub const RMDIR: TransactionMask = TransactionMask(1 << 4);
    /// A name was changed.
    pub const RENAME: TransactionMask = TransactionMask(1 << 5);
    /// A hard link was made.
    pub const LINK: TransactionMask = TransactionMask(1 << 6);
    /// A symbolic link was made.
    pub const SYMLINK: TransactionMask = TransactionMask(1 << 7);
    /// Mode, owner, times, extended attributes or ACLs changed.
    pub const ATTRIBUTE: TransactionMask = TransactionMask(1 << 8);
    /// A file's size was set or its allocation changed (truncate, fallocate).
    pub const TRUNCATE: TransactionMask = TransactionMask(1 << 9);
    /// Data was written.
    pub const WRITE: TransactionMask = TransactionMask(1 << 10);
    /// Data was written through a descriptor with O_SYNC or O_DSYNC.
    pub const SYNC_WRITE: TransactionMask = TransactionMask(1 << 11);
    /// A file that was open for writing was closed.
    pub const CLOSE: TransactionMask = TransactionMask(1 << 12);
    /// fsync or fdatasync.
    pub const FSYNC: TransactionMask = TransactionMask(1 << 13);
    /// sync or syncfs.
    pub const SYNC: TransactionMask = TransactionMask(1 << 14);
    /// The volume is unmounted.
    pub const UNMOUNT: TransactionMask = TransactionMask(1 << 15);
    /// Space ran out, and a commit would free some.
    pub const VOLUME_FULL: TransactionMask = TransactionMask(1 << 16);

    /// The mask of a new volume: timer, O_SYNC write, fsync, sync, unmount and volume full, as
    /// users of other file systems expect.
    pub const DEFAULT: TransactionMask = TransactionMask(
        Self::TIMER.0
            | Self::SYNC_WRITE.0
            | Self::FSYNC.0
            | Self::SYNC.0
            | Self::UNMOUNT.0
            | Self::VOLUME_FULL.0,
    );

    /// Every event and its name, in the order of the bits.
    pub const NAMES: [(&'static str, TransactionMask); 17] = [
        ("timer", Self::TIMER),
        ("create", Self::CREATE),
        ("unlink", Self::UNLINK),
        ("mkdir", Self::MKDIR),
        ("rmdir", Self::RMDIR),
        ("rename", Self::RENAME),
        ("link", Self::LINK),
        ("symlink", Self::SYMLINK),
        ("attribute", Self::ATTRIBUTE),
        ("truncate", Self::TRUNCATE),
        ("write", Self::WRITE),
        ("sync-write", Self::SYNC_WRITE),
        ("close", Self::CLOSE),
        ("fsync", Self::FSYNC),
        ("sync", Self::SYNC),
        ("unmount", Self::UNMOUNT),
        ("volume-full", Self::VOLUME_FULL),
    ];

    /// Every event.
    pub const ALL: TransactionMask = TransactionMask((1 << 17) - 1);

    /// Whether all events of `other` are in this mask.
    pub const fn contains(self, other: TransactionMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of events.
    pub const fn union(self, other: TransactionMask) -> TransactionMask {
        TransactionMask(self.0 | other.0)
    }

    /// The event with this name.
    pub fn from_name(name: &str) -> Option<TransactionMask> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, mask)| *mask)
    }
}
