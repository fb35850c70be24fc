//! Forged images: damage with correct checksums, as a bug would leave it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use steadfast_media::{Medium, MemoryMedium};

use crate::format::key::Key;
use crate::format::{Metaroot, Node, NodePointer, Superblock, digest_of};
use crate::platform::Platform;
use crate::testing::TestPlatform;
use crate::tree::{SealedNode, Store};
use crate::types::BlockAddress;

/// A closed volume whose tree is edited in place.
pub struct Forge {
    pub medium: Arc<MemoryMedium>,
    pub store: Store<Arc<MemoryMedium>, TestPlatform>,
    pub metaroot: Metaroot,
}

impl Forge {
    pub fn new(bytes: &[u8]) -> Forge {
        let medium = Arc::new(MemoryMedium::from_bytes(bytes, 512).unwrap());
        let (superblock, _) = Superblock::read(&medium, &TestPlatform::new()).unwrap();
        let metaroot = Metaroot::read_newest(&medium, &superblock, &TestPlatform::new()).unwrap();
        let store = Store::new(medium.clone(), TestPlatform::new(), superblock, 1 << 20);
        Forge { medium, store, metaroot }
    }

    /// Writes the metaroot after `change`.
    pub fn metaroot(&mut self, change: impl FnOnce(&mut Metaroot)) {
        change(&mut self.metaroot);
        let medium = &self.medium;
        self.metaroot
            .write(medium, &self.store.device.superblock, &TestPlatform::new(), || Ok(()))
            .unwrap();
    }

    /// The pointers from the root to the leaf for `key`.
    pub fn path(&self, key: &Key) -> Vec<NodePointer> {
        let mut path = alloc::vec![self.metaroot.root];
        for level in (1..self.metaroot.height as u8).rev() {
            let node =
                self.store.read_node_copy(&path[path.len() - 1], path[path.len() - 1].addresses[0]);
            let node = node.unwrap();
            assert_eq!(node.level(), level);
            path.push(node.child(node.child_index(key)));
        }
        path
    }

    /// Changes the node `depth` levels below the root on the path to `key`, in all its copies, and
    /// every checksum above.
    pub fn node(&mut self, key: &Key, depth: usize, change: impl FnOnce(&mut Node)) {
        let path = self.path(key);
        let read = |pointer: &NodePointer| {
            self.store.read_node_copy(pointer, pointer.addresses[0]).unwrap()
        };
        let mut node = read(&path[depth]);
        change(&mut node);
        let mut pointer = path[depth];
        for above in (0..depth).rev() {
            pointer = self.write(pointer, node);
            node = read(&path[above]);
            let index = node.child_index(key);
            node.replace(index, &pointer.encode());
            pointer = path[above];
        }
        let root = self.write(pointer, node);
        self.metaroot(|metaroot| metaroot.root = root);
    }

    fn write(&self, pointer: NodePointer, mut node: Node) -> NodePointer {
        node.tidy();
        let pointer = NodePointer {
            digest: digest_of(TestPlatform::new().crc32c(0, node.bytes())),
            ..pointer
        };
        self.store.write_nodes(&[SealedNode { pointer, node: Arc::new(node) }]).unwrap();
        pointer
    }

    /// Changes the item under `key`: `None` if there is none, or if it is to be removed.
    pub fn item(&mut self, key: &Key, change: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>) {
        let depth = self.metaroot.height as usize - 1;
        self.node(key, depth, |leaf| {
            let found = leaf.search(key);
            let value = found.ok().map(|index| leaf.value(index).to_vec());
            match (change(value), found) {
                (Some(value), Ok(index)) => assert!(leaf.replace(index, &value)),
                (Some(value), Err(index)) => leaf.insert(index, key, &value),
                (None, Ok(index)) => leaf.remove(index),
                (None, Err(_)) => panic!("nothing to remove"),
            }
        });
    }

    /// The value under `key`.
    pub fn value(&self, key: &Key) -> Vec<u8> {
        self.store.get(&self.metaroot.root(), key).unwrap().expect("the key exists")
    }

    /// Flips bits in the first bytes of a block.
    pub fn rot(&self, address: BlockAddress) {
        self.rot_bytes(address.0 * u64::from(self.store.device.superblock.block_size));
    }

    /// Flips bits in the atomic unit at byte `offset`.
    pub fn rot_bytes(&self, offset: u64) {
        let mut unit = [0; 512];
        self.medium.read(offset, &mut unit).unwrap();
        for byte in &mut unit[..40] {
            *byte ^= 0x5a;
        }
        self.medium.write(offset, &unit).unwrap();
    }
}
