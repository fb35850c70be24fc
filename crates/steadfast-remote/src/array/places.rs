//! Places without a group of homes.

use std::collections::BTreeSet;

use super::shape::Shape;

/// Places without a group.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(super) free: BTreeSet<u32>,
    /// The place that was taken last. Places are taken in turn, so that data written together lies
    /// together.
    cursor: u32,
    /// Places that groups have left since the last commit.
    pub(super) left: Vec<u32>,
    /// Checksum blocks that must record the new places of groups.
    pub(super) uncommitted: BTreeSet<u32>,
}

impl Places {
    /// The places of a new array.
    pub(crate) fn new(shape: &Shape) -> Places {
        Places { free: (shape.groups()..shape.places()).collect(), ..Places::default() }
    }

    /// Starts with these free places.
    pub(crate) fn begin(&mut self, free: BTreeSet<u32>) {
        *self = Places { free, ..Places::default() };
    }

    /// Whether the servers have the places of all groups.
    pub(crate) fn are_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<u32> {
        let behind = self.free.range(self.cursor.saturating_add(1)..);
        let taken: Vec<u32> =
            behind.chain(self.free.range(..=self.cursor)).take(count).copied().collect();
        taken.iter().for_each(|place| _ = self.free.remove(place));
        self.cursor = taken.last().copied().unwrap_or(self.cursor);
        taken
    }
}
