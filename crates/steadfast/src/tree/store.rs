//! The store: nodes and data blocks on the medium, checked when read, with a cache of nodes.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::node::Node;
use crate::format::{NodePointer, Superblock, digest_of};
use crate::io::retry::Patient;
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::cache::{Cache, State};
use crate::tree::plan::Visited;
use crate::tree::read::step_down;
use crate::tree::recent::Recent;
use crate::tree::{CacheUse, SealedNode};
use crate::types::{BlockAddress, BlockRun, Generation};

/// Approximate memory of a cached node beside its bytes.
const NODE_OVERHEAD: usize = 160;
/// Minimum number of nodes in the cache, whatever its size: enough for one operation.
const CACHE_NODES_MIN: usize = 16;

/// Amount of written data that no flush has covered. It holds positions and not a balance, for two
/// reasons. Two concurrent flushes cover the same bytes. Data written during a flush is covered by
/// neither.
#[derive(Debug, Default)]
struct Unflushed {
    /// Bytes written since the volume was opened.
    written: u64,
    /// How many of them are surely flushed.
    flushed: u64,
}

impl Unflushed {
    fn add(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// A flush has ended that began when `written` bytes had been written.
    fn flushed_to(&mut self, written: u64) {
        self.flushed = self.flushed.max(written);
    }

    fn bytes(&self) -> u32 {
        u32::try_from(self.written - self.flushed).unwrap_or(u32::MAX)
    }
}

/// The fields of a superblock that depend on the size of the volume.
#[derive(Debug, Clone, Copy)]
struct VolumeSize {
    blocks: u64,
    reserve_blocks: u64,
}

impl VolumeSize {
    fn of(superblock: &Superblock) -> VolumeSize {
        VolumeSize { blocks: superblock.blocks, reserve_blocks: superblock.reserve_blocks }
    }
}

/// See the module.
pub struct Store<M: Medium, P: Platform> {
    /// The medium below.
    pub medium: Patient<M>,
    /// Clock, locks and checksum.
    pub platform: P,
    /// Parameters of the volume at open. For fields that depend on the present size use
    /// [`superblock_now`](Self::superblock_now).
    pub superblock: Superblock,
    /// The range that could be allocated when the volume was opened: from here, to below
    /// `end_block`.
    first_block: u64,
    end_block: u64,
    /// Fields that change when the volume grows.
    size: RwLock<P::RwLock, VolumeSize>,
    cache: Mutex<P::Mutex, Cache>,
    /// Names and attributes of the working tree, in front of its nodes.
    pub recent: Recent<P>,
    bad_copies: AtomicU32,
    unflushed: Mutex<P::Mutex, Unflushed>,
    written_in_place: AtomicBool,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// A store with `cache_size` bytes for nodes, and for the names in front of them.
    pub fn new(medium: M, platform: P, superblock: Superblock, cache_size: usize) -> Self {
        let recent = Recent::new(cache_size);
        let nodes =
            (cache_size - recent.memory()) / (superblock.node_size as usize + NODE_OVERHEAD);
        Store {
            medium: Patient(medium),
            platform,
            first_block: superblock.first_block(),
            end_block: superblock.end_block(),
            size: RwLock::new(VolumeSize::of(&superblock)),
            superblock,
            recent,
            cache: Mutex::new(Cache::new(nodes.max(CACHE_NODES_MIN))),
            bad_copies: AtomicU32::new(0),
            unflushed: Mutex::new(Unflushed::default()),
            written_in_place: AtomicBool::new(false),
        }
    }

    /// The superblock with the present size of the volume.
    pub fn superblock_now(&self) -> Superblock {
        let VolumeSize { blocks, reserve_blocks } = *self.size.read();
        Superblock { blocks, reserve_blocks, ..self.superblock.clone() }
    }

    /// Number of blocks that files cannot take, at the present size.
    pub fn reserve_blocks(&self) -> u64 {
        self.size.read().reserve_blocks
    }

    /// The volume has grown; `superblock` is the new one.
    pub fn set_size(&self, superblock: &Superblock) {
        *self.size.write() = VolumeSize::of(superblock);
    }

    /// First half of the uuid, stamped into every node.
    pub fn volume_id(&self) -> u64 {
        self.superblock.volume_id()
    }

    /// CRC-32C of `bytes`.
    pub fn crc(&self, bytes: &[u8]) -> u32 {
        self.platform.crc32c(0, bytes)
    }

    /// How full the node cache is.
    pub fn cache_use(&self) -> CacheUse {
        self.cache.lock().usage()
    }

    /// From now on `bytes` bytes of the cache's memory are used for something else.
    pub fn lend(&self, bytes: usize) {
        let node = self.superblock.node_size as usize + NODE_OVERHEAD;
        self.cache.lock().lend(bytes.div_ceil(node));
    }

    /// Metadata copies found bad; the other copy answered.
    pub fn bad_copies(&self) -> u32 {
        self.bad_copies.load(Ordering::Relaxed)
    }

    /// Whether a run lies wholly in the part of the volume that can be allocated.
    pub fn contains(&self, run: BlockRun) -> bool {
        let below = |end: u64| run.start.0 < end && run.count <= end - run.start.0;
        // The volume only grows while it is open, so an address that was valid once needs no lock.
        run.count > 0
            && run.start.0 >= self.first_block
            && (below(self.end_block)
                || below(self.size.read().blocks - self.superblock.head_blocks()))
    }

    pub(super) fn byte_offset(&self, address: BlockAddress) -> u64 {
        address.0 * u64::from(self.superblock.block_size)
    }

    /// Reads whole blocks. It does not check them: the caller has the data checksums.
    pub fn read_blocks(&self, start: BlockAddress, buffer: &mut [u8]) -> Result<()> {
        let count = (buffer.len() as u64).div_ceil(u64::from(self.superblock.block_size));
        if !self.contains(BlockRun { start, count }) {
            return Err(Error::CorruptMetadata {
                address: start,
                reason: "block address out of range",
            });
        }
        Ok(self.medium.read(self.byte_offset(start), buffer)?)
    }

    /// Writes whole blocks of data one after the other.
    pub fn write_blocks(&self, start: BlockAddress, data: &[&[u8]]) -> Result<()> {
        let length: usize = data.iter().map(|piece| piece.len()).sum();
        debug_assert!(self.contains(BlockRun { start, count: 1 }));
        self.medium.write_vectored(self.byte_offset(start), data)?;
        self.unflushed.lock().add(length as u64);
        Ok(())
    }

    /// Notes that blocks were written that were allocated earlier. Call it after the write and
    /// before the extent is published. Replay recognises data that may have been in flight by its
    /// birth, so it cannot recognise this data.
    pub fn note_in_place(&self) {
        self.written_in_place.store(true, Ordering::Release);
    }

    /// Whether [`note_in_place`](Self::note_in_place) was called since the last time.
    pub fn take_in_place(&self) -> bool {
        self.written_in_place.swap(false, Ordering::AcqRel)
    }

    /// Bytes of data written since the last [`flush`](Self::flush) (saturating).
    pub fn unflushed(&self) -> u32 {
        self.unflushed.lock().bytes()
    }

    /// Makes everything written so far durable.
    pub fn flush(&self) -> Result<()> {
        let written = self.unflushed.lock().written;
        self.medium.flush()?;
        self.unflushed.lock().flushed_to(written);
        Ok(())
    }

    /// The node behind `pointer`, which is on `level`.
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

    /// The node behind `pointer`, and whether it is dirty.
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

    /// Goes down the path to `key` as far as nodes are in memory, under one lock: to the leaf, or
    /// to the first node that must be read. `bound`: see [`step_down`].
    pub(super) fn descend(
        &self,
        pointer: &mut NodePointer,
        level: &mut u8,
        key: &Key,
        bound: &mut Option<Key>,
    ) -> Result<Option<Arc<Node>>> {
        let mut cache = self.cache.lock();
        loop {
            let address = self.address_of(pointer)?;
            let Some(node) = cache.get_cached(address.0) else { return Ok(None) };
            check_found(node, pointer, *level)?;
            if *level == 0 {
                return Ok(Some(node.clone()));
            }
            *pointer = step_down(node, key, bound);
            *level -= 1;
        }
    }

    /// Address of the node behind `pointer` in the cache: its first address, if a valid pointer may
    /// have it. All addresses are checked even if one copy is good, because the blocks of both are
    /// freed one day.
    fn address_of(&self, pointer: &NodePointer) -> Result<BlockAddress> {
        let count = self.superblock.node_blocks();
        let mut addresses = pointer.copies().chain([pointer.addresses[0]]);
        match addresses.find(|start| !self.contains(BlockRun { start: *start, count })) {
            None => Ok(pointer.addresses[0]),
            Some(address) => {
                Err(Error::CorruptMetadata { address, reason: "node address out of range" })
            }
        }
    }

    /// Reads a node without the cache, from the first good copy.
    fn read_node(&self, pointer: &NodePointer) -> Result<Node> {
        let mut failure =
            Error::CorruptMetadata { address: pointer.addresses[0], reason: "no copy" };
        for (index, address) in pointer.copies().enumerate() {
            match self.read_node_copy(pointer, address) {
                Ok(node) => {
                    if index > 0 {
                        self.bad_copies.fetch_add(1, Ordering::Relaxed);
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
        let run = BlockRun { start: address, count: self.superblock.node_blocks() };
        if !self.contains(run) {
            return Err(corrupt("node address out of range"));
        }
        let size = self.superblock.node_size as usize;
        let offset = self.byte_offset(address);
        let mut failure = corrupt("checksum mismatch");
        for copy in 0..self.medium.copies().max(1) {
            let mut bytes = memory::zeroed(size)?;
            if let Err(error) = self.medium.read_copy(copy, offset, &mut bytes) {
                failure = error.into();
                continue;
            }
            if digest_of(self.crc(&bytes)) != pointer.digest
                && !planted(Sabotage::IgnoreNodeChecksum)
            {
                self.medium.report_bad(copy, offset, size as u64);
                continue;
            }
            return Node::from_bytes(bytes, self.volume_id()).map_err(corrupt);
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

    /// Adds the first node of a new tree.
    pub fn add_new(&self, address: BlockAddress, node: Node) -> Result<()> {
        self.add_dirty(address, memory::shared(node)?)
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
        let is_sealed = cache.state(address) == Some(State::Frozen);
        let node = cache.get(address).filter(|_| is_sealed)?.clone();
        Some(SealedNode { pointer: *pointer, node })
    }

    /// Whether the node in memory, if there is one, has been written.
    pub fn is_on_medium(&self, address: BlockAddress) -> bool {
        matches!(self.cache.lock().state(address.0), None | Some(State::Clean))
    }

    /// Makes the bytes of a dirty node final until it has been written.
    pub(super) fn freeze(&self, address: BlockAddress) -> Option<Arc<Node>> {
        let mut cache = self.cache.lock();
        let node = cache.get(address.0).cloned();
        cache.set_state(address.0, State::Frozen);
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
        self.recent.clear();
    }
}

/// Whether the node found is the one that `pointer` names.
#[inline]
fn check_found(node: &Node, pointer: &NodePointer, level: u8) -> Result<()> {
    let corrupt = |reason| Err(Error::CorruptMetadata { address: pointer.addresses[0], reason });
    if node.level() != level {
        return corrupt("node on the wrong level");
    }
    if node.generation() != pointer.generation {
        return corrupt("node of another generation");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_during_two_flushes_at_once_stay_unflushed() {
        let mut unflushed = Unflushed::default();
        unflushed.add(100);
        let (first, second) = (unflushed.written, unflushed.written);
        unflushed.flushed_to(first);
        unflushed.add(50);
        unflushed.flushed_to(second);
        assert_eq!(unflushed.bytes(), 50);
        unflushed.flushed_to(unflushed.written);
        assert_eq!(unflushed.bytes(), 0);
    }
}
