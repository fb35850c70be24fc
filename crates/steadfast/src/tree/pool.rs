//! Addresses for new nodes, taken from free space before a change begins, and addresses of nodes
//! that the change has released. So the tree and the allocator never call each other in the middle
//! of a change.

use alloc::vec::Vec;

use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{Node, NodePointer};
use crate::memory;
use crate::types::BlockAddress;

/// Blank nodes that are kept for the next change.
const BLANK_KEPT: usize = 4;

/// Lists of taken and released nodes with more places than this give their memory back.
const LISTS_KEPT: usize = 32;

/// See the module.
#[derive(Default)]
pub struct NodePool {
    free: Vec<[BlockAddress; 2]>,
    taken: Vec<[BlockAddress; 2]>,
    released: Vec<NodePointer>,
    /// Memory for new nodes.
    blank: Vec<Arc<Node>>,
}

impl NodePool {
    /// Number of available addresses.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// The blocks of the next `count` nodes to be [taken](Self::take).
    pub fn next(&self, count: usize) -> impl Iterator<Item = BlockAddress> + '_ {
        let next = &self.free[self.free.len().saturating_sub(count)..];
        next.iter().flatten().copied().filter(|address| *address != BlockAddress::NONE)
    }

    /// Adds an allocated address pair.
    ///
    /// # Errors
    /// `OutOfMemory`, if there is no [room](Self::reserve) for it.
    pub fn add(&mut self, addresses: [BlockAddress; 2]) -> Result<()> {
        memory::push(&mut self.free, addresses)
    }

    /// Makes room for `count` addresses to be [added](Self::add), with those that are there.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve_addresses(&mut self, count: usize) -> Result<()> {
        let more = count.saturating_sub(self.free.len());
        self.free.try_reserve(more).map_err(|_| Error::OutOfMemory)
    }

    /// Makes room for `taken` addresses to be taken and `released` nodes to be noted.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve(&mut self, taken: usize, released: usize) -> Result<()> {
        self.taken.try_reserve(taken).map_err(|_| Error::OutOfMemory)?;
        self.released.try_reserve(released).map_err(|_| Error::OutOfMemory)
    }

    /// Takes an address pair for a new node. The plan of the change provides enough of them.
    pub fn take(&mut self) -> Result<[BlockAddress; 2]> {
        let addresses = self.free.pop().ok_or(Error::NoSpace)?;
        memory::push(&mut self.taken, addresses)?;
        Ok(addresses)
    }

    /// Notes that a node is no longer part of the tree.
    ///
    /// # Errors
    /// `OutOfMemory`, if there is no [room](Self::reserve) for it.
    pub fn release(&mut self, pointer: NodePointer) -> Result<()> {
        memory::push(&mut self.released, pointer)
    }

    /// Allocates memory for `count` new nodes of this size.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn reserve_nodes(&mut self, count: usize, node_size: usize) -> Result<()> {
        while self.blank.len() < count {
            memory::push(&mut self.blank, memory::shared(Node::blank(node_size)?)?)?;
        }
        Ok(())
    }

    /// Takes the memory of a new node. The plan of the change provides enough of it.
    pub fn take_node(&mut self) -> Result<Arc<Node>> {
        self.blank.pop().ok_or(Error::OutOfMemory)
    }

    /// The addresses taken and nodes released since the last call. The caller
    /// [returns](Self::return_lists) the lists.
    pub fn take_lists(&mut self) -> (Vec<[BlockAddress; 2]>, Vec<NodePointer>) {
        // Otherwise a change that might have needed many nodes would keep them for ever.
        self.blank.truncate(BLANK_KEPT);
        (core::mem::take(&mut self.taken), core::mem::take(&mut self.released))
    }

    /// Takes the memory of the lists of [`take_lists`](Self::take_lists) back.
    pub fn return_lists(&mut self, taken: Vec<[BlockAddress; 2]>, released: Vec<NodePointer>) {
        (self.taken, self.released) = (emptied(taken), emptied(released));
    }

    /// Returns every address that was not taken.
    pub fn drain(&mut self) -> Vec<[BlockAddress; 2]> {
        core::mem::take(&mut self.free)
    }

    /// Returns an address while there are more than `count`.
    pub fn pop_beyond(&mut self, count: usize) -> Option<[BlockAddress; 2]> {
        if self.free.len() > count { self.free.pop() } else { None }
    }
}

/// An empty list, in the same memory if that is little. It does not shrink: for that an allocator
/// may need a new block, and a list cannot report that there is none.
fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
    if list.capacity() > LISTS_KEPT {
        return Vec::new();
    }
    list.clear();
    list
}
