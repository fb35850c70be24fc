//! Changing the tree: put and remove, with splits and merges.
//!
//! A failure in the middle leaves the working state half changed. The volume prevents that: before
//! it starts, it plans addresses for every node. It also has every node on the path in memory, and
//! the bitmaps of the nodes that may be released. If a failure happens all the same, the volume
//! goes read-only. Steps that only save space (merging, a lower tree) are skipped if they would
//! need more than that.

use alloc::vec::Vec;
use core::ops::Range;

use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::node::{Node, item_capacity, item_size};
use crate::format::{NodePointer, Root};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::inserted::Inserted;
use crate::tree::leaves::FoundKey;
use crate::tree::{NodeCopies, NodePool, Store};
use crate::types::{BlockRun, Generation};

/// One step on the path from the root to a leaf: a node of the working generation.
pub struct PathNode {
    pointer: NodePointer,
    level: u8,
    /// The child on the path (branches only).
    index: usize,
}

/// Levels that a tree may grow by in one change without more memory for the path to a key.
const GROWTH: usize = 4;

/// Limit of the new nodes to the right of a split one: the plan counts no more.
const PARTS_MAX: usize = 6;

/// An item for the level above: a new node to the right of a split one.
type SplitPart = (Key, [u8; NodePointer::LEN]);

/// Memory that a change works with. It outlives the change.
#[derive(Default)]
pub struct Scratch {
    /// The path to a key.
    path: Vec<PathNode>,
    /// The parts of a split node, and those of the node above it.
    parts: [Vec<SplitPart>; 2],
    /// The keys of a batch that [stays inside leaves](Store::find_leaves).
    pub found: Vec<FoundKey>,
    /// The nodes that such a batch must copy.
    pub copies: NodeCopies,
    /// Runs of blocks whose bitmaps a change needs.
    pub runs: Vec<BlockRun>,
}

impl Scratch {
    /// Makes room for changes of a tree of this height.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, height: u32) -> Result<()> {
        let path = height as usize + GROWTH;
        self.path.try_reserve(path).map_err(|_| Error::OutOfMemory)?;
        for parts in &mut self.parts {
            parts.try_reserve(PARTS_MAX).map_err(|_| Error::OutOfMemory)?;
        }
        Ok(())
    }
}

/// The working tree, open for changes.
pub struct TreeWriter<'a, M: Medium, P: Platform> {
    /// The store of the nodes.
    pub store: &'a Store<M, P>,
    /// The root; every change updates it.
    pub root: &'a mut Root,
    /// The working generation.
    pub generation: Generation,
    /// Addresses for new nodes.
    pub pool: &'a mut NodePool,
    /// Number of nodes in the tree.
    pub nodes: &'a mut u64,
    /// Memory to work with.
    pub scratch: &'a mut Scratch,
    /// Whether a removal has taken nodes out of the tree.
    pub shrunk: bool,
    /// Whether a node can be released: its bitmaps are in memory.
    pub releasable: &'a dyn Fn(&NodePointer) -> bool,
}

impl<M: Medium, P: Platform> TreeWriter<'_, M, P> {
    /// Sets the value of `key`. Returns whether the key was there.
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<bool> {
        self.store.dentries.forget(key);
        let path = self.path_for_change(key)?;
        let leaf = path.last().ok_or(no_path())?;
        let (found, overflow) =
            self.store.change(&leaf.pointer, 0, |node| node.put_key(key, value))?;
        if let Some(index) = overflow {
            self.split(&path, index, key, value)?;
        }
        self.scratch.path = path;
        self.store.dentries.changed(key, value);
        Ok(found)
    }

    /// Removes `key`. Returns whether the key was there.
    pub fn remove(&mut self, key: &Key) -> Result<bool> {
        self.store.dentries.forget(key);
        // Not by the path of a change. If an earlier removal has taken the leaf out, the path to a
        // key that was never there leads to a neighbour. The plan has no copy of that neighbour.
        if self.shrunk && !self.holds(key) {
            return Ok(false);
        }
        let path = self.path_for_change(key)?;
        let leaf = path.last().ok_or(no_path())?;
        let found = self.store.change(&leaf.pointer, 0, |node| node.remove_key(key))?;
        if found {
            self.merge_upwards(&path)?;
        }
        self.scratch.path = path;
        Ok(found)
    }

    /// Whether `key` is there. Nodes on the path to an existing key were planned for and are in
    /// memory, so the key is not below an unreadable node.
    fn holds(&self, key: &Key) -> bool {
        self.store.get_with(self.root, key, |_| ()).is_ok_and(|found| found.is_some())
    }

    /// Gives every node on the path to `key` a new address, unless the node is of this generation.
    pub fn touch(&mut self, key: &Key) -> Result<()> {
        let path = self.path_for_change(key)?;
        let leaf = path.last().ok_or(no_path())?;
        self.store.change(&leaf.pointer, 0, |_| ())?;
        self.scratch.path = path;
        Ok(())
    }

    /// Makes every node from the root to the leaf of `key` one of the working generation. The nodes
    /// above the leaf are then dirty; the leaf becomes dirty when it is changed.
    fn path_for_change(&mut self, key: &Key) -> Result<Vec<PathNode>> {
        self.store.forget_fingers();
        // The path of the last change, with room for the planned height of the tree.
        let mut path = core::mem::take(&mut self.scratch.path);
        path.clear();
        let mut pointer = self.own(self.root.pointer, self.root.level())?;
        self.root.pointer = pointer;
        let mut level = self.root.level();
        while level > 0 {
            // Usually down to the leaf, because nodes changed in this generation are in memory.
            self.store.descend_to_change(
                self.generation,
                &mut pointer,
                &mut level,
                key,
                &mut |pointer, level, index| {
                    memory::push(&mut path, PathNode { pointer, level, index })
                },
            )?;
            if level == 0 {
                break;
            }
            let (index, child) =
                self.store.change(&pointer, level, |node| node.step_to_change(key))?;
            memory::push(&mut path, PathNode { pointer, level, index })?;
            level -= 1;
            let owned = self.own(child, level)?;
            if owned != child {
                self.store
                    .change(&pointer, level + 1, |node| node.replace(index, &owned.encode()))?;
            }
            pointer = owned;
        }
        memory::push(&mut path, PathNode { pointer, level: 0, index: 0 })?;
        Ok(path)
    }

    /// The node as one of the working generation: itself, or a copy at a new address, which is
    /// dirty.
    fn own(&mut self, pointer: NodePointer, level: u8) -> Result<NodePointer> {
        if pointer.generation == self.generation || planted(Sabotage::ChangeCommittedNode) {
            return Ok(pointer);
        }
        let old = self.store.node(&pointer, level)?;
        let owned = self.new_pointer()?;
        let mut copy = self.pool.take_node()?;
        let node = own_mut(&mut copy)?;
        node.copy_from(&old);
        node.stamp(self.generation, owned.addresses[0].0);
        self.store.add_dirty(owned.addresses[0], copy)?;
        self.pool.release(pointer)?;
        Ok(owned)
    }

    fn new_pointer(&mut self) -> Result<NodePointer> {
        Ok(NodePointer {
            addresses: self.pool.take()?,
            generation: self.generation,
            digest: Default::default(),
        })
    }

    /// Puts an item at `index` of the full leaf at the end of `path`, and splits nodes as far up as
    /// needed.
    #[inline(never)]
    fn split(&mut self, path: &[PathNode], index: usize, key: &Key, value: &[u8]) -> Result<()> {
        let Some((leaf, mut rest)) = path.split_last() else { return Err(no_path()) };
        let [mut parts, mut above] = core::mem::take(&mut self.scratch.parts);
        parts.clear();
        self.insert_items(leaf, index, core::iter::once((*key, value)), &mut parts)?;
        let mut below = leaf;
        while !parts.is_empty() {
            let Some((step, higher)) = rest.split_last() else {
                self.grow(below, &parts)?;
                break;
            };
            above.clear();
            self.insert_items(step, step.index + 1, items_of(&parts), &mut above)?;
            core::mem::swap(&mut parts, &mut above);
            (below, rest) = (step, higher);
        }
        self.scratch.parts = [parts, above];
        Ok(())
    }

    /// Inserts adjacent items at `index` of a node. Items that do not fit go to new nodes on the
    /// right, whose keys and pointers go to `above` for the level above.
    fn insert_items<'i>(
        &mut self,
        step: &PathNode,
        index: usize,
        items: impl Iterator<Item = (Key, &'i [u8])> + Clone,
        above: &mut Vec<SplitPart>,
    ) -> Result<()> {
        let old = self.store.node(&step.pointer, step.level)?;
        let new_size: usize = items.clone().map(|(_, value)| item_size(value.len())).sum();
        if old.free() >= new_size {
            drop(old);
            self.store.change(&step.pointer, step.level, |node| {
                for (offset, (key, value)) in items.enumerate() {
                    node.insert(index + offset, &key, value);
                }
            })?;
            return Ok(());
        }

        let capacity = item_capacity(self.store.device.superblock.node_size as usize);
        let all = Inserted { old: &old, index, new_count: items.clone().count(), items };
        // Appending leaves full nodes; any other insertion splits in halves.
        let target =
            if index == old.count() { capacity } else { (old.used() + new_size).div_ceil(2) };

        // What stays in the node; each of the others begins at `start`.
        let mut stay = None;
        let (mut start, mut used, mut rest) = (0, 0, old.used() + new_size);
        for (position, size) in all.sizes().enumerate() {
            // Halves are seldom equal. The second half may be the larger one, so that a third node
            // does not get the last item alone.
            let ends_here = stay.is_some() && used + rest <= capacity;
            if position > start && !ends_here && used + size > target {
                match stay {
                    None => stay = Some(position),
                    Some(_) => self.add_part(above, step.level, &all, start..position)?,
                }
                (start, used) = (position, 0);
            }
            used += size;
            rest -= size;
        }
        let end = all.count();
        if stay.is_some() {
            self.add_part(above, step.level, &all, start..end)?;
        }
        let (items, stay) = (all.items, stay.unwrap_or(end));
        let new = stay.saturating_sub(index).min(all.new_count);
        // Otherwise the change would copy the node.
        drop(old);
        self.store.change(&step.pointer, step.level, |node| {
            node.truncate(stay - new);
            for (offset, (key, value)) in items.take(new).enumerate() {
                node.insert(index + offset, &key, value);
            }
        })
    }

    /// Adds a new node with some of the items to the tree, and to the list for the level above.
    fn add_part<'i>(
        &mut self,
        above: &mut Vec<SplitPart>,
        level: u8,
        all: &Inserted<'_, impl Iterator<Item = (Key, &'i [u8])> + Clone>,
        part: Range<usize>,
    ) -> Result<()> {
        if above.len() == PARTS_MAX {
            return Err(no_path());
        }
        let pointer = self.new_pointer()?;
        let mut part_node = self.empty_node(level, pointer.addresses[0].0)?;
        let node = own_mut(&mut part_node)?;
        all.append_to(node, part);
        memory::push(above, (node.key(0), pointer.encode()))?;
        self.store.add_dirty(pointer.addresses[0], part_node)?;
        *self.nodes = self.nodes.saturating_add(1);
        Ok(())
    }

    fn empty_node(&mut self, level: u8, address: u64) -> Result<Arc<Node>> {
        let mut node = self.pool.take_node()?;
        let size = self.store.device.superblock.node_size as usize;
        own_mut(&mut node)?.begin(
            size,
            level,
            self.generation,
            self.store.device.volume_id(),
            address,
        );
        Ok(node)
    }

    /// The root was split: puts a new root above its parts.
    fn grow(&mut self, old_root: &PathNode, parts: &[SplitPart]) -> Result<()> {
        let pointer = self.new_pointer()?;
        let mut root = self.empty_node(old_root.level + 1, pointer.addresses[0].0)?;
        let node = own_mut(&mut root)?;
        node.insert(0, &Key::MIN, &old_root.pointer.encode());
        for (key, value) in items_of(parts) {
            node.insert(node.count(), &key, value);
        }
        self.store.add_dirty(pointer.addresses[0], root)?;
        *self.nodes = self.nodes.saturating_add(1);
        *self.root = Root { pointer, height: self.root.height + 1 };
        Ok(())
    }

    /// Removes the leaf at the end of the path if it is empty. From the leaf up, merges nodes on
    /// the path that have become small with a neighbour.
    #[inline(never)]
    fn merge_upwards(&mut self, path: &[PathNode]) -> Result<()> {
        let mut last = path.len() - 1;
        if self.store.node(&path[last].pointer, 0)?.count() == 0 {
            last = self.remove_empty(path)?;
        }
        for depth in (1..=last).rev() {
            if !self.merge(&path[depth - 1], &path[depth])? {
                break;
            }
        }
        // A root with one child is superfluous.
        while self.root.height > 1 {
            // Below the planned path a root may be unreadable; then the tree stays one level too
            // high.
            let Ok(root) = self.store.node(&self.root.pointer, self.root.level()) else { break };
            if root.count() > 1 || !(self.releasable)(&self.root.pointer) {
                break;
            }
            self.drop_node(self.root.pointer)?;
            *self.root = Root { pointer: root.child(0), height: self.root.height - 1 };
        }
        Ok(())
    }

    /// Takes an empty leaf out of the tree, with the branches that have no other child. Returns the
    /// depth of the branch that it was taken from. If no branch has another child, the root is
    /// about to shrink to the leaf.
    fn remove_empty(&mut self, path: &[PathNode]) -> Result<usize> {
        let last = path.len() - 1;
        for depth in (0..last).rev() {
            let step = &path[depth];
            if self.store.node(&step.pointer, step.level)?.count() < 2 {
                continue;
            }
            self.store.change(&step.pointer, step.level, |branch| {
                if step.index == 0 {
                    // The first key is the lower bound of the branch and stays.
                    let next = branch.child(1).encode();
                    branch.replace(0, &next);
                    branch.remove(1);
                } else {
                    branch.remove(step.index);
                }
            })?;
            for below in &path[depth + 1..] {
                self.drop_node(below.pointer)?;
            }
            return Ok(depth);
        }
        Ok(last)
    }

    /// Moves a neighbour's items into `step`'s node if it is small and both fit one node. An
    /// unreadable neighbour is skipped: merging only saves space.
    fn merge(&mut self, parent: &PathNode, step: &PathNode) -> Result<bool> {
        let capacity = item_capacity(self.store.device.superblock.node_size as usize);
        let node = self.store.node(&step.pointer, step.level)?;
        if !node.is_sparse(node.used()) || node.count() == 0 {
            return Ok(false);
        }
        let above = self.store.node(&parent.pointer, parent.level)?;
        // Leaves room, so that the next insert does not split again.
        let limit = capacity / 4 * 3;
        let neighbours = [
            parent.index.checked_sub(1),
            Some(parent.index + 1).filter(|right| *right < above.count()),
        ];
        for neighbour in neighbours.into_iter().flatten() {
            let pointer = above.child(neighbour);
            if !(self.releasable)(&pointer) {
                continue;
            }
            let Ok(other) = self.store.node(&pointer, step.level) else { continue };
            if other.used() + node.used() > limit {
                continue;
            }
            drop((node, above));
            let is_left = neighbour < parent.index;
            self.store.change(&step.pointer, step.level, |node| {
                let at = if is_left { 0 } else { node.count() };
                node.insert_from(at, &other, 0..other.count());
            })?;
            self.store.change(&parent.pointer, parent.level, |above| {
                if is_left {
                    // The merged node takes the place and the key of the left neighbour.
                    above.replace(neighbour, &step.pointer.encode());
                    above.remove(parent.index);
                } else {
                    above.remove(neighbour);
                }
            })?;
            drop(other);
            self.drop_node(pointer)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn drop_node(&mut self, pointer: NodePointer) -> Result<()> {
        self.shrunk = true;
        self.pool.release(pointer)?;
        *self.nodes = self.nodes.saturating_sub(1);
        Ok(())
    }
}

fn items_of(parts: &[SplitPart]) -> impl Iterator<Item = (Key, &[u8])> + Clone {
    parts.iter().map(|(key, pointer)| (*key, &pointer[..]))
}

/// A node that is not in the tree yet has one owner.
fn own_mut(node: &mut Arc<Node>) -> Result<&mut Node> {
    Arc::get_mut(node).ok_or(no_path())
}

/// A path has at least the root, so this error cannot occur.
fn no_path() -> Error {
    Error::CorruptMetadata { address: Default::default(), reason: "no path to a leaf" }
}
