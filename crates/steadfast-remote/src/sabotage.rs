//! Bugs planted on purpose, to check that the tests would find them.
//!
//! Each is one condition at the place where the mistake would be made. Without the feature
//! `sabotage`, which only the tests of this crate switch on, [`planted`] is `false` for the
//! compiler and nothing of this is in a program.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Without the feature nobody makes one.
pub enum Sabotage {
    /// A server hands memory out with what somebody else had in it.
    ShowOldGranules,
    /// Segments are marked though what makes them unneeded is not flushed.
    MarkBeforeFlush,
    /// A block is put right where it was, though something else may be there by now.
    RepairWhereItWas,
    /// What waited of a block that was written over in one piece is kept in memory for it.
    HoldOlder,
    /// A stripe of homes is overwritten though some of its blocks are nowhere else.
    HomeBeforeComplete,
    /// Segments are marked before older ones, though blocks are at home.
    MarkYounger,
    /// A stripe of homes is overwritten though its checksums are not flushed.
    HomeBeforeSums,
    /// Segments of checksums are marked as soon as what was needed of them is packed, and not
    /// flushed.
    PackedIsFlushed,
    /// A write to a home that was not answered is made again, and the member stays.
    HomeWrittenTwice,
    /// Each fourth mark does not arrive, and the others do not stand for it, which must do no harm
    /// where blocks have homes.
    MarksLost,
    /// The same, and what the log has of a block counts, however old it is.
    OldRecordCounts,
    /// Checksums say where groups are before what is there is flushed.
    CommitBeforeFlush,
    /// A place is written again as soon as its group is elsewhere, though the servers do not know
    /// that.
    LeftIsFree,
    /// Segments are marked though what makes them unneeded is a group that is not committed.
    MarkUncommitted,
    /// A place is used again though somebody has not answered what was written there.
    SpoiledIsFree,
    /// What nobody has answered is taken for gone.
    UnansweredIsGone,
    /// Nobody waits for what a dead client has sent.
    LateIgnored,
    /// Who opens a closed array does not say so before he writes.
    ClosedStands,
}

#[cfg(not(feature = "sabotage"))]
pub(crate) const fn planted(_: Sabotage) -> bool {
    false
}

#[cfg(feature = "sabotage")]
mod switch {
    use std::cell::Cell;

    use super::Sabotage;

    thread_local! {
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
