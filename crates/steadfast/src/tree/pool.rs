//! Addresses for new nodes, taken out of free space before a change begins, and addresses of nodes that the change
//! made superfluous. This keeps the tree and the allocator from calling each other in the middle of a change.

use alloc::vec::Vec;

use super::NodePointer;
use crate::error::{Error, Result};
use crate::types::BlockAddress;

/// See the module.
#[derive(Debug, Default)]
pub struct NodePool {
    free: Vec<[BlockAddress; 2]>,
    taken: Vec<[BlockAddress; 2]>,
    released: Vec<NodePointer>,
}

impl NodePool {
    /// Addresses at hand.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// The blocks of the addresses at hand.
    pub fn addresses(&self) -> impl Iterator<Item = BlockAddress> + '_ {
        self.free.iter().flatten().copied().filter(|address| *address != BlockAddress::NONE)
    }

    /// Adds a reserved address pair.
    pub fn add(&mut self, addresses: [BlockAddress; 2]) {
        self.free.push(addresses);
    }

    /// Takes an address pair for a new node. The caller of the tree has planned enough of them.
    pub fn take(&mut self) -> Result<[BlockAddress; 2]> {
        let addresses = self.free.pop().ok_or(Error::NoSpace)?;
        self.taken.push(addresses);
        Ok(addresses)
    }

    /// Notes that a node is not part of the tree any more.
    pub fn release(&mut self, pointer: NodePointer) {
        self.released.push(pointer);
    }

    /// What has been taken and released since the last call.
    pub fn settle(&mut self) -> (Vec<[BlockAddress; 2]>, Vec<NodePointer>) {
        (core::mem::take(&mut self.taken), core::mem::take(&mut self.released))
    }

    /// Gives back every address that was not taken.
    pub fn drain(&mut self) -> Vec<[BlockAddress; 2]> {
        core::mem::take(&mut self.free)
    }
}
