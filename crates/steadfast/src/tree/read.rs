//! Looking things up. Every step goes one level down and every restart moves strictly on, so that a damaged tree can
//! give errors but no endless loop.

use steadfast_media::Medium;

use super::node::Node;
use super::{Root, Store};
use crate::error::Result;
use crate::fs::memory;
use crate::key::Key;
use crate::keyspace::Value;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Store<M, P> {
    /// The value of `key`, passed to `take` without a copy.
    pub fn get_with<T>(&self, root: &Root, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let mut node = self.node(&root.pointer, root.level())?;
        while node.level() > 0 {
            node = self.node(&node.child(node.child_index(key)), node.level() - 1)?;
        }
        Ok(node.search(key).ok().map(|index| take(node.value(index))))
    }

    /// The value of `key`.
    pub fn get(&self, root: &Root, key: &Key) -> Result<Option<Value>> {
        self.get_with(root, key, memory::copy)?.transpose()
    }

    /// The first item with a key in `from..=to`.
    pub fn next(&self, root: &Root, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        let mut from = *from;
        while from <= *to {
            // The lowest key to the right of the leaf that is reached.
            let mut bound = None;
            let mut node = self.node(&root.pointer, root.level())?;
            while node.level() > 0 {
                let index = node.child_index(&from);
                if index + 1 < node.count() {
                    bound = Some(node.key(index + 1));
                }
                node = self.node(&node.child(index), node.level() - 1)?;
            }
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
            // The lowest key of the subtree that is reached, where there is something to the left of it.
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

fn item_within(node: &Node, index: usize, within: impl FnOnce(Key) -> bool) -> Result<Option<(Key, Value)>> {
    let key = node.key(index);
    if !within(key) {
        return Ok(None);
    }
    Ok(Some((key, memory::copy(node.value(index))?)))
}
