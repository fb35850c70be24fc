//! Look-ups. Every step goes one level down and every restart moves strictly forward, so a damaged
//! tree can cause errors but no endless loop.

use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::node::Node;
use crate::format::{NodePointer, Root, Value};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;
use crate::tree::finger::Bounds;

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

    /// The leaf for `key`, and the keys that belong there.
    fn leaf(&self, root: &Root, key: &Key) -> Result<(Arc<Node>, Bounds)> {
        let (mut pointer, mut level, mut bounds) = (root.pointer, root.level(), Bounds::ALL);
        // Goes down as far as the nodes are in memory.
        if let Some(leaf) = self.descend(root, &mut pointer, &mut level, key, &mut bounds)? {
            return Ok((leaf, bounds));
        }
        loop {
            let node = self.node(&pointer, level)?;
            if level == 0 {
                return Ok((node, bounds));
            }
            pointer = step_down(&node, key, &mut bounds).1;
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
            let (node, bounds) = self.leaf(root, &from)?;
            let start = node.search(&from).unwrap_or_else(|index| index);
            for index in start..node.count() {
                let key = node.key(index);
                if key > *to || !visit(&key, node.value(index))? {
                    return Ok(());
                }
            }
            match bounds.high {
                Some(high) if high > from => from = high,
                _ => break,
            }
        }
        Ok(())
    }

    /// The first item with a key in `from..=to`.
    pub fn next(&self, root: &Root, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.next_with(root, from, to, copy_of)?.transpose()
    }

    /// The last item with a key in `from..=to`.
    pub fn previous(&self, root: &Root, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.previous_with(root, from, to, copy_of)?.transpose()
    }

    /// The first item with a key in `from..=to`, passed to `take` without a copy.
    pub fn next_with<T>(
        &self,
        root: &Root,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut from = *from;
        while from <= *to {
            let (node, bounds) = self.leaf(root, &from)?;
            let index = node.search(&from).unwrap_or_else(|index| index);
            if index < node.count() {
                let key = node.key(index);
                return Ok((key <= *to).then(|| take(&key, node.value(index))));
            }
            match bounds.high {
                Some(high) if high > from => from = high,
                _ => break,
            }
        }
        Ok(None)
    }

    /// The last item with a key in `from..=to`, passed to `take` without a copy.
    pub fn previous_with<T>(
        &self,
        root: &Root,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        let mut to = *to;
        while *from <= to {
            let (node, bounds) = self.leaf(root, &to)?;
            let index = match node.search(&to) {
                Ok(index) => Some(index),
                Err(index) => index.checked_sub(1),
            };
            if let Some(index) = index {
                let key = node.key(index);
                return Ok((key >= *from).then(|| take(&key, node.value(index))));
            }
            match bounds.low.predecessor() {
                Some(before) if before < to => to = before,
                _ => break,
            }
        }
        Ok(None)
    }
}

/// The child of a branch on the path to `key`, its index, and the keys that belong there.
#[inline]
pub(super) fn step_down(node: &Node, key: &Key, bounds: &mut Bounds) -> (usize, NodePointer) {
    let index = match node.search(key) {
        Err(0) => {
            bounds.below = true;
            0
        }
        Ok(index) => {
            bounds.low = *key;
            index
        }
        Err(after) => {
            bounds.low = node.key(after - 1);
            after - 1
        }
    };
    if index + 1 < node.count() {
        bounds.high = Some(node.key(index + 1));
    }
    (index, node.child(index))
}

fn copy_of(key: &Key, value: &[u8]) -> Result<(Key, Value)> {
    Ok((*key, memory::copy(value)?))
}
