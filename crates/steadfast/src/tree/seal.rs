//! Sealing: filling in the checksums of every dirty node from the leaves up, and collecting the
//! nodes to be written.

use alloc::vec::Vec;

use steadfast_media::sync::Arc;
use steadfast_media::{Medium, Temperature};

use crate::error::{Error, Result};
use crate::format::node::Node;
use crate::format::{NodePointer, Root, digest_of};
use crate::memory;
use crate::platform::Platform;
use crate::sort::sort_by_key;
use crate::tree::Store;
use crate::types::BlockAddress;

/// A node that is ready to be written to the addresses of its pointer.
#[derive(Clone)]
pub struct SealedNode {
    /// Addresses, generation and checksum.
    pub pointer: NodePointer,
    /// The bytes.
    pub node: Arc<Node>,
}

impl<M: Medium, P: Platform> Store<M, P> {
    /// An empty list with room for every node that [`seal`](Self::seal) may return.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn room_to_seal(&self) -> Result<Vec<SealedNode>> {
        let mut room = Vec::new();
        room.try_reserve_exact(self.cache_use().dirty).map_err(|_| Error::OutOfMemory)?;
        Ok(room)
    }

    /// Seals every dirty node below `root`, fills in the root's checksum and returns the nodes,
    /// children before parents. The nodes stay in memory until [`set_clean`](Self::set_clean).
    pub fn seal(&self, root: &mut Root, room: Vec<SealedNode>) -> Result<Vec<SealedNode>> {
        let mut sealed = room;
        if self.is_dirty(root.pointer.addresses[0]) {
            root.pointer = self.seal_node(root.pointer, root.level(), &mut sealed)?;
        }
        Ok(sealed)
    }

    /// Depth is bounded by the height of the tree.
    fn seal_node(
        &self,
        pointer: NodePointer,
        level: u8,
        sealed: &mut Vec<SealedNode>,
    ) -> Result<NodePointer> {
        if level > 0 {
            let count = self.node(&pointer, level)?.count();
            for index in 0..count {
                // Not held while the children are sealed: a node with a second owner is copied when
                // it is changed.
                let child = self.node(&pointer, level)?.child(index);
                if child.generation == pointer.generation && self.is_dirty(child.addresses[0]) {
                    let child = self.seal_node(child, level - 1, sealed)?;
                    self.store_child(&pointer, level, index, &child)?;
                }
            }
        }
        self.change(&pointer, level, Node::tidy)?;
        let lost =
            Error::CorruptMetadata { address: pointer.addresses[0], reason: "dirty node lost" };
        let node = self.set_sealed(pointer.addresses[0]).ok_or(lost)?;
        let pointer = NodePointer { digest: digest_of(self.device.crc(node.bytes())), ..pointer };
        memory::push(sealed, SealedNode { pointer, node })?;
        Ok(pointer)
    }

    fn store_child(
        &self,
        pointer: &NodePointer,
        level: u8,
        index: usize,
        child: &NodePointer,
    ) -> Result<()> {
        self.change(pointer, level, |node| {
            node.replace(index, &child.encode());
        })
    }

    /// Writes all copies of sealed nodes, with neighbours in one request. They do not count as
    /// [unflushed](crate::io::Device::unflushed): nothing relies on them before a checkpoint has
    /// flushed them. So no log record waits for that.
    pub fn write_nodes(&self, nodes: &[SealedNode]) -> Result<()> {
        let copies = nodes.iter().flat_map(|sealed| {
            sealed.pointer.copies().map(|address| (address, sealed.node.bytes()))
        });
        let mut writes: Vec<(BlockAddress, &[u8])> = memory::collect(copies)?;
        sort_by_key(&mut writes, |(address, _)| *address);
        let follows = |a: &(BlockAddress, &[u8]), b: &(BlockAddress, &[u8])| {
            a.0.0 + self.device.superblock.node_blocks() == b.0.0
        };
        let mut pieces: Vec<&[u8]> = Vec::new();
        for run in writes.chunk_by(follows) {
            for part in run.chunks(NODES_PER_WRITE) {
                pieces.clear();
                for (_, bytes) in part {
                    memory::push(&mut pieces, *bytes)?;
                }
                // The next change below them soon writes them again elsewhere.
                self.device.medium.write_hinted(
                    self.device.byte_offset(part[0].0),
                    &pieces,
                    Temperature::Hot,
                )?;
            }
        }
        Ok(())
    }
}

/// Limit of the nodes in one request; hosts limit the pieces of a vectored write.
const NODES_PER_WRITE: usize = 256;
