//! A set of block numbers kept as disjoint, non-adjacent ranges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end (exclusive).
    ranges: BTreeMap<u64, u64>,
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

    /// The first block of the set that is at or after `from`.
    pub fn first_at(&self, from: u64) -> Option<u64> {
        let before = self.ranges.range(..=from).next_back().filter(|(_, end)| **end > from).map(|_| from);
        before.or_else(|| self.ranges.range(from..).next().map(|(start, _)| *start))
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        *self = RangeSet::default();
    }

    /// Adds `start..end`; what is in the set already stays.
    pub fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut low, mut high) = (start, end);
        // Take up every range that overlaps or touches.
        if let Some((before, before_end)) = self.ranges.range(..=start).next_back().map(|(s, e)| (*s, *e))
            && before_end >= start
        {
            low = before;
            high = high.max(before_end);
            self.ranges.remove(&before);
            self.total -= before_end - before;
        }
        while let Some((next, next_end)) = self.ranges.range(low..=high).next().map(|(s, e)| (*s, *e)) {
            high = high.max(next_end);
            self.ranges.remove(&next);
            self.total -= next_end - next;
        }
        self.ranges.insert(low, high);
        self.total += high - low;
    }

    /// Removes `start..end` and returns the parts that were in the set.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let parts = self.overlaps(start, end);
        for (low, high) in &parts {
            let Some((from, to)) = self.ranges.range(..=*low).next_back().map(|(s, e)| (*s, *e)) else {
                continue;
            };
            self.ranges.remove(&from);
            if from < *low {
                self.ranges.insert(from, *low);
            }
            if *high < to {
                self.ranges.insert(*high, to);
            }
            self.total -= high - low;
        }
        parts
    }

    /// The parts of `start..end` that are in the set.
    pub fn overlaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        if start >= end {
            return Vec::new();
        }
        let first = self.ranges.range(..=start).next_back().map_or(start, |(from, _)| *from);
        self.ranges
            .range(first..end)
            .map(|(from, to)| ((*from).max(start), (*to).min(end)))
            .filter(|(from, to)| from < to)
            .collect()
    }

    /// Whether any block of `start..end` is in the set.
    pub fn intersects(&self, start: u64, end: u64) -> bool {
        start < end && self.ranges.range(..end).next_back().is_some_and(|(_, to)| *to > start)
    }

    /// Every range, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, end)| (*start, *end))
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
                let overlaps: Vec<u64> = ranges.overlaps(start, end).into_iter().flat_map(|(s, e)| s..e).collect();
                prop_assert_eq!(&overlaps, &expected);
                prop_assert_eq!(ranges.intersects(start, end), !expected.is_empty());
                if add {
                    ranges.insert(start, end);
                    set.extend(start..end);
                } else {
                    let removed: Vec<u64> = ranges.remove(start, end).into_iter().flat_map(|(s, e)| s..e).collect();
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
}
