//! Cached nodes, found by the block of their first copy.
//!
//! Clean nodes are evicted when room is needed (second chance, a clock). Dirty nodes (changed, not
//! yet written) and sealed ones (being written) stay. The volume writes them out before they take
//! more than their share.

use alloc::vec::Vec;

use hashbrown::HashMap;
use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::node::Node;
use crate::memory;
use crate::tree::finger::Fingers;
use crate::types::BlockAddress;

/// Limit of the clock hand's steps for one eviction; after that the cache grows instead of
/// stalling.
const CLOCK_STEPS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Clean,
    Dirty,
    Sealed,
}

struct CachedNode {
    node: Arc<Node>,
    state: State,
    referenced: bool,
    /// A change in progress relies on it.
    kept: bool,
    ring: usize,
}

/// How full the cache is, in nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUse {
    /// All cached nodes.
    pub nodes: usize,
    /// Nodes that are not written yet, and so cannot be evicted.
    pub dirty: usize,
    /// Nodes that the cache should hold.
    pub capacity: usize,
    /// Look-ups answered from memory.
    pub hits: u64,
    /// Look-ups that read the medium.
    pub misses: u64,
}

/// The nodes in memory, for a caller that needs several at once.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'c>(&'c HashMap<u64, CachedNode>);

impl<'c> Nodes<'c> {
    /// A node and its state. Does not count as a use.
    #[inline]
    pub(super) fn get(self, address: BlockAddress) -> Option<(&'c Arc<Node>, State)> {
        self.0.get(&address.0).map(|entry| (&entry.node, entry.state))
    }
}

/// Nodes of a cache that counts as small.
const SMALL: usize = 64;

pub(super) struct Cache {
    /// Leaves that were reached lately.
    pub(super) fingers: Fingers,
    entries: HashMap<u64, CachedNode>,
    ring: Vec<u64>,
    hand: usize,
    capacity: usize,
    /// Nodes by which the capacity is reduced at present.
    reduced_by: usize,
    dirty: usize,
    hits: u64,
    misses: u64,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Cache {
            fingers: Fingers::default(),
            entries: HashMap::new(),
            ring: Vec::new(),
            hand: 0,
            capacity,
            reduced_by: 0,
            dirty: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Reduces the capacity by `nodes` nodes, at most by half. Present nodes are evicted as others
    /// come.
    pub(super) fn reduce_capacity(&mut self, nodes: usize) {
        self.reduced_by = nodes.min(self.capacity / 2);
    }

    fn room(&self) -> usize {
        self.capacity - self.reduced_by
    }

    pub(super) fn usage(&self) -> CacheUse {
        CacheUse {
            nodes: self.entries.len(),
            dirty: self.dirty,
            capacity: self.room(),
            hits: self.hits,
            misses: self.misses,
        }
    }

    #[inline]
    pub(super) fn get(&mut self, address: u64) -> Option<&Arc<Node>> {
        // Counted in both cases, because the caller reads a missing node.
        if !self.entries.contains_key(&address) {
            self.misses += 1;
        }
        self.get_cached(address)
    }

    /// As [`get`](Self::get), for callers that do not read a missing node.
    #[inline]
    pub(super) fn get_cached(&mut self, address: u64) -> Option<&Arc<Node>> {
        let entry = self.entries.get_mut(&address)?;
        entry.referenced = true;
        self.hits += 1;
        Some(&entry.node)
    }

    /// The nodes and the fingers apart.
    pub(super) fn split(&mut self) -> (Nodes<'_>, &mut Fingers) {
        (Nodes(&self.entries), &mut self.fingers)
    }

    #[inline]
    pub(super) fn get_with_state(&mut self, address: u64) -> Option<(Arc<Node>, State)> {
        let entry = self.entries.get_mut(&address)?;
        entry.referenced = true;
        self.hits += 1;
        Some((entry.node.clone(), entry.state))
    }

    pub(super) fn state(&self, address: u64) -> Option<State> {
        self.entries.get(&address).map(|entry| entry.state)
    }

    /// The node for changing, if it is there and `fits` accepts it; it becomes dirty. Readers are
    /// excluded while a tree changes, so normally the cache is the only owner. Another owner can
    /// exist if nodes are read outside the tree; the node is copied then.
    ///
    /// # Errors
    /// Those of `fits`; `OutOfMemory` for the copy. The node is unchanged then.
    #[inline]
    pub(super) fn get_mut(
        &mut self,
        address: u64,
        fits: impl FnOnce(&Node) -> Result<()>,
    ) -> Result<Option<&mut Node>> {
        let Some(entry) = self.entries.get_mut(&address) else { return Ok(None) };
        fits(&entry.node)?;
        if Arc::get_mut(&mut entry.node).is_none() {
            entry.node = memory::shared(entry.node.copy()?)?;
        }
        if entry.state == State::Clean {
            self.dirty += 1;
        }
        entry.state = State::Dirty;
        entry.referenced = true;
        Ok(Arc::get_mut(&mut entry.node))
    }

    /// Makes room for `count` more entries.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<()> {
        self.entries.try_reserve(count).map_err(|_| Error::OutOfMemory)?;
        self.ring.try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// # Errors
    /// `OutOfMemory`, if no [room](Self::reserve) was made before; nothing has changed then.
    pub(super) fn insert(&mut self, address: u64, node: Arc<Node>, state: State) -> Result<()> {
        self.reserve(1)?;
        self.remove(address);
        if self.entries.len() >= self.room() {
            self.evict();
        }
        if state != State::Clean {
            self.dirty += 1;
        }
        let ring = self.ring.len();
        self.ring.push(address);
        self.entries
            .insert(address, CachedNode { node, state, referenced: false, kept: false, ring });
        Ok(())
    }

    /// Protects an entry from eviction. An entry that was evicted meanwhile is restored as `node`,
    /// clean.
    pub(super) fn keep(&mut self, address: u64, node: Option<&Arc<Node>>) -> Result<()> {
        if let (false, Some(node)) = (self.entries.contains_key(&address), node) {
            self.insert(address, node.clone(), State::Clean)?;
        }
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.kept = true;
        }
        Ok(())
    }

    /// Ends [`keep`](Self::keep).
    pub(super) fn let_go(&mut self, address: u64) {
        if let Some(entry) = self.entries.get_mut(&address) {
            entry.kept = false;
        }
    }

    pub(super) fn set_state(&mut self, address: u64, state: State) {
        if let Some(entry) = self.entries.get_mut(&address) {
            self.dirty += usize::from(state != State::Clean);
            self.dirty -= usize::from(entry.state != State::Clean);
            entry.state = state;
        }
    }

    pub(super) fn remove(&mut self, address: u64) {
        if let Some(entry) = self.entries.remove(&address) {
            self.dirty -= usize::from(entry.state != State::Clean);
            self.ring.swap_remove(entry.ring);
            if let Some(moved) =
                self.ring.get(entry.ring).and_then(|moved| self.entries.get_mut(moved))
            {
                moved.ring = entry.ring;
            }
        }
    }

    /// Drops all entries, as a rollback does.
    pub(super) fn clear(&mut self) {
        self.fingers.forget();
        self.entries.clear();
        self.ring.clear();
        self.hand = 0;
        self.dirty = 0;
    }

    /// Evicts clean nodes of a small cache, so that `count` nodes beside it take no more memory
    /// than it may. They are many for it, and few for a large one.
    pub(super) fn evict_for(&mut self, count: usize) {
        while self.capacity <= SMALL && self.entries.len() + count > self.room() {
            let before = self.entries.len();
            self.evict();
            if self.entries.len() == before {
                return;
            }
        }
    }

    fn evict(&mut self) {
        for _ in 0..CLOCK_STEPS.min(2 * self.ring.len()) {
            // Evicts one more if an earlier insertion could not evict.
            if self.step() && self.entries.len() < self.room() {
                return;
            }
        }
    }

    /// Evicts up to `count` clean nodes, those first that were not used lately. Returns their
    /// number.
    pub(super) fn give_back(&mut self, count: usize) -> usize {
        let mut evicted = 0;
        for _ in 0..2 * self.ring.len() {
            if evicted == count || self.ring.is_empty() {
                break;
            }
            evicted += usize::from(self.step());
        }
        evicted
    }

    /// One step of the hand of a clock that is not empty. Returns whether the node there was
    /// evicted.
    fn step(&mut self) -> bool {
        self.hand = if self.hand + 1 >= self.ring.len() { 0 } else { self.hand + 1 };
        let address = self.ring[self.hand];
        if let Some(entry) = self.entries.get_mut(&address) {
            if entry.state != State::Clean || entry.kept {
                return false;
            }
            if entry.referenced {
                entry.referenced = false;
                return false;
            }
        }
        self.remove(address);
        true
    }
}
