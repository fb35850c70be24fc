//! Look-ups. Every step goes one level down and every restart moves strictly forward, so a damaged
//! tree can cause errors but no endless loop.

use alloc::sync::Arc;

use steadfast_media::Medium;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::node::Node;
use crate::format::{NodePointer, Root, Value};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;

impl<M: Medium, P: Platform> Store<M, P> {
    /// The value of `key`, passed to `take` without a copy.
    pub fn get_with<T>(
        &self,
        root: &Root,
        key: &Key,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let (node, _) = self.leaf(root, key)?;
        Ok(node.search(key).ok().map(|index| take(node.value(index))))
    }

    /// The value of `key`.
    pub fn get(&self, root: &Root, key: &Key) -> Result<Option<Value>> {
        self.get_with(root, key, memory::copy)?.transpose()
    }

    /// The leaf for `key`, and the lowest key to the right of it.
    fn leaf(&self, root: &Root, key: &Key) -> Result<(Arc<Node>, Option<Key>)> {
        let (mut pointer, mut level, mut bound) = (root.pointer, root.level(), None);
        // Goes down as far as the nodes are in memory.
        if let Some(leaf) = self.descend(&mut pointer, &mut level, key, &mut bound)? {
            return Ok((leaf, bound));
        }
        loop {
            let node = self.node(&pointer, level)?;
            if level == 0 {
                return Ok((node, bound));
            }
            pointer = step_down(&node, key, &mut bound);
            level -= 1;
        }
    }

    /// Passes the items with keys in `from..=to` to `visit`, in order, until `visit` returns
    /// `false`.
    pub fn scan(
        &self,
        root: &Root,
        from: &Key,
        to: &Key,
        visit: &mut dyn FnMut(&Key, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut from = *from;
        while from <= *to {
            let (node, bound) = self.leaf(root, &from)?;
            let start = node.search(&from).unwrap_or_else(|index| index);
            for index in start..node.count() {
                let key = node.key(index);
                if key > *to || !visit(&key, node.value(index))? {
                    return Ok(());
                }
            }
            match bound {
                Some(bound) if bound > from => from = bound,
                _ => break,
            }
        }
        Ok(())
    }

    /// The first item with a key in `from..=to`.
    pub fn next(&self, root: &Root, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        let mut from = *from;
        while from <= *to {
            let (node, bound) = self.leaf(root, &from)?;
            let index = node.search(&from).unwrap_or_else(|index| index);
            if index < node.count() {
                return item_within(&node, index, |key| key <= *to);
            }
            match bound {
                Some(bound) if bound > from => from = bound,
                _ => break,
            }
        }
        Ok(None)
    }

    /// The last item with a key in `from..=to`.
    pub fn previous(&self, root: &Root, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        let mut to = *to;
        while *from <= to {
            // The lowest key of the reached subtree, if there is anything to the left of it.
            let mut bound = None;
            let mut node = self.node(&root.pointer, root.level())?;
            while node.level() > 0 {
                let index = node.child_index(&to);
                if index > 0 {
                    bound = Some(node.key(index));
                }
                node = self.node(&node.child(index), node.level() - 1)?;
            }
            let index = match node.search(&to) {
                Ok(index) => Some(index),
                Err(index) => index.checked_sub(1),
            };
            if let Some(index) = index {
                return item_within(&node, index, |key| key >= *from);
            }
            match bound.and_then(|bound| bound.predecessor()) {
                Some(before) if before < to => to = before,
                _ => break,
            }
        }
        Ok(None)
    }
}

/// The child of a branch on the path to `key`. `bound` is the lowest key to the right of that path.
#[inline]
pub(super) fn step_down(node: &Node, key: &Key, bound: &mut Option<Key>) -> NodePointer {
    let index = node.child_index(key);
    if index + 1 < node.count() {
        *bound = Some(node.key(index + 1));
    }
    node.child(index)
}

fn item_within(
    node: &Node,
    index: usize,
    within: impl FnOnce(Key) -> bool,
) -> Result<Option<(Key, Value)>> {
    let key = node.key(index);
    if !within(key) {
        return Ok(None);
    }
    Ok(Some((key, memory::copy(node.value(index))?)))
}
