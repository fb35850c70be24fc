//! Dead blocks that a freeze will put into the newest snapshot's dead list.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::format::DeadEntry;
use crate::memory;
use crate::types::{BlockRun, Generation};

/// Entries of the newest snapshot's dead list that are not in the tree yet.
#[derive(Debug, Default)]
pub(crate) struct PendingDead {
    /// Sorted by first block.
    runs: Vec<DeadEntry>,
}

impl PendingDead {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Makes room for `count` more, which then need no memory.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        self.runs.try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// Adds a run, which is in no dead list.
    pub fn add(&mut self, run: BlockRun, birth: Generation) {
        let at = self.runs.partition_point(|entry| entry.run.start < run.start);
        let joins = |first: &DeadEntry, second: &DeadEntry| {
            first.run.end() == second.run.start.0
                && first.birth == second.birth
                && first.run.count + second.run.count <= u64::from(u32::MAX)
        };
        let new = DeadEntry { run, birth };
        let before = at.checked_sub(1).filter(|before| joins(&self.runs[*before], &new));
        let Some(before) = before else {
            match self.runs.get_mut(at).filter(|next| joins(&new, next)) {
                Some(next) => {
                    next.run = BlockRun { start: run.start, count: run.count + next.run.count }
                }
                None => self.runs.insert(at, new),
            }
            return;
        };
        self.runs[before].run.count += run.count;
        if self.runs.get(at).is_some_and(|next| joins(&self.runs[before], next)) {
            let next = self.runs.remove(at);
            self.runs[before].run.count += next.run.count;
        }
    }

    /// The first `limit` entries.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn first(&self, limit: usize) -> Result<Vec<DeadEntry>> {
        memory::copy(&self.runs[..limit.min(self.runs.len())])
    }

    /// Removes entries that [`first`](Self::first) returned.
    pub fn remove(&mut self, entries: &[DeadEntry]) {
        self.runs.retain(|entry| {
            entries.binary_search_by_key(&entry.run.start, |gone| gone.run.start).is_err()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::BlockAddress;

    fn entry(start: u64, count: u64, birth: u64) -> DeadEntry {
        DeadEntry { run: BlockRun { start: BlockAddress(start), count }, birth: Generation(birth) }
    }

    #[test]
    fn neighbours_of_one_birth_are_one_entry() {
        let mut pending_dead = PendingDead::default();
        for (start, count, birth) in [(10, 2, 1), (14, 2, 1), (16, 1, 2), (12, 2, 1), (9, 1, 1)] {
            pending_dead.add(entry(start, count, birth).run, Generation(birth));
        }
        assert_eq!(pending_dead.first(9).unwrap(), [entry(9, 7, 1), entry(16, 1, 2)]);
        pending_dead.remove(&pending_dead.first(1).unwrap());
        assert_eq!(pending_dead.first(9).unwrap(), [entry(16, 1, 2)]);
        pending_dead.add(entry(17, u64::from(u32::MAX), 2).run, Generation(2));
        assert_eq!(pending_dead.len(), 2, "a count has 32 bits");
    }
}
