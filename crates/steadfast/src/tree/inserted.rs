//! A full node with the items that it has no room for: what a split divides among nodes.

use core::ops::Range;

use crate::format::key::Key;
use crate::format::node::{Node, item_size};

/// The items of a node with others inserted at `index`.
pub(super) struct Inserted<'n, I> {
    pub old: &'n Node,
    pub index: usize,
    pub items: I,
    /// Number of the new items.
    pub new_count: usize,
}

impl<'i, I: Iterator<Item = (Key, &'i [u8])> + Clone> Inserted<'_, I> {
    /// Number of all.
    pub fn count(&self) -> usize {
        self.old.count() + self.new_count
    }

    /// The sizes of all, in order.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        let old = |range: Range<usize>| range.map(|item| item_size(self.old.value(item).len()));
        let new = self.items.clone().map(|(_, value)| item_size(value.len()));
        old(0..self.index).chain(new).chain(old(self.index..self.old.count()))
    }

    /// Appends some of them to a node.
    pub fn append_to(&self, node: &mut Node, part: Range<usize>) {
        let new_end = self.index + self.new_count;
        node.insert_from(node.count(), self.old, within(&part, 0..self.index));
        let new = within(&part, self.index..new_end);
        for (key, value) in self.items.clone().skip(new.start - self.index).take(new.len()) {
            node.insert(node.count(), &key, value);
        }
        let after = within(&part, new_end..self.count());
        let after = after.start - self.new_count..after.end - self.new_count;
        node.insert_from(node.count(), self.old, after);
    }
}

/// The part of a range that is in another one; an empty range there if there is none.
fn within(range: &Range<usize>, other: Range<usize>) -> Range<usize> {
    let start = range.start.clamp(other.start, other.end);
    start..range.end.clamp(start, other.end)
}
