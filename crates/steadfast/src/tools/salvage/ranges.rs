//! Sets of keys as ranges.

use alloc::collections::BTreeMap;

use crate::format::key::Key;

/// Disjoint ranges of keys, both ends included.
#[derive(Debug, Clone, Default)]
pub struct KeyRanges(BTreeMap<Key, Key>);

impl KeyRanges {
    /// Adds `from..=to`, merging the ranges that it touches; does nothing if `from` is greater than
    /// `to`.
    pub fn add(&mut self, mut from: Key, mut to: Key) {
        if from > to {
            return;
        }
        // Every range that begins at or before `to` and ends at or after `from` becomes part of the
        // new one.
        while let Some((start, end)) =
            self.0.range(..=to).next_back().map(|(start, end)| (*start, *end))
        {
            if end < from {
                break;
            }
            self.0.remove(&start);
            from = from.min(start);
            to = to.max(end);
        }
        self.0.insert(from, to);
    }

    /// Whether a key is in one of the ranges.
    pub fn contains(&self, key: &Key) -> bool {
        self.0.range(..=*key).next_back().is_some_and(|(_, end)| end >= key)
    }

    /// The parts of the ranges that lie within `from..=to`, in order.
    pub fn within(&self, from: Key, to: Key) -> impl Iterator<Item = (Key, Key)> + '_ {
        let before = self.0.range(..from).next_back().into_iter();
        let inside = if from <= to { Some(self.0.range(from..=to)) } else { None };
        before
            .chain(inside.into_iter().flatten())
            .map(move |(start, end)| ((*start).max(from), (*end).min(to)))
            .filter(|(start, end)| start <= end)
    }

    /// These ranges without those of `other`.
    pub fn without(&self, other: &KeyRanges) -> KeyRanges {
        let mut left = KeyRanges::default();
        for (from, to) in &self.0 {
            let mut at = Some(*from);
            for (start, end) in other.within(*from, *to) {
                if let (Some(at), Some(before)) = (at, start.predecessor()) {
                    left.add(at, before);
                }
                at = end.successor();
            }
            if let Some(at) = at {
                left.add(at, *to);
            }
        }
        left
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::InodeNumber;

    fn key(number: u64) -> Key {
        Key::inode(InodeNumber(number))
    }

    #[test]
    fn ranges_join_and_are_cut() {
        let mut ranges = KeyRanges::default();
        for (from, to) in [(10, 20), (30, 40), (50, 60), (41, 45), (18, 32), (9, 3)] {
            ranges.add(key(from), key(to));
        }
        for (number, inside) in
            [(9, false), (10, true), (25, true), (40, true), (46, false), (60, true), (61, false)]
        {
            assert_eq!(ranges.contains(&key(number)), inside, "{number}");
        }
        let parts: alloc::vec::Vec<_> = ranges.within(key(35), key(55)).collect();
        assert_eq!(parts, [(key(35), key(40)), (key(41), key(45)), (key(50), key(55))]);
        assert_eq!(ranges.within(key(46), key(49)).count(), 0);
        let mut other = KeyRanges::default();
        for (from, to) in [(0, 12), (35, 36), (50, 60)] {
            other.add(key(from), key(to));
        }
        let left = ranges.without(&other);
        for (number, inside) in
            [(12, false), (13, true), (34, true), (35, false), (37, true), (41, true), (55, false)]
        {
            assert_eq!(left.contains(&key(number)), inside, "{number}");
        }
    }
}
