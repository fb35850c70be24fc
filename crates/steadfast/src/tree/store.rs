//! The store: nodes on the device, verified when they are read, with a cache of nodes in front.

use lock_api::Mutex;
use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::node::Node;
use crate::format::{NodePointer, Root, Superblock, digest_of};
use crate::io::Device;
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::cache::{Cache, State};
use crate::tree::dentry_cache::DentryCache;
use crate::tree::finger::Bounds;
use crate::tree::plan::Visited;
use crate::tree::read::step_down;
use crate::tree::{CacheUse, SealedNode};
use crate::types::{BlockAddress, BlockRun, Generation};

/// Approximate memory of a cached node beside its bytes.
const NODE_OVERHEAD: usize = 160;
/// Minimum number of nodes in the cache, whatever its size: enough for one operation.
const CACHE_NODES_MIN: usize = 16;

/// See the module.
pub struct Store<M: Medium, P: Platform> {
    /// The device below: blocks are read and written past the cache of nodes.
    pub device: Device<M, P>,
    pub(super) cache: Mutex<P::Mutex, Cache>,
    /// Names and attributes of the working tree, in front of its nodes.
    pub dentries: DentryCache<P>,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// A store with `cache_size` bytes for nodes, and for the names in front of them.
    pub fn new(medium: M, platform: P, superblock: Superblock, cache_size: usize) -> Self {
        let dentries = DentryCache::new(cache_size);
        let nodes =
            (cache_size - dentries.memory()) / (superblock.node_size as usize + NODE_OVERHEAD);
        Store {
            device: Device::new(medium, platform, superblock),
            dentries,
            cache: Mutex::new(Cache::new(nodes.max(CACHE_NODES_MIN))),
        }
    }

    /// How full the node cache is.
    pub fn cache_use(&self) -> CacheUse {
        self.cache.lock().usage()
    }

    /// Memory that [`give_back`](Self::give_back) could free now, in bytes. 0 if the cache is in
    /// use at this moment.
    pub fn can_give_back(&self) -> usize {
        let node = self.device.superblock.node_size as usize + NODE_OVERHEAD;
        let usage = self.cache.try_lock().map(|cache| cache.usage());
        usage.map_or(0, |usage| (usage.nodes - usage.dirty) * node + self.dentries.memory_used())
    }

    /// Frees about `bytes` bytes of memory, if the caches have so many that can go: nodes, then
    /// names. Returns how many. Waits for no lock and allocates nothing.
    pub fn give_back(&self, bytes: usize) -> usize {
        let node = self.device.superblock.node_size as usize + NODE_OVERHEAD;
        let Some(mut cache) = self.cache.try_lock() else { return 0 };
        let freed = cache.give_back(bytes.div_ceil(node)) * node;
        drop(cache);
        freed + self.dentries.give_back(bytes.saturating_sub(freed))
    }

    /// Bytes of the nodes that the cache should hold.
    pub fn node_memory(&self) -> usize {
        self.cache_use().capacity * self.device.superblock.node_size as usize
    }

    /// From now on `bytes` bytes of the cache's memory are used for something else.
    pub fn reduce_capacity(&self, bytes: usize) {
        let node = self.device.superblock.node_size as usize + NODE_OVERHEAD;
        self.cache.lock().reduce_capacity(bytes.div_ceil(node));
    }

    /// The node that `pointer` names, which is on `level`.
    pub fn node(&self, pointer: &NodePointer, level: u8) -> Result<Arc<Node>> {
        let address = self.address_of(pointer)?;
        let cached = self.cache.lock().get(address.0).cloned();
        let node = match cached {
            Some(node) => node,
            None => {
                let node = memory::shared(self.read_node(pointer)?)?;
                let mut cache = self.cache.lock();
                if cache.state(address.0).is_none() {
                    // Without memory for it the node is read again the next time.
                    let _ = cache.insert(address.0, node.clone(), State::Clean);
                }
                node
            }
        };
        check_found(&node, pointer, level)?;
        Ok(node)
    }

    /// The node that `pointer` names, and whether it is dirty.
    pub(super) fn node_to_plan(
        &self,
        pointer: &NodePointer,
        level: u8,
    ) -> Result<(Arc<Node>, bool)> {
        let address = self.address_of(pointer)?;
        let cached = self.cache.lock().get_with_state(address.0);
        match cached {
            Some((node, state)) => {
                check_found(&node, pointer, level)?;
                Ok((node, state == State::Dirty))
            }
            // A node that is not in memory is not dirty.
            None => Ok((self.node(pointer, level)?, false)),
        }
    }

    /// For a change: goes down the path to `key` as [`descend`](Self::descend) does, as long as the
    /// next node is of the working generation. Branches on the path become dirty. `step` gets each
    /// branch, and the index of its child on the path.
    pub(super) fn descend_to_change(
        &self,
        generation: Generation,
        pointer: &mut NodePointer,
        level: &mut u8,
        key: &Key,
        step: &mut dyn FnMut(NodePointer, u8, usize) -> Result<()>,
    ) -> Result<()> {
        let mut cache = self.cache.lock();
        while *level > 0 && pointer.generation == generation {
            let address = self.address_of(pointer)?;
            let Some(node) = cache.get_mut(address.0, |node| check_found(node, pointer, *level))?
            else {
                break;
            };
            let (index, child) = node.step_to_change(key);
            if child.generation != generation {
                break;
            }
            step(*pointer, *level, index)?;
            *pointer = child;
            *level -= 1;
        }
        Ok(())
    }

    /// Goes down the path to `key` under one lock, as far as nodes are in memory. It ends at the
    /// leaf, or at the first node that must be read. Begins at a [finger](crate::tree::finger) if
    /// one knows the leaf.
    pub(super) fn descend(
        &self,
        root: &Root,
        pointer: &mut NodePointer,
        level: &mut u8,
        key: &Key,
        bounds: &mut Bounds,
    ) -> Result<Option<Arc<Node>>> {
        let mut cache = self.cache.lock();
        if let Some(((address, generation), known)) = cache.fingers.find(root, key) {
            let leaf = cache.get_cached(address.0).filter(|node| is_leaf_of(node, generation));
            if let Some(leaf) = leaf {
                *bounds = known;
                return Ok(Some(leaf.clone()));
            }
        }
        loop {
            let address = self.address_of(pointer)?;
            let Some(node) = cache.get_cached(address.0) else { return Ok(None) };
            check_found(node, pointer, *level)?;
            if *level == 0 {
                let leaf = node.clone();
                cache.fingers.set(root, (address, pointer.generation), *bounds);
                return Ok(Some(leaf));
            }
            *pointer = step_down(node, key, bounds).1;
            *level -= 1;
        }
    }

    /// Forgets where look-ups ended: nodes are about to move.
    pub(super) fn forget_fingers(&self) {
        if !planted(Sabotage::KeepFingers) {
            self.cache.lock().fingers.forget();
        }
    }

    /// Address in the cache of the node that `pointer` names: its first address, if a valid pointer
    /// may have it. All addresses are checked even if one copy is good, because the blocks of both
    /// are freed one day.
    pub(super) fn address_of(&self, pointer: &NodePointer) -> Result<BlockAddress> {
        let count = self.device.superblock.node_blocks();
        let is_bad = |start: BlockAddress| !self.device.contains(BlockRun { start, count });
        let [first, second] = pointer.addresses;
        let bad = if is_bad(first) {
            first
        } else if second != BlockAddress::NONE && is_bad(second) {
            second
        } else {
            return Ok(first);
        };
        Err(Error::CorruptMetadata { address: bad, reason: "node address out of range" })
    }

    /// Reads a node without the cache, from the first good copy.
    fn read_node(&self, pointer: &NodePointer) -> Result<Node> {
        let mut failure =
            Error::CorruptMetadata { address: pointer.addresses[0], reason: "no copy" };
        for (index, address) in pointer.copies().enumerate() {
            match self.read_node_copy(pointer, address) {
                Ok(node) => {
                    if index > 0 {
                        self.device.note_bad_copy();
                    }
                    return Ok(node);
                }
                Err(error) if index == 0 => failure = error,
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// Reads and checks one copy of a node, from any of the copies that the medium itself keeps.
    pub fn read_node_copy(&self, pointer: &NodePointer, address: BlockAddress) -> Result<Node> {
        let corrupt = |reason| Error::CorruptMetadata { address, reason };
        let run = BlockRun { start: address, count: self.device.superblock.node_blocks() };
        if !self.device.contains(run) {
            return Err(corrupt("node address out of range"));
        }
        let size = self.device.superblock.node_size as usize;
        let offset = self.device.byte_offset(address);
        let mut failure = corrupt("checksum mismatch");
        for copy in 0..self.device.medium.copies().max(1) {
            let mut bytes = memory::zeroed(size)?;
            if let Err(error) = self.device.medium.read_copy(copy, offset, &mut bytes) {
                failure = error.into();
                continue;
            }
            if digest_of(self.device.crc(&bytes)) != pointer.digest
                && !planted(Sabotage::IgnoreNodeChecksum)
            {
                self.device.medium.report_bad(copy, offset, size as u64);
                continue;
            }
            return Node::from_bytes(bytes, self.device.volume_id()).map_err(corrupt);
        }
        Err(failure)
    }

    /// Adds a new node, dirty.
    pub(super) fn add_dirty(&self, address: BlockAddress, node: Arc<Node>) -> Result<()> {
        self.cache.lock().insert(address.0, node, State::Dirty)
    }

    /// Makes room for `count` more nodes in the cache.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&self, count: usize) -> Result<()> {
        self.cache.lock().reserve(count)
    }

    /// Evicts nodes of a small cache for `count` nodes beside it.
    pub fn evict_for(&self, count: usize) {
        self.cache.lock().evict_for(count);
    }

    /// Changes a node of the working generation, which becomes dirty.
    pub(super) fn change<T>(
        &self,
        pointer: &NodePointer,
        level: u8,
        change: impl FnOnce(&mut Node) -> T,
    ) -> Result<T> {
        let address = self.address_of(pointer)?;
        let fits = |node: &Node| check_found(node, pointer, level);
        let mut cache = self.cache.lock();
        // In most cases the node was read just before.
        if let Some(node) = cache.get_mut(address.0, fits)? {
            return Ok(change(node));
        }
        drop(cache);
        let node = self.node(pointer, level)?;
        let mut cache = self.cache.lock();
        if cache.state(address.0).is_none() {
            cache.insert(address.0, node, State::Dirty)?;
        } else {
            drop(node);
        }
        let lost = Error::CorruptMetadata { address, reason: "cached node lost" };
        Ok(change(cache.get_mut(address.0, fits)?.ok_or(lost)?))
    }

    pub(super) fn is_dirty(&self, address: BlockAddress) -> bool {
        self.cache.lock().state(address.0) == Some(State::Dirty)
    }

    /// The node that was sealed with this pointer, if it was neither written nor changed since.
    pub fn sealed(&self, pointer: &NodePointer) -> Option<SealedNode> {
        let mut cache = self.cache.lock();
        let address = pointer.addresses[0].0;
        let is_sealed = cache.state(address) == Some(State::Sealed);
        let node = cache.get(address).filter(|_| is_sealed)?.clone();
        Some(SealedNode { pointer: *pointer, node })
    }

    /// Whether the node in memory, if there is one, has been written.
    pub fn is_on_medium(&self, address: BlockAddress) -> bool {
        matches!(self.cache.lock().state(address.0), None | Some(State::Clean))
    }

    /// Makes the bytes of a dirty node final until it has been written.
    pub(super) fn set_sealed(&self, address: BlockAddress) -> Option<Arc<Node>> {
        let mut cache = self.cache.lock();
        let node = cache.get(address.0).cloned();
        cache.set_state(address.0, State::Sealed);
        node
    }

    /// Keeps the nodes that a plan has visited in memory, so that the change reads none of them
    /// again.
    ///
    /// # Errors
    /// `OutOfMemory`, if no [room](Self::reserve) was made for them.
    pub fn keep(&self, visited: &[Visited]) -> Result<()> {
        let mut cache = self.cache.lock();
        for visited in visited {
            cache.keep(visited.pointer.addresses[0].0, visited.node.as_ref())?;
        }
        Ok(())
    }

    /// Ends [`keep`](Self::keep) for these nodes.
    pub fn let_go(&self, visited: &[Visited]) {
        let mut cache = self.cache.lock();
        for visited in visited {
            cache.let_go(visited.pointer.addresses[0].0);
        }
    }

    /// Notes that a sealed node has been written.
    pub fn set_clean(&self, address: BlockAddress) {
        self.cache.lock().set_state(address.0, State::Clean);
    }

    /// Drops a node that is not part of any tree.
    pub fn forget(&self, address: BlockAddress) {
        self.cache.lock().remove(address.0);
    }

    /// Drops every node, changed ones too, and the names and attributes in front of them. Readers
    /// are excluded meanwhile.
    pub fn forget_all(&self) {
        self.cache.lock().clear();
        self.dentries.clear();
    }
}

/// Whether the node is a leaf of this generation.
#[inline]
pub(super) fn is_leaf_of(node: &Node, generation: Generation) -> bool {
    node.level() == 0 && node.generation() == generation
}

/// Whether the node found is the one that `pointer` names.
#[inline]
pub(super) fn check_found(node: &Node, pointer: &NodePointer, level: u8) -> Result<()> {
    let corrupt = |reason| Err(Error::CorruptMetadata { address: pointer.addresses[0], reason });
    if node.level() != level {
        return corrupt("node on the wrong level");
    }
    if node.generation() != pointer.generation {
        return corrupt("node of another generation");
    }
    Ok(())
}
