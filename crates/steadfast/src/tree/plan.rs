//! Planning a change: how many new nodes it needs at most, found by walking the paths that it will take. The walk also
//! reads every node on the way, so that a medium error shows before anything has changed.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::node::{capacity, item_size};
use super::{Root, Store};
use crate::error::Result;
use crate::key::Key;
use crate::platform::Platform;
use crate::types::Generation;

/// One planned change; `value_len` is `None` for a removal.
#[derive(Debug, Clone, Copy)]
pub struct PlannedChange {
    /// Which key.
    pub key: Key,
    /// Length of the new value.
    pub value_len: Option<usize>,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// The most new nodes that the changes (in key order) can need.
    pub fn plan(&self, root: &Root, generation: Generation, changes: &[PlannedChange]) -> Result<u64> {
        let half = capacity(self.superblock.node_size as usize) / 2;
        let mut copies: Vec<u64> = Vec::new();
        let mut splits = 0;
        let mut leaf = u64::MAX;
        let mut leaf_free = 0;
        let mut leaf_overflow = 0;
        for change in changes {
            let mut node = self.node(&root.pointer, root.level())?;
            let mut pointer = root.pointer;
            loop {
                if pointer.generation != generation {
                    copies.push(pointer.addresses[0].0);
                }
                if node.level() == 0 {
                    break;
                }
                pointer = node.child(node.child_index(&change.key));
                node = self.node(&pointer, node.level() - 1)?;
            }
            if pointer.addresses[0].0 != leaf {
                splits += splits_of(leaf_overflow, half);
                leaf = pointer.addresses[0].0;
                leaf_free = node.free();
                leaf_overflow = 0;
            }
            let Some(length) = change.value_len else { continue };
            let old = node.search(&change.key).map_or(0, |index| item_size(node.value(index).len()));
            // Freed room counts only for the item itself: the order of changes within a leaf does not matter then.
            let grows = item_size(length).saturating_sub(old);
            let fits = grows.min(leaf_free);
            leaf_free -= fits;
            leaf_overflow += if fits < grows { item_size(length) } else { 0 };
        }
        splits += splits_of(leaf_overflow, half);
        copies.sort_unstable();
        copies.dedup();
        // Each split leaf adds an item to its parent, which may split too, up to a new root.
        let above = if splits == 0 { 0 } else { u64::from(root.height) + splits / 2 + 1 };
        Ok(copies.len() as u64 + splits + above)
    }
}

/// New nodes that `overflow` bytes beyond a full leaf can cause; a large item between small ones can need two.
fn splits_of(overflow: usize, half: usize) -> u64 {
    if overflow == 0 { 0 } else { 2 + 2 * (overflow / half) as u64 }
}
