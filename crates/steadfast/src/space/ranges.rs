//! A set of block numbers kept as disjoint ranges, in order.
//!
//! A sorted list: its memory can be reserved beforehand ([`RangeSet::reserve`]), so changes in the
//! middle of something that must not fail need none. The sets are small, because allocation
//! continues where it stopped and neighbours are joined.

use alloc::vec::Vec;

use crate::error::{Error, Result};

/// Ranges whose memory an empty set keeps.
const KEPT: usize = 64;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start and end (exclusive).
    ranges: Vec<(u64, u64)>,
    total: u64,
}

impl RangeSet {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Number of blocks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Makes room for `count` calls of [`insert`](Self::insert),
    /// [`insert_apart`](Self::insert_apart) or [`take`](Self::take), which need no memory then.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        self.ranges.try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// As [`reserve`](Self::reserve), with no room for later calls.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve_exact(&mut self, count: usize) -> Result<()> {
        self.ranges.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)
    }

    /// Index of the first range that ends after `block`.
    fn position(&self, block: u64) -> usize {
        self.ranges.partition_point(|(_, end)| *end <= block)
    }

    /// The first block of the set that is at or after `from`.
    pub fn first_at(&self, from: u64) -> Option<u64> {
        self.ranges.get(self.position(from)).map(|(start, _)| from.max(*start))
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        if self.ranges.capacity() > KEPT {
            self.ranges = Vec::new();
        }
        self.ranges.clear();
        self.total = 0;
    }

    /// Adds `start..end`; blocks already in the set stay. Merges every range that overlaps or
    /// touches.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|(_, before)| *before < start);
        let after = first + self.ranges[first..].partition_point(|(next, _)| *next <= end);
        if first == after {
            self.ranges.insert(first, (start, end));
            self.total += end - start;
            return;
        }
        let known: u64 = self.ranges[first..after].iter().map(|(from, to)| to - from).sum();
        let joined = (start.min(self.ranges[first].0), end.max(self.ranges[after - 1].1));
        self.ranges[first] = joined;
        self.ranges.drain(first + 1..after);
        self.total += joined.1 - joined.0 - known;
    }

    /// Adds `start..end`, of which nothing is in the set, as a separate range. Removing all of it
    /// again needs no memory, whatever its neighbours are.
    pub fn insert_apart(&mut self, start: u64, end: u64) {
        debug_assert!(!self.intersects(start, end));
        if start < end {
            self.ranges.insert(self.position(start), (start, end));
            self.total += end - start;
        }
    }

    /// Removes and returns the first part of `start..end` that is in the set. Needs memory if that
    /// is the middle of a range.
    pub fn take(&mut self, start: u64, end: u64) -> Option<(u64, u64)> {
        let index = self.position(start);
        let (from, to) = *self.ranges.get(index)?;
        let (low, high) = (from.max(start), to.min(end));
        if low >= high {
            return None;
        }
        match (from < low, high < to) {
            (false, false) => drop(self.ranges.remove(index)),
            (true, false) => self.ranges[index].1 = low,
            (false, true) => self.ranges[index].0 = high,
            (true, true) => {
                self.ranges[index].1 = low;
                self.ranges.insert(index + 1, (high, to));
            }
        }
        self.total -= high - low;
        Some((low, high))
    }

    /// Removes `start..end`. Needs memory if that is the middle of a range.
    pub fn remove(&mut self, start: u64, end: u64) {
        let mut at = start;
        while at < end
            && let Some((_, after)) = self.take(at, end)
        {
            at = after;
        }
    }

    /// Removes the ranges for which `stays` is false.
    pub fn retain(&mut self, mut stays: impl FnMut(u64, u64) -> bool) {
        let total = &mut self.total;
        self.ranges.retain(|(start, end)| {
            let stays = stays(*start, *end);
            *total -= if stays { 0 } else { end - start };
            stays
        });
    }

    /// The parts of `start..end` that are in the set, in order.
    pub fn overlaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges[self.position(start)..]
            .iter()
            .take_while(move |(from, _)| *from < end)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
            .filter(|(from, to)| from < to)
    }

    /// Whether any block of `start..end` is in the set.
    pub fn intersects(&self, start: u64, end: u64) -> bool {
        self.overlaps(start, end).next().is_some()
    }

    /// Every range, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_set(operations in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 1..60)) {
            let mut ranges = RangeSet::default();
            let mut set = BTreeSet::new();
            for (add, start, length) in operations {
                let end = start + length;
                let expected: Vec<u64> = (start..end).filter(|block| set.contains(block)).collect();
                let overlaps: Vec<u64> = ranges.overlaps(start, end).flat_map(|(s, e)| s..e).collect();
                prop_assert_eq!(&overlaps, &expected);
                prop_assert_eq!(ranges.intersects(start, end), !expected.is_empty());
                if add {
                    ranges.insert(start, end);
                    set.extend(start..end);
                } else {
                    let parts = core::iter::from_fn(|| ranges.take(start, end));
                    let removed: Vec<u64> = parts.flat_map(|(s, e)| s..e).collect();
                    prop_assert_eq!(removed, expected);
                    set.retain(|block| !(start..end).contains(block));
                }
                prop_assert_eq!(ranges.total(), set.len() as u64);
                let all: Vec<u64> = ranges.iter().flat_map(|(s, e)| s..e).collect();
                prop_assert_eq!(all, set.iter().copied().collect::<Vec<_>>());
                let spans: Vec<_> = ranges.iter().collect();
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }

    #[test]
    fn what_was_added_apart_is_taken_out_without_memory() {
        let mut ranges = RangeSet::default();
        ranges.reserve(3).unwrap();
        for start in [10, 0, 5] {
            ranges.insert_apart(start, start + 5);
        }
        let room = ranges.ranges.capacity();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 5), (5, 10), (10, 15)]);
        assert_eq!(ranges.take(5, 10), Some((5, 10)));
        assert_eq!(ranges.take(0, 20), Some((0, 5)), "part by part");
        assert_eq!((ranges.len(), ranges.total(), ranges.ranges.capacity()), (1, 5, room));
        ranges.insert(3, 10);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(3, 15)]);
        ranges.retain(|start, _| start > 3);
        assert_eq!((ranges.len(), ranges.total()), (0, 0));
    }
}
