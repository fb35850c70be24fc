//! Nodes of earlier generations above and at the leaves of a batch. A change that stays inside its
//! leaves copies each of them once, from the root down.

use alloc::vec::Vec;

use steadfast_media::Medium;
use steadfast_media::sync::Arc;

use crate::error::{Error, Result};
use crate::format::node::Node;
use crate::format::{NodePointer, Root};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::cache::State;
use crate::tree::{NodePool, Store};
use crate::types::{BlockAddress, Generation};

/// Where a node of the working tree is when the copies have been made.
#[derive(Debug, Clone, Copy)]
pub enum NodePlace {
    /// It is dirty already.
    Dirty(BlockAddress),
    /// It is the copy with this number.
    Copied(usize),
}

/// A node that must be copied.
struct CopiedNode {
    old: NodePointer,
    node: Arc<Node>,
    /// The node above, and the index of the child there; `None` for the root.
    above: Option<(NodePlace, usize)>,
    /// Where the copy is.
    new: BlockAddress,
}

/// The nodes that a batch must copy: each once, after its parent.
#[derive(Default)]
pub struct NodeCopies(Vec<CopiedNode>);

impl NodeCopies {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets all nodes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The blocks of the old nodes.
    pub fn blocks(&self) -> impl Iterator<Item = BlockAddress> + '_ {
        self.0.iter().flat_map(|copied| copied.old.copies())
    }

    /// The number of the node at `old`, which is added unless it is there.
    pub(super) fn add(
        &mut self,
        old: &NodePointer,
        node: &Arc<Node>,
        above: Option<(NodePlace, usize)>,
    ) -> Result<usize> {
        let (address, new) = (old.addresses[0], BlockAddress::NONE);
        if let Some(at) = self.0.iter().rposition(|copied| copied.old.addresses[0] == address) {
            return Ok(at);
        }
        memory::push(&mut self.0, CopiedNode { old: *old, node: node.clone(), above, new })?;
        Ok(self.0.len() - 1)
    }

    /// The address of a node, after the copies were made.
    pub fn address(&self, place: NodePlace) -> BlockAddress {
        match place {
            NodePlace::Dirty(address) => address,
            NodePlace::Copied(at) => self.0[at].new,
        }
    }
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// Copies the nodes to addresses of the pool, which has enough of them, and leads the working
    /// tree to the copies. Readers are excluded.
    ///
    /// # Errors
    /// None, if everything was prepared and memory is sound.
    #[inline(never)]
    pub fn make_copies(
        &self,
        copies: &mut NodeCopies,
        root: &mut Root,
        generation: Generation,
        pool: &mut NodePool,
    ) -> Result<()> {
        if copies.len() == 0 {
            return Ok(());
        }
        self.forget_fingers();
        let mut cache = self.cache.lock();
        for at in 0..copies.len() {
            let CopiedNode { old, node, above, .. } = &copies.0[at];
            let (old, above) = (*old, *above);
            if planted(Sabotage::ChangeCommittedNode) {
                copies.0[at].new = old.addresses[0];
                continue;
            }
            let addresses = pool.take()?;
            let pointer = NodePointer { addresses, generation, digest: Default::default() };
            let address = addresses[0];
            let mut copy = pool.take_node()?;
            let lost = |address| Error::CorruptMetadata { address, reason: "cached node lost" };
            let new = Arc::get_mut(&mut copy).ok_or(lost(address))?;
            new.copy_from(node);
            new.stamp(generation, address.0);
            cache.insert(address.0, copy, State::Dirty)?;
            pool.release(old)?;
            copies.0[at].new = address;
            let Some((place, index)) = above else {
                root.pointer = pointer;
                continue;
            };
            if planted(Sabotage::LeadToOldNode) {
                continue;
            }
            let above = copies.address(place);
            let branch = cache.get_mut(above.0, |_| Ok(()))?.ok_or(lost(above))?;
            branch.replace(index, &pointer.encode());
        }
        Ok(())
    }
}
