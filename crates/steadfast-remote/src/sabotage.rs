//! Bugs planted on purpose, to check that the tests find them.
//!
//! Each is one condition at the place of the mistake. Only the tests of this crate enable the
//! feature `sabotage`. Without it, [`planted`] is a constant `false`, and the bugs are not
//! compiled.

/// A bug that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Never constructed without the feature.
pub enum Sabotage {
    /// A server lends memory that still holds another client's bytes.
    ShowOldGranules,
    /// Segments are marked before the newer versions of their blocks are flushed.
    MarkBeforeFlush,
    /// A block is repaired at its old place, which may already hold another block.
    RepairWhereItWas,
    /// A direct write leaves the older waiting version of a block in memory.
    HoldOlder,
    /// No client waits for late requests of a dead client.
    LateIgnored,
    /// A client that opens a closed array does not record that before its first write.
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

    /// Plants a bug for the operations of this thread, or removes it.
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
