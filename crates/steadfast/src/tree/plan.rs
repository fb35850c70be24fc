//! Planning a change: an upper bound of the new nodes that it needs, found by walking its paths.
//! The walk also reads every node on the path, so a medium error occurs before anything has
//! changed. The plan lists these nodes: the change keeps them in memory, and may remove any of them
//! from the tree.

use alloc::vec::Vec;

use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::Result;
use crate::format::key::Key;
use crate::format::node::{Node, item_capacity, item_size};
use crate::format::{NodePointer, Root};
use crate::memory;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::Generation;

/// One planned change; `value_len` is `None` for a removal.
#[derive(Debug, Clone, Copy)]
pub struct PlannedChange {
    /// The key.
    pub key: Key,
    /// Length of the new value.
    pub value_len: Option<usize>,
}

/// A node on the path of a change.
pub struct Visited {
    /// Its pointer.
    pub pointer: NodePointer,
    /// Its content, unless it is dirty and thus in memory anyway.
    pub node: Option<Arc<Node>>,
}

/// The needs of a change.
pub struct Plan {
    /// Upper bound of the new nodes.
    pub nodes: u64,
    /// The nodes that the tree may release, besides neighbours that it merges: each once.
    pub visited: Vec<Visited>,
    /// Upper bound of the nodes that it may release.
    pub released: usize,
    /// Entries of dead lists that come with the change, besides those of its nodes; the caller sets
    /// this.
    pub dead_entries: usize,
    /// Groups of blocks, in order. With them the change releases neighbours only in these groups,
    /// in those of the nodes visited, and in groups whose bitmap changes anyway. Room for other
    /// groups was not counted.
    pub confined: Option<Vec<u64>>,
}

/// The items that a node on the path of the last put must take.
struct Load {
    address: u64,
    node: Arc<Node>,
    /// Remaining room.
    free: usize,
    /// Bytes of the items beyond the room.
    overflow: usize,
}

impl Load {
    fn new(pointer: &NodePointer, node: Arc<Node>) -> Load {
        Load { address: pointer.addresses[0].0, free: node.free(), node, overflow: 0 }
    }

    /// Adds an item of `size` bytes, of which `grows` are new.
    fn take(&mut self, size: usize, grows: usize) {
        let fits = grows.min(self.free);
        self.free -= fits;
        self.overflow += if fits < grows { size } else { 0 };
    }

    /// Upper bound of the new nodes on this level from splits.
    fn splits(&self, half: usize) -> u64 {
        let large = |index| item_size(self.node.value(index).len()) > half;
        match splits_of(self.overflow, half) {
            0 => 0,
            // An item of more than half a node may get a node of its own, from which the next items
            // are split off.
            splits => splits + 2 * u64::from((0..self.node.count()).any(large)),
        }
    }
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// Upper bound of the new nodes that the changes can need. Puts are in key order, and are
    /// applied in this order before removals.
    ///
    /// # Errors
    /// Nodes that cannot be read; `OutOfMemory`.
    pub fn plan(
        &self,
        root: &Root,
        generation: Generation,
        changes: &[PlannedChange],
    ) -> Result<Plan> {
        let capacity = item_capacity(self.device.superblock.node_size as usize);
        let half = capacity / 2;
        let mut visited: Vec<Visited> = Vec::new();
        let mut splits = 0;
        // By level: the path of the last put.
        let mut path: Vec<Load> = Vec::new();
        // The path to the previous key; the next key is usually near.
        let mut nodes: Vec<(NodePointer, Arc<Node>)> = Vec::new();
        let mut released = 0;
        for change in changes {
            released += if change.value_len.is_none() { root.height as usize } else { 0 };
            let mut pointer = root.pointer;
            let mut depth = 0;
            let node = loop {
                if nodes.get(depth).is_none_or(|(there, _)| *there != pointer) {
                    nodes.truncate(depth);
                    let (node, dirty) = self.node_to_plan(&pointer, root.level() - depth as u8)?;
                    visit(&mut visited, &pointer, (!dirty).then_some(&node))?;
                    memory::push(&mut nodes, (pointer, node))?;
                }
                let node = &nodes[depth].1;
                if node.level() == 0 {
                    break node.clone();
                }
                pointer = node.child(node.child_index(&change.key));
                depth += 1;
            };
            let Some(length) = change.value_len else { continue };
            for (level, (pointer, node)) in nodes.iter().rev().enumerate() {
                match path.get(level) {
                    Some(load) if load.address == pointer.addresses[0].0 => break,
                    Some(_) => {
                        splits += close(&mut path, level, half);
                        path[level] = Load::new(pointer, node.clone());
                    }
                    None => memory::push(&mut path, Load::new(pointer, node.clone()))?,
                }
            }
            let old =
                node.search(&change.key).map_or(0, |index| item_size(node.value(index).len()));
            // Freed room counts only for the item itself, so the order of changes within a leaf
            // does not matter.
            let size = item_size(length);
            path[0].take(size, size.saturating_sub(old));
        }
        let mut above = 0;
        for level in 0..path.len() {
            above = close(&mut path, level, half);
            splits += above;
        }
        // New roots, each with the pointer to the old root and the pointers to its parts.
        while above > 0 {
            let overflow = ((above as usize + 1) * BRANCH_ITEM).saturating_sub(capacity);
            above = splits_of(overflow, half);
            splits += 1 + above;
        }
        let copies =
            visited.iter().filter(|visited| visited.pointer.generation != generation).count();
        let nodes = copies as u64 + splits;
        let released = visited.len() + released;
        Ok(Plan { nodes, visited, released, dead_entries: 0, confined: None })
    }
}

/// Adds a node on the path to the list, once. With a second owner the change would copy a dirty
/// node instead of changing it in place.
fn visit(
    visited: &mut Vec<Visited>,
    pointer: &NodePointer,
    clean: Option<&Arc<Node>>,
) -> Result<()> {
    let address = pointer.addresses[0];
    let Err(at) = visited.binary_search_by_key(&address, |visited| visited.pointer.addresses[0])
    else {
        return Ok(());
    };
    memory::insert(visited, at, Visited { pointer: *pointer, node: clean.cloned() })
}

/// Bytes of an item of a branch.
const BRANCH_ITEM: usize = item_size(NodePointer::LEN);

/// Ends the node of a level: the node above takes the pointers to its new neighbours.
fn close(path: &mut [Load], level: usize, half: usize) -> u64 {
    let splits = path[level].splits(half);
    if let Some(parent) = path.get_mut(level + 1) {
        for _ in 0..splits {
            parent.take(BRANCH_ITEM, BRANCH_ITEM);
        }
    }
    splits
}

/// Upper bound of the new nodes that `overflow` bytes beyond a full node can cause. A split makes
/// up to two, because a large item between small ones can get a node of its own. The nodes after a
/// split have room for at least half a node of further items.
fn splits_of(overflow: usize, half: usize) -> u64 {
    if overflow == 0 { 0 } else { 2 + 2 * (overflow / half) as u64 }
}
