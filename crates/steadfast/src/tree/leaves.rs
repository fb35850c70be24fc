//! Changes that stay inside leaves: most of all changes. They need no new node, no plan, and one
//! way down the tree.
//!
//! A node that is dirty has only dirty ancestors, so a change inside a dirty leaf concerns no other
//! node. [`find_leaves`](Store::find_leaves) looks whether each change of a batch has such a leaf.
//! The leaf must have room for what is put, and enough left where something is removed. Otherwise
//! the batch is [planned](Store::plan).

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::Root;
use crate::format::key::Key;
use crate::format::node::{Node, item_size};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::cache::{Nodes, State};
use crate::tree::finger::{Bounds, Fingers};
use crate::tree::read::step_down;
use crate::tree::store::{check_found, is_leaf_of};
use crate::tree::{PlannedChange, Store};
use crate::types::{BlockAddress, Generation};

/// A dirty leaf on the way through the changes of a batch.
struct Leaf<'c> {
    address: BlockAddress,
    node: &'c Node,
    bounds: Bounds,
    /// Bytes for items that earlier changes leave. Freed bytes do not count.
    free: usize,
    /// Bytes of the items that earlier removals leave.
    used: usize,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// Whether all `changes` stay inside dirty leaves; `leaves` then has the leaf of each. Puts are
    /// in key order, followed by removals in key order.
    ///
    /// # Errors
    /// `OutOfMemory`. Whatever else is wrong with the tree is found by a [plan](Self::plan).
    pub fn find_leaves(
        &self,
        root: &Root,
        generation: Generation,
        changes: impl Iterator<Item = PlannedChange>,
        leaves: &mut Vec<BlockAddress>,
    ) -> Result<bool> {
        leaves.clear();
        let mut cache = self.cache.lock();
        let (nodes, fingers) = cache.split();
        let mut found: Option<Leaf<'_>> = None;
        for PlannedChange { key, value_len } in changes {
            let mut leaf = match found.take().filter(|leaf| leaf.bounds.hold(&key)) {
                Some(leaf) => leaf,
                None => match Leaf::find(nodes, fingers, root, generation, &key) {
                    Some(leaf) => leaf,
                    None => return Ok(false),
                },
            };
            let fits = match value_len {
                Some(length) => leaf.put(&key, length),
                None => leaf.remove(&key, root.height == 1),
            };
            if !fits {
                return Ok(false);
            }
            memory::push(leaves, leaf.address)?;
            found = Some(leaf);
        }
        Ok(true)
    }

    /// Sets or removes a key in the leaf that was [found](Self::find_leaves) for it. Returns
    /// whether the key was there. Readers are excluded.
    ///
    /// # Errors
    /// None, unless memory is damaged; nothing of this key has changed then.
    pub fn change_leaf(
        &self,
        address: BlockAddress,
        key: &Key,
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let lost = Error::CorruptMetadata { address, reason: "cached leaf lost" };
        self.dentries.forget(key);
        let mut cache = self.cache.lock();
        let leaf = cache.get_mut(address.0, |_| Ok(()))?.ok_or(lost)?;
        let Some(value) = value else { return Ok(leaf.remove_key(key)) };
        let (there, rest) = leaf.put_key(key, value);
        drop(cache);
        if rest.is_some() {
            return Err(lost);
        }
        self.dentries.changed(key, value);
        Ok(there)
    }
}

impl<'c> Leaf<'c> {
    /// The leaf of `key`, if it is dirty and no branch needs a lower first key for it. The leaf and
    /// the branches above it must be in memory and of the working generation.
    fn find(
        nodes: Nodes<'c>,
        fingers: &mut Fingers,
        root: &Root,
        generation: Generation,
        key: &Key,
    ) -> Option<Leaf<'c>> {
        if let Some(((address, birth), bounds)) = fingers.find(root, key) {
            let leaf = Leaf::of(nodes, address, bounds)?;
            return (birth == generation && is_leaf_of(leaf.node, birth)).then_some(leaf);
        }
        let (mut pointer, mut level, mut bounds) = (root.pointer, root.level(), Bounds::ALL);
        loop {
            let (node, _) = nodes.get(pointer.addresses[0])?;
            if pointer.generation != generation || check_found(node, &pointer, level).is_err() {
                return None;
            }
            if level == 0 {
                fingers.set(root, (pointer.addresses[0], generation), bounds);
                return Leaf::of(nodes, pointer.addresses[0], bounds);
            }
            pointer = step_down(node, key, &mut bounds);
            if bounds.below {
                return None;
            }
            level -= 1;
        }
    }

    fn of(nodes: Nodes<'c>, address: BlockAddress, bounds: Bounds) -> Option<Leaf<'c>> {
        let (node, state) = nodes.get(address)?;
        let is_dirty = state == State::Dirty || planted(Sabotage::ChangeSealedLeaf);
        let leaf = Leaf { address, node, bounds, free: node.free(), used: node.used() };
        is_dirty.then_some(leaf)
    }

    /// Whether there is room for a value of this length.
    fn put(&mut self, key: &Key, length: usize) -> bool {
        let size = item_size(length);
        let old = self.node.search(key).map_or(0, |index| item_size(self.node.value(index).len()));
        match self.free.checked_sub(size.saturating_sub(old)) {
            Some(free) => {
                self.free = free;
                true
            }
            None => planted(Sabotage::OverfillLeaf),
        }
    }

    /// Whether the leaf need not be merged or removed afterwards.
    fn remove(&mut self, key: &Key, is_root: bool) -> bool {
        if let Ok(index) = self.node.search(key) {
            self.used -= item_size(self.node.value(index).len());
        }
        is_root || !self.node.is_sparse(self.used)
    }
}
