//! Differences between two trees. Subtrees that both share, as their pointers show, are skipped. So
//! the work grows with the changes and not with the size.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::node::Node;
use crate::format::{NodePointer, Root, Value};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;

/// A key with different values in the two trees. `None`: the tree has no such key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Key,
    /// Its value in the first tree.
    pub before: Option<Value>,
    /// Its value in the second tree.
    pub after: Option<Value>,
}

/// Result of a bounded search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextDifference {
    /// The first difference.
    Difference(Difference),
    /// No difference before this key; the search continues there.
    NotBefore(Key),
    /// No difference.
    End,
}

/// The path from the root to the leaf of a key.
struct Path {
    pointers: Vec<NodePointer>,
    leaf: steadfast_media::sync::Arc<Node>,
    /// For each node, the lowest key after it.
    bounds: Vec<Option<Key>>,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// The first key in `from..=to` at which the trees differ, after at most `steps` leaves of
    /// each.
    pub fn difference(
        &self,
        before: &Root,
        after: &Root,
        from: &Key,
        to: &Key,
        steps: usize,
    ) -> Result<NextDifference> {
        let mut from = *from;
        for _ in 0..steps.max(1) {
            if from > *to {
                return Ok(NextDifference::End);
            }
            let (old, new) = (self.path(before, &from)?, self.path(after, &from)?);
            let bound = match common_bound(&old, &new) {
                Some(bound) => bound,
                None => {
                    let bound = lower(last(&old.bounds), last(&new.bounds));
                    let end =
                        bound.and_then(|bound| bound.predecessor()).map_or(*to, |end| end.min(*to));
                    if let Some(found) = leaf_difference(&old.leaf, &new.leaf, &from, &end)? {
                        return Ok(NextDifference::Difference(found));
                    }
                    bound
                }
            };
            match bound {
                Some(bound) if bound > from => from = bound,
                _ => return Ok(NextDifference::End),
            }
        }
        Ok(NextDifference::NotBefore(from))
    }

    fn path(&self, root: &Root, key: &Key) -> Result<Path> {
        let mut node = self.node(&root.pointer, root.level())?;
        let mut pointers = memory::copy(&[root.pointer])?;
        let mut bounds = memory::copy(&[None])?;
        while node.level() > 0 {
            let index = node.child_index(key);
            let bound =
                if index + 1 < node.count() { Some(node.key(index + 1)) } else { last(&bounds) };
            let pointer = node.child(index);
            node = self.node(&pointer, node.level() - 1)?;
            memory::push(&mut pointers, pointer)?;
            memory::push(&mut bounds, bound)?;
        }
        Ok(Path { pointers, leaf: node, bounds })
    }
}

fn last(bounds: &[Option<Key>]) -> Option<Key> {
    bounds.last().copied().flatten()
}

/// The lower of two bounds, of which `None` is the end of the tree.
fn lower(a: Option<Key>, b: Option<Key>) -> Option<Key> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// End of the highest node that both paths share: up to there the trees are equal.
fn common_bound(old: &Path, new: &Path) -> Option<Option<Key>> {
    for (pointer, bound) in old.pointers.iter().zip(&old.bounds) {
        if let Some(at) = new.pointers.iter().position(|other| other == pointer) {
            return Some(lower(*bound, new.bounds.get(at).copied().flatten()));
        }
    }
    None
}

/// The first difference of two leaves in `from..=end`, which both cover.
fn leaf_difference(old: &Node, new: &Node, from: &Key, end: &Key) -> Result<Option<Difference>> {
    let start = |node: &Node| node.search(from).unwrap_or_else(|index| index);
    let (mut i, mut j) = (start(old), start(new));
    let item = |node: &Node, index: usize| {
        (index < node.count()).then(|| node.key(index)).filter(|key| key <= end)
    };
    loop {
        let (a, b) = (item(old, i), item(new, j));
        let key = match (a, b) {
            (None, None) => return Ok(None),
            (Some(a), Some(b)) => a.min(b),
            (Some(one), None) | (None, Some(one)) => one,
        };
        let before = (a == Some(key)).then(|| old.value(i));
        let after = (b == Some(key)).then(|| new.value(j));
        if before != after {
            return Ok(Some(Difference {
                key,
                before: before.map(memory::copy).transpose()?,
                after: after.map(memory::copy).transpose()?,
            }));
        }
        i += 1;
        j += 1;
    }
}
