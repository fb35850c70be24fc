//! Planning a change: how many new nodes it needs at most, found by walking the paths that it will
//! take. The walk also reads every node on the way, so that a medium error shows before anything
//! has changed, and says which they are: the change keeps them in memory, and may take any of them
//! out of the tree.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::Medium;

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
    /// Which key.
    pub key: Key,
    /// Length of the new value.
    pub value_len: Option<usize>,
}

/// A node on the way of a change.
pub struct Visited {
    /// Where it is.
    pub pointer: NodePointer,
    /// Its content, unless it is dirty and thus in memory anyway.
    pub node: Option<Arc<Node>>,
}

/// What a change needs.
pub struct Plan {
    /// New nodes, at most.
    pub nodes: u64,
    /// The nodes that the tree may let go, beside neighbours that it merges: each once.
    pub visited: Vec<Visited>,
    /// Nodes that it may let go, at most.
    pub released: usize,
    /// No node comes and none goes: values are put where there is room for them.
    pub in_place: bool,
    /// Entries of dead lists that come with the change beside those of its nodes; the caller's to
    /// say.
    pub buried: usize,
    /// Groups of blocks, in order. With them the change lets go of neighbours only in these groups,
    /// in those of the nodes visited, and where the bitmap changes in any case: room for more has
    /// not been counted.
    pub confined: Option<Vec<u64>>,
}

/// What a node on the path of the last put will have to take.
struct Load {
    address: u64,
    node: Arc<Node>,
    /// Room that is left.
    free: usize,
    /// Bytes of the items beyond it.
    overflow: usize,
}

impl Load {
    fn new(pointer: &NodePointer, node: Arc<Node>) -> Load {
        Load { address: pointer.addresses[0].0, free: node.free(), node, overflow: 0 }
    }

    /// An item of `size` bytes comes in; `grows` of them are new.
    fn take(&mut self, size: usize, grows: usize) {
        let fits = grows.min(self.free);
        self.free -= fits;
        self.overflow += if fits < grows { size } else { 0 };
    }

    /// The most new nodes on this level that it becomes.
    fn splits(&self, half: usize) -> u64 {
        let large = |index| item_size(self.node.value(index).len()) > half;
        match splits_of(self.overflow, half) {
            0 => 0,
            // An item of more than half a node may end up in a node of its own, which the next
            // items split off from.
            splits => splits + 2 * u64::from((0..self.node.count()).any(large)),
        }
    }
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// The most new nodes that the changes can need. Those that put are in key order, and made in
    /// this order before those that remove.
    ///
    /// # Errors
    /// Nodes that cannot be read; `OutOfMemory`.
    pub fn plan(
        &self,
        root: &Root,
        generation: Generation,
        changes: &[PlannedChange],
    ) -> Result<Plan> {
        let capacity = item_capacity(self.superblock.node_size as usize);
        let half = capacity / 2;
        let mut visited: Vec<Visited> = Vec::new();
        let mut splits = 0;
        // By level: the path of the last put.
        let mut path: Vec<Load> = Vec::new();
        // The way to the key before: the next one is seldom far.
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
            // Freed room counts only for the item itself: the order of changes within a leaf does
            // not matter then.
            let size = item_size(length);
            path[0].take(size, size.saturating_sub(old));
        }
        let mut above = 0;
        for level in 0..path.len() {
            above = close(&mut path, level, half);
            splits += above;
        }
        // New roots, each with the pointer to the old one and those to its parts.
        while above > 0 {
            let overflow = ((above as usize + 1) * BRANCH_ITEM).saturating_sub(capacity);
            above = splits_of(overflow, half);
            splits += 1 + above;
        }
        let copies =
            visited.iter().filter(|visited| visited.pointer.generation != generation).count();
        let nodes = copies as u64 + splits;
        let in_place = nodes == 0 && released == 0;
        let released = visited.len() + released;
        Ok(Plan { nodes, visited, released, in_place, buried: 0, confined: None })
    }
}

/// Notes a node on the way, once. A second owner would have the change copy a dirty node instead of
/// changing it in place.
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

/// Nothing more comes to the node of a level: the node above it takes the pointers to its new
/// neighbours.
fn close(path: &mut [Load], level: usize, half: usize) -> u64 {
    let splits = path[level].splits(half);
    if let Some(parent) = path.get_mut(level + 1) {
        for _ in 0..splits {
            parent.take(BRANCH_ITEM, BRANCH_ITEM);
        }
    }
    splits
}

/// New nodes that `overflow` bytes beyond a full node can cause. A split makes up to two, because a
/// large item between small ones can get a node of its own; and it leaves nodes so far from full
/// that the next one takes half a node of items more.
fn splits_of(overflow: usize, half: usize) -> u64 {
    if overflow == 0 { 0 } else { 2 + 2 * (overflow / half) as u64 }
}
