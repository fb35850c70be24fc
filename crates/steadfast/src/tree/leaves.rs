//! Changes that stay inside leaves: most of all changes. They need no plan, and one way down the
//! tree.
//!
//! A node that is dirty has only dirty ancestors, so a change inside a dirty leaf concerns no other
//! node. A leaf of an earlier generation needs [copies](NodeCopies): of itself, and of the nodes
//! above it that are of earlier generations. [`find_leaves`](Store::find_leaves) looks whether each
//! change of a batch has a leaf of these two kinds. The leaf must have room for what is put, and
//! enough left where something is removed. Otherwise the batch is [planned](Store::plan).

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::Root;
use crate::format::key::Key;
use crate::format::node::{Node, item_size};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::cache::{Nodes, State};
use crate::tree::copies::NodePlace;
use crate::tree::finger::{Bounds, Fingers};
use crate::tree::read::step_down;
use crate::tree::store::{check_found, is_leaf_of};
use crate::tree::{NodeCopies, PlannedChange, Scratch, Store};
use crate::types::{BlockAddress, Generation};

/// Where the key of a change is.
#[derive(Debug, Clone, Copy)]
pub struct FoundKey {
    /// Its leaf.
    pub leaf: NodePlace,
    /// Its index there, or the one where it would go, before any change of the batch.
    pub index: usize,
}

/// A leaf on the way through the changes of a batch.
struct Leaf<'c> {
    place: NodePlace,
    node: &'c Node,
    bounds: Bounds,
    /// Bytes for items that earlier changes leave. Freed bytes do not count.
    free: usize,
    /// Bytes of the items that earlier removals leave.
    used: usize,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// Whether all `changes` stay inside leaves. `scratch.found` then has the place of each, and
    /// `scratch.copies` the nodes that must be copied. Puts are in key order, followed by removals
    /// in key order.
    ///
    /// # Errors
    /// `OutOfMemory`. Whatever else is wrong with the tree is found by a [plan](Self::plan).
    #[inline(never)]
    pub fn find_leaves(
        &self,
        root: &Root,
        generation: Generation,
        changes: impl Iterator<Item = PlannedChange>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let Scratch { found: places, copies, .. } = scratch;
        places.clear();
        copies.clear();
        let mut cache = self.cache.lock();
        let (nodes, fingers) = cache.split();
        let mut found: Option<Leaf<'_>> = None;
        for PlannedChange { key, value_len } in changes {
            let mut leaf = match found.take().filter(|leaf| leaf.bounds.hold(&key)) {
                Some(leaf) => leaf,
                None => match Leaf::at_finger(nodes, fingers, root, generation, &key) {
                    Some(leaf) => leaf,
                    None => match self.find_leaf(nodes, fingers, copies, root, generation, &key)? {
                        Some(leaf) => leaf,
                        None => return Ok(false),
                    },
                },
            };
            let at = leaf.node.search(&key);
            let fits = match value_len {
                Some(length) => leaf.put(at.ok(), length),
                None => leaf.remove(at.ok(), root.height == 1),
            };
            if !fits {
                return Ok(false);
            }
            let (Ok(index) | Err(index)) = at;
            memory::push(places, FoundKey { leaf: leaf.place, index })?;
            found = Some(leaf);
        }
        Ok(true)
    }

    /// The leaf of `key`, unless `key` comes before the first key of a branch. It and the branches
    /// above it must be in memory, and dirty or of an earlier generation.
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[inline(never)]
    fn find_leaf<'c>(
        &self,
        nodes: Nodes<'c>,
        fingers: &mut Fingers,
        copies: &mut NodeCopies,
        root: &Root,
        generation: Generation,
        key: &Key,
    ) -> Result<Option<Leaf<'c>>> {
        let (mut pointer, mut level, mut bounds) = (root.pointer, root.level(), Bounds::ALL);
        let mut above = None;
        loop {
            let address = pointer.addresses[0];
            let Some((node, state)) = nodes.get(address) else { return Ok(None) };
            if check_found(node, &pointer, level).is_err() {
                return Ok(None);
            }
            let place = if pointer.generation != generation {
                // Its blocks are freed one day.
                if self.address_of(&pointer).is_err() {
                    return Ok(None);
                }
                NodePlace::Copied(copies.add(&pointer, node, above)?)
            } else if is_dirty(state) {
                NodePlace::Dirty(address)
            } else {
                return Ok(None);
            };
            if level == 0 {
                fingers.set(root, (address, pointer.generation), bounds);
                return Ok(Some(Leaf::new(place, node, bounds)));
            }
            let (index, child) = step_down(node, key, &mut bounds);
            if bounds.below {
                return Ok(None);
            }
            (pointer, above) = (child, Some((place, index)));
            level -= 1;
        }
    }

    /// Sets or removes a key in the leaf that was [found](Self::find_leaves) for it, probably at
    /// `index`. Returns whether the key was there. Readers are excluded.
    ///
    /// # Errors
    /// None, unless memory is damaged; nothing of this key has changed then.
    pub fn change_leaf(
        &self,
        address: BlockAddress,
        index: usize,
        key: &Key,
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let lost = Error::CorruptMetadata { address, reason: "cached leaf lost" };
        let mut cache = self.cache.lock();
        let leaf = cache.get_mut(address.0, |_| Ok(()))?.ok_or(lost)?;
        let Some(value) = value else {
            self.dentries.forget(key);
            return Ok(leaf.remove_key_near(index, key));
        };
        let (there, rest) = leaf.put_key_near(index, key, value);
        drop(cache);
        if rest.is_some() {
            self.dentries.forget(key);
            return Err(lost);
        }
        self.dentries.changed(key, value);
        Ok(there)
    }
}

impl<'c> Leaf<'c> {
    /// The leaf of `key`, if a finger knows it and it is dirty.
    fn at_finger(
        nodes: Nodes<'c>,
        fingers: &Fingers,
        root: &Root,
        generation: Generation,
        key: &Key,
    ) -> Option<Leaf<'c>> {
        let ((address, birth), bounds) = fingers.find(root, key)?;
        let (node, state) = nodes.get(address)?;
        let fits = birth == generation && is_dirty(state) && is_leaf_of(node, birth);
        fits.then(|| Leaf::new(NodePlace::Dirty(address), node, bounds))
    }

    fn new(place: NodePlace, node: &'c Node, bounds: Bounds) -> Leaf<'c> {
        Leaf { place, node, bounds, free: node.free(), used: node.used() }
    }

    /// Whether there is room for a value of this length. `there`: the index of the key, if it is
    /// there.
    fn put(&mut self, there: Option<usize>, length: usize) -> bool {
        let size = item_size(length);
        let old = there.map_or(0, |index| item_size(self.node.value_len(index)));
        match self.free.checked_sub(size.saturating_sub(old)) {
            Some(free) => {
                self.free = free;
                true
            }
            None => planted(Sabotage::OverfillLeaf),
        }
    }

    /// Whether the leaf need not be merged or removed afterwards.
    fn remove(&mut self, there: Option<usize>, is_root: bool) -> bool {
        if let Some(index) = there {
            self.used -= item_size(self.node.value_len(index));
        }
        is_root || !self.node.is_sparse(self.used)
    }
}

fn is_dirty(state: State) -> bool {
    state == State::Dirty || planted(Sabotage::ChangeSealedLeaf)
}
