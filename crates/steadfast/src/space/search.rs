//! Searching for free blocks: from a goal on, skipping groups that are known to be full, for a run
//! that is long enough.

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::space::{Roots, Space};
use crate::tree::Store;
use crate::types::{BlockAddress, BlockRun};

/// Groups that are searched for a run of the desired length before a shorter one is taken.
const GROUPS_FOR_LENGTH: usize = 8;
/// A run of this length is taken at once.
const RUN_GOOD: u64 = 32;

/// What an allocation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Data,
    Node,
}

impl Space {
    /// Allocates a run of up to `want` blocks for data, near `goal`.
    pub fn allocate_data<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        want: u64,
        goal: Option<BlockAddress>,
    ) -> Result<BlockRun> {
        let from = goal.map_or(self.data_cursor, |goal| goal.0);
        let run = self.allocate(store, roots, Purpose::Data, want, from)?;
        self.data_cursor = run.end();
        Ok(run)
    }

    /// Allocates the blocks of all copies of a new node, the copies far apart.
    pub fn allocate_node<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
    ) -> Result<[BlockAddress; 2]> {
        let first =
            self.allocate(store, roots, Purpose::Node, self.node_blocks, self.node_cursor)?;
        self.node_cursor = first.end();
        let mut addresses = [first.start, BlockAddress::NONE];
        if self.copies > 1 {
            let span = self.limit - self.first;
            let opposite = self.first + (first.start.0 - self.first + span / 2) % span;
            match self.allocate(store, roots, Purpose::Node, self.node_blocks, opposite) {
                Ok(second) => addresses[1] = second.start,
                Err(error) => {
                    self.release(first);
                    return Err(error);
                }
            }
        }
        Ok(addresses)
    }

    /// The next node goes where data may not go, if there is room.
    pub fn look_for_nodes_after_data(&mut self) {
        self.node_cursor = self.data_end;
    }

    fn allocate<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        roots: &Roots,
        purpose: Purpose,
        want: u64,
        from: u64,
    ) -> Result<BlockRun> {
        let end = if purpose == Purpose::Data { self.data_end } else { self.limit };
        if end <= self.first {
            return Err(Error::NoSpace);
        }
        let from = if (self.first..end).contains(&from) { from } else { self.first };
        let groups = end.div_ceil(self.group_blocks);
        let first_group = from / self.group_blocks;
        let mut best = BlockRun::default();
        let mut looked = 0;
        // The first group is searched again at the end, for the blocks before `from`.
        let mut step = 0;
        while step <= groups {
            let index = (first_group + step) % groups;
            if self.known_full(index) {
                step += self.full_groups_from(index, groups - index.min(groups - 1)).max(1);
                continue;
            }
            self.load(store, roots, index)?;
            let start = index * self.group_blocks;
            let mut at = if step == 0 { from - start } else { 0 };
            let Some(group) = self.groups.get(&index) else { return Err(Error::NoSpace) };
            let mut has_room = false;
            while let Some((low, high)) = group.busy.some_zeros_in(at, end - start, want) {
                at = high;
                has_room = true;
                let count = high - low;
                if count > best.count {
                    best = BlockRun { start: BlockAddress(start + low), count };
                }
                if count == want {
                    break;
                }
            }
            // The search may have begun after free blocks.
            if !has_room && group.is_full() {
                self.set_full(index, true);
            }
            looked += 1;
            let enough = match purpose {
                Purpose::Node => best.count == want,
                Purpose::Data => {
                    best.count >= want.min(RUN_GOOD)
                        || (best.count > 0 && looked >= GROUPS_FOR_LENGTH)
                }
            };
            if enough {
                break;
            }
            step += 1;
        }
        if best.count == 0 || (purpose == Purpose::Node && best.count < want) {
            return Err(Error::NoSpace);
        }
        // The group of the best run may have been evicted meanwhile; nothing in it has changed.
        self.load(store, roots, best.start.0 / self.group_blocks)?;
        self.unpublished.reserve(1)?;
        self.mark_busy(best, true);
        // As a separate range, so that it can be released without memory.
        self.unpublished.insert_apart(best.start.0, best.end());
        if !planted(Sabotage::DiscardGivenOut) {
            self.discards.remove(best.start.0, best.end());
        }
        Ok(best)
    }

    fn known_full(&self, index: u64) -> bool {
        self.full.get((index / 64) as usize).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Number of groups from `index` on, at most `limit`, that are known to be full.
    fn full_groups_from(&self, index: u64, limit: u64) -> u64 {
        let mut count = 0;
        while count < limit && self.known_full(index + count) {
            let at = index + count;
            let whole_word =
                at.is_multiple_of(64) && self.full.get((at / 64) as usize) == Some(&u64::MAX);
            count += if whole_word { 64 } else { 1 };
        }
        count.min(limit)
    }

    pub(super) fn set_full(&mut self, index: u64, full: bool) {
        if let Some(word) = self.full.get_mut((index / 64) as usize) {
            let bit = 1 << (index % 64);
            *word = if full { *word | bit } else { *word & !bit };
        }
    }
}
