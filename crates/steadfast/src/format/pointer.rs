//! How one node of the tree refers to another: address, generation and checksum.

use super::{DIGEST_SIZE, Digest, FieldReader, FieldWriter};
use crate::types::{BlockAddress, Generation};

/// Highest tree. A branch has at least two children, so no volume needs more.
pub const HEIGHT_MAX: u32 = 64;

/// Address of a node, and its identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePointer {
    /// First block of each copy; the second is [`BlockAddress::NONE`] where metadata is kept once.
    pub addresses: [BlockAddress; 2],
    /// Generation in which the node was allocated (its birth).
    pub generation: Generation,
    /// Checksum of the whole node.
    pub digest: Digest,
}

impl NodePointer {
    /// Encoded length, bytes.
    pub const LEN: usize = 24 + DIGEST_SIZE;

    /// The encoding inside a branch and the metaroot.
    #[inline]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        FieldWriter::new(&mut bytes)
            .u64(self.addresses[0].0)
            .u64(self.addresses[1].0)
            .u64(self.generation.0)
            .bytes(&self.digest);
        bytes
    }

    /// Decodes the encoded form. Every value is possible; the reader of the node checks it.
    #[inline]
    pub fn decode(bytes: &[u8; Self::LEN]) -> NodePointer {
        let mut fields = FieldReader::new(bytes);
        NodePointer {
            addresses: [BlockAddress(fields.u64()), BlockAddress(fields.u64())],
            generation: Generation(fields.u64()),
            digest: fields.array(),
        }
    }

    /// The existing copies.
    pub fn copies(&self) -> impl Iterator<Item = BlockAddress> + use<> {
        self.addresses.into_iter().filter(|address| *address != BlockAddress::NONE)
    }
}

/// A whole tree: its root and the number of levels (1: the root is a leaf).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Pointer to the root node.
    pub pointer: NodePointer,
    /// Number of levels.
    pub height: u32,
}

impl Root {
    /// Level of the root node.
    #[inline]
    pub fn level(&self) -> u8 {
        (self.height - 1) as u8
    }
}
