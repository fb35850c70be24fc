//! Bugs planted on purpose, to check that the tests would find them.
//!
//! Each is one condition at the place where the mistake would be made. Without the feature
//! `sabotage`, which only the lab's own tests switch on, [`planted`] is `false` for the compiler
//! and nothing of this is in a program.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Without the feature nobody makes one.
pub enum Sabotage {
    /// A checkpoint writes its metaroot before its nodes are durable.
    SkipFlushBeforeMetaroot,
    /// A checkpoint writes its metaroot with its first nodes instead of behind the last.
    MetarootBeforeLastStep,
    /// A checkpoint is acknowledged before its metaroot is durable.
    SkipFlushAfterMetaroot,
    /// Both copies of a metaroot are in flight at once.
    BothMetarootsAtOnce,
    /// Every metaroot goes to the same slot.
    OneMetarootSlot,
    /// A transaction point is acknowledged before its record is durable.
    SkipFlushOfMark,
    /// Data that replay will not check is not flushed before the record that names it.
    SkipFlushOfData,
    /// Freed blocks are used again before the next checkpoint is durable.
    ReuseFreedBlocks,
    /// A block that waits to be discarded is discarded though it has been given out again.
    DiscardGivenOut,
    /// What a transaction freed is discarded before the log mark that says so is durable.
    DiscardBeforeMark,
    /// A record that does not match its digest counts.
    AcceptTornRecord,
    /// A record counts although the data that was in flight with it is not there.
    AcceptRecordWithoutData,
    /// A record counts wherever it says that it belongs.
    IgnoreChain,
    /// The chain of digests does not move on with a record.
    KeepChainDigest,
    /// What a record that did not count has left is not erased.
    KeepUnfinishedRecord,
    /// A record is written over the one before it in its group instead of the one before that.
    OverwriteNewestRecord,
    /// A record of a group lacks what the records before it in the group have.
    ForgetSettled,
    /// Readers look past the log until it is replayed.
    ReadPastTheLog,
    /// The first record is applied again behind the last.
    ReplayTwice,
    /// A node is changed where it is instead of being copied.
    ChangeCommittedNode,
    /// Nodes are not compared with their checksums.
    IgnoreNodeChecksum,
    /// Data is not compared with its checksums when it is read.
    IgnoreDataChecksum,
    /// Changed bitmaps are not written.
    ForgetBitmap,
    /// Removed files leave no orphan record.
    ForgetOrphan,
    /// What was looked up of an inode lately is still believed after it has changed.
    KeepOldAttributes,
    /// What was looked up of a name lately is still believed after it has changed.
    KeepOldNames,
    /// What was looked up of names and inodes is still believed after a rollback.
    KeepNamesOfRolledBack,
    /// A change of the content does not set the modification time.
    LoseModificationTime,
    /// A rename over a file is two transactions.
    RenameInTwo,
    /// Blocks that a snapshot holds are freed when the live tree lets them go, if they are just as
    /// old as it is.
    SnapshotBirthOffByOne,
    /// What a snapshot holds is freed when the live tree lets it go, instead of going to the dead
    /// list.
    ForgetHeld,
    /// Deleting a snapshot frees blocks that are just as old as the snapshot before it, which holds
    /// them.
    DeleteBirthOffByOne,
    /// Blocks that several files share are counted once more than there are files.
    SharedCountOffByOne,
    /// Going back to a snapshot does not say of older ones, deleted since, that they are gone.
    ForgetDeletedSnapshots,
    /// Events of the mask set transaction points in the middle of an atomic command.
    IgnoreHold,
    /// A new volume erases the first block of its log and begins with the first LSN, whatever an
    /// earlier volume has left.
    FormatKeepsRecords,
    /// A write that finds no space after it has reserved some keeps what it has.
    KeepReserved,
    /// An operation without space sets a transaction point whenever something was freed, whether it
    /// then fits or not.
    PointsInVain,
    /// A writer does not look whether there is another one.
    TrustToBeAlone,
    /// A volume that grows has its new size before the copies at its new end are there.
    GrowBeforeCopies,
    /// A transaction point counts for what was accepted while its record was on the way.
    CountLatecomers,
    /// An atomic command begins only after the transaction point before it.
    HoldBehindPoint,
    /// A transaction point does not see that only the mask or the timer has changed.
    ForgetParameters,
    /// An O_SYNC write is a transaction point only where fsync is one, too.
    SyncWriteNeedsFsync,
    /// A clone does not take over that the last block of its source has stale bytes.
    CloneForgetsStaleTail,
    /// A hole that ends just before the last byte of a file takes that byte along.
    HoleTakesLastByte,
    /// The end of a truncation removes the orphan record of a file without links, too.
    TruncationEndsOrphan,
    /// A file that gets its first name while it is truncated loses its orphan record.
    NameEndsTruncation,
    /// Freed blocks are used again though a reader is in the middle of them.
    ReusePinned,
    /// When the newest snapshot is deleted one that is being deleted counts as the newest.
    NewestIsDeleting,
}

#[cfg(not(feature = "sabotage"))]
pub(crate) const fn planted(_: Sabotage) -> bool {
    false
}

#[cfg(feature = "sabotage")]
mod switch {
    extern crate std;

    use core::cell::Cell;

    use super::Sabotage;

    std::thread_local! {
        static PLANTED: Cell<Option<Sabotage>> = const { Cell::new(None) };
    }

    /// Plants a bug in whatever this thread does from now on, or digs it out again.
    pub fn plant(bug: Option<Sabotage>) {
        PLANTED.set(bug);
    }

    pub(crate) fn planted(bug: Sabotage) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "sabotage")]
pub use switch::plant;
#[cfg(feature = "sabotage")]
pub(crate) use switch::planted;
