//! Bugs planted on purpose, to check that the tests find them.
//!
//! Each is one condition at the place of the mistake. Only the lab's own tests enable the feature
//! `sabotage`. Without it [`planted`] is a constant `false` for the compiler, and no program
//! contains any of this.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Without the feature no code makes one.
pub enum Sabotage {
    /// A checkpoint writes its metaroot before its nodes are durable.
    SkipFlushBeforeMetaroot,
    /// A checkpoint writes its metaroot with its first nodes instead of after the last.
    MetarootBeforeLastStep,
    /// A checkpoint is acknowledged before its metaroot is durable.
    SkipFlushAfterMetaroot,
    /// Both copies of a metaroot are in flight at once.
    BothMetarootsAtOnce,
    /// Every metaroot goes to the same slot.
    OneMetarootSlot,
    /// A transaction point is acknowledged before its record is durable.
    SkipFlushOfCommit,
    /// Data that replay will not check is not flushed before the record that names it.
    SkipFlushOfData,
    /// Freed blocks are reused before the next checkpoint is durable.
    ReuseFreedBlocks,
    /// A block that waits to be discarded is discarded although it has been allocated again.
    DiscardGivenOut,
    /// A trim discards blocks that only the last checkpointed state uses.
    TrimDurable,
    /// Data that a transaction freed is discarded before its commit record is durable.
    DiscardBeforeCommit,
    /// A record that does not match its digest counts.
    AcceptTornRecord,
    /// A record counts although the data that was in flight with it is not there.
    AcceptRecordWithoutData,
    /// A record counts wherever it claims to belong.
    IgnoreChain,
    /// The chain of digests does not advance with a record.
    KeepChainDigest,
    /// The remains of a record that did not count are not erased.
    KeepUnfinishedRecord,
    /// A record overwrites the previous record of its group instead of the one before that.
    OverwriteNewestRecord,
    /// A record of a group lacks the mutations of the earlier records of the group.
    ForgetSettled,
    /// The packed form of a value in a group does not change with the value that it is packed
    /// against.
    PackAgainstOldValue,
    /// Readers ignore the log until it is replayed.
    ReadPastTheLog,
    /// A replay takes free blocks that the log names for its nodes.
    ReplayOverLog,
    /// The first record is applied again after the last.
    ReplayTwice,
    /// A node is changed in place instead of being copied.
    ChangeCommittedNode,
    /// The branch above a node that was copied without a plan leads to the old node.
    LeadToOldNode,
    /// Nodes are not compared with their checksums.
    IgnoreNodeChecksum,
    /// Data is not compared with its checksums when it is read.
    IgnoreDataChecksum,
    /// Changed bitmaps are not written.
    ForgetBitmap,
    /// Removed files leave no orphan record.
    ForgetOrphan,
    /// The cached attributes of an inode stay in use after they have changed.
    KeepOldAttributes,
    /// The cached entry of a name stays in use after it has changed.
    KeepOldNames,
    /// Cached names and inodes stay in use after a rollback.
    KeepNamesOfRolledBack,
    /// A change of the content does not set the modification time.
    LoseModificationTime,
    /// A rename over a file is two transactions.
    RenameInTwo,
    /// Blocks that a snapshot holds are freed when the live tree releases them, if their birth
    /// equals the snapshot's generation.
    SnapshotBirthOffByOne,
    /// Blocks that a snapshot holds are freed when the live tree releases them, instead of going to
    /// the dead list.
    ForgetHeld,
    /// Deleting a snapshot frees blocks whose birth equals the generation of the previous snapshot,
    /// which holds them.
    DeleteBirthOffByOne,
    /// Blocks that several files share are counted once too often.
    SharedCountOffByOne,
    /// Returning to a snapshot does not flag older snapshots that were deleted since.
    ForgetDeletedSnapshots,
    /// Events of the mask set transaction points in the middle of an atomic command.
    IgnoreHold,
    /// A new volume erases the first block of its log and begins with the first LSN, whatever an
    /// earlier volume has left.
    FormatKeepsRecords,
    /// A write that finds no space keeps the blocks that it has allocated.
    KeepUnpublished,
    /// An operation without space sets a transaction point whenever blocks were freed, whether it
    /// then fits or not.
    PointsInVain,
    /// A writer does not check for another writer.
    TrustToBeAlone,
    /// A writer of a shared volume relies on a check for a second.
    TrustForASecond,
    /// A volume that grows gets its new size before the copies at its new end are written.
    GrowBeforeCopies,
    /// A transaction point counts for changes accepted while its record was being written.
    CountLatecomers,
    /// An atomic command begins only after the transaction point before it, and a caller that
    /// waited for that point takes its change for durable.
    HoldAfterPoint,
    /// A transaction point does not notice that only the mask or the timer has changed.
    ForgetParameters,
    /// An O_SYNC write is a transaction point only if fsync is one too.
    SyncWriteNeedsFsync,
    /// A clone does not copy the flag that the last block of its source has stale bytes.
    CloneForgetsStaleTail,
    /// A write into the last block of a file keeps the stale bytes past the end of the file.
    KeepPastEnd,
    /// A write takes the block that the last write to its file has left, even if it has changed.
    TrustKeptBlock,
    /// A hole that ends just before the last byte of a file includes that byte.
    HoleTakesLastByte,
    /// The end of a truncation also removes the orphan record of a file without links.
    TruncationEndsOrphan,
    /// A file that gets its first name while it is truncated loses its orphan record.
    NameEndsTruncation,
    /// Freed blocks are reused while a reader is reading them.
    ReusePinned,
    /// A change that moves nodes keeps the fingers of look-ups.
    KeepFingers,
    /// A change inside a leaf does not look whether the leaf was sealed to be written.
    ChangeSealedLeaf,
    /// A change inside a leaf does not look whether there is room for it.
    OverfillLeaf,
    /// What removes an extent after a hole names the key where the hole begins.
    RemoveAtHole,
    /// A delta lacks the first batch after the last one.
    DeltaSkipsBatch,
    /// Blocks that a delta names count as named by nothing.
    ReuseBlocksOfDelta,
    /// A node never forgets a delta.
    KeepOldDeltas,
    /// A change counts as durable for deltas as soon as its record is sealed.
    ForgetDeltasEarly,
    /// Deltas count although the medium has a newer state.
    TakeOldDeltas,
    /// A replay takes blocks that only the deltas name for its nodes.
    ReplayOverDeltas,
    /// Deltas of changes that a rollback has dropped still count.
    DeltasOutliveRollback,
    /// When the newest snapshot is deleted, a snapshot that is being deleted counts as the newest.
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

    /// Plants a bug in everything that this thread does from now on, or removes it again.
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
