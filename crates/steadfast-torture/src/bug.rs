//! Bugs that are planted in front of a volume, by [`Sabotaged`](crate::sabotage::Sabotaged).

/// A bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bug {
    /// None.
    #[default]
    None,
    /// `transact` returns success without doing anything.
    TransactDoesNothing,
    /// A rename over an existing file commits between its two halves.
    RenameInTwoTransactions,
    /// An unrequested transaction point follows every unlink.
    UnlinkCommits,
    /// The last byte of a long write is lost.
    WriteLosesLastByte,
    /// Truncating keeps the bytes after the new end, which reappear when the file grows.
    TruncateKeepsBytes,
    /// A new link does not update the change time of the inode.
    LinkForgetsTime,
    /// Rollback returns success without doing anything.
    RollbackDoesNothing,
    /// An operation that fails leaves something behind.
    FailedCreateLeavesXattr,
    /// A hole that ends just before the last byte of a file also removes that byte.
    HoleTakesLastByte,
    /// A changed timer is effective until the volume is reopened, but is never stored.
    TimerIsNotStored,
    /// An O_SYNC write sets a transaction point only if fsync does.
    SyncWriteNeedsFsync,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Bug; 11] = [
        Bug::TransactDoesNothing,
        Bug::RenameInTwoTransactions,
        Bug::UnlinkCommits,
        Bug::WriteLosesLastByte,
        Bug::TruncateKeepsBytes,
        Bug::LinkForgetsTime,
        Bug::RollbackDoesNothing,
        Bug::FailedCreateLeavesXattr,
        Bug::HoleTakesLastByte,
        Bug::TimerIsNotStored,
        Bug::SyncWriteNeedsFsync,
    ];
}
