//! Searching every block for tree nodes.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use hashbrown::{HashMap, HashSet};
use steadfast_media::Medium;

use crate::format::key::Key;
use crate::format::{Digest, NODE_MAGIC, Node, NodePointer, digest_of};
use crate::platform::Platform;
use crate::tools::salvage::SalvageProgress;
use crate::tree::Store;
use crate::types::{BlockAddress, Generation};

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;

/// A leaf found by the scan.
#[derive(Debug, Clone, Copy)]
pub struct FoundLeaf {
    /// Where it was found.
    block: u64,
    /// The address of its first copy, as stored in the node.
    stated: BlockAddress,
    generation: Generation,
    digest: Digest,
    /// The keys that belong here, according to a branch that points to it with this checksum.
    /// `None` if no such branch was found, or if the end of the range is unknown.
    pub range: Option<(Key, Key)>,
    proven: bool,
}

/// A pointer in a branch.
struct Pointed {
    generation: Generation,
    digest: Digest,
    low: Key,
    /// The first key of the next child.
    high: Option<Key>,
}

/// The leaves of a medium, the newest first.
pub struct Scan {
    leaves: Vec<FoundLeaf>,
}

impl Scan {
    /// Reads all blocks of the medium that nodes can be in; nodes above generation `limit` do not
    /// count.
    pub fn run<M: Medium, P: Platform>(
        store: &Store<M, P>,
        limit: Option<Generation>,
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Scan {
        let block_size = u64::from(store.device.superblock.block_size);
        let (first, end) =
            (store.device.superblock.first_block(), store.device.superblock.end_block());
        let per_chunk = (CHUNK / block_size).max(1);
        let mut found = Found::default();
        let mut buffer = vec![0; (per_chunk * block_size) as usize];
        let mut block = first;
        while block < end {
            let count = per_chunk.min(end - block);
            let bytes = &mut buffer[..(count * block_size) as usize];
            let whole = store.device.medium.read(block * block_size, bytes).is_ok();
            for index in 0..count {
                let at = (index * block_size) as usize;
                // If a chunk cannot be read as a whole, each of its blocks is read alone.
                if !whole || bytes[at..at + NODE_MAGIC.len()] == NODE_MAGIC {
                    found.look_at(store, block + index, limit);
                }
            }
            block += count;
            progress(SalvageProgress {
                done: (block - first) * block_size,
                total: (end - first) * block_size,
            });
        }
        Scan { leaves: found.into_leaves() }
    }

    /// The leaves in order of precedence.
    pub fn leaves(&self) -> impl Iterator<Item = &FoundLeaf> {
        self.leaves.iter()
    }

    /// Reads a leaf again.
    pub fn read<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        leaf: &FoundLeaf,
    ) -> Option<Node> {
        let (node, digest) = read_at(store, leaf.block)?;
        (digest == leaf.digest).then_some(node)
    }
}

/// Results so far.
#[derive(Default)]
struct Found {
    leaves: Vec<FoundLeaf>,
    /// Leaves by the address and generation stored in them: both copies are one.
    known: HashSet<(BlockAddress, Generation, Digest)>,
    /// Targets of the branches.
    pointed: HashMap<BlockAddress, Vec<Pointed>>,
}

impl Found {
    fn look_at<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        block: u64,
        limit: Option<Generation>,
    ) {
        let Some((node, digest)) = read_at(store, block) else { return };
        let generation = node.generation();
        // A node that is neither at its stored address nor a second copy is a stray copy.
        let stated = node.address();
        let elsewhere =
            stated != BlockAddress(block) && store.device.superblock.metadata_copies < 2;
        if elsewhere || limit.is_some_and(|limit| generation > limit) {
            return;
        }
        if node.level() > 0 {
            for index in 0..node.count() {
                let NodePointer { addresses, generation, digest } = node.child(index);
                let high = (index + 1 < node.count()).then(|| node.key(index + 1));
                let pointed = Pointed { generation, digest, low: node.key(index), high };
                self.pointed.entry(addresses[0]).or_default().push(pointed);
            }
        } else if self.known.insert((stated, generation, digest)) {
            self.leaves.push(FoundLeaf {
                block,
                stated,
                generation,
                digest,
                range: None,
                proven: false,
            });
        }
    }

    fn into_leaves(self) -> Vec<FoundLeaf> {
        let mut leaves = self.leaves;
        for leaf in &mut leaves {
            let pointers = self.pointed.get(&leaf.stated).into_iter().flatten();
            for pointed in pointers {
                if (pointed.generation, pointed.digest) == (leaf.generation, leaf.digest) {
                    leaf.proven = true;
                    let high = pointed.high.and_then(|high| high.predecessor());
                    leaf.range = leaf.range.or(high.map(|high| (pointed.low, high)));
                }
            }
        }
        leaves.sort_unstable_by_key(|leaf| {
            (Reverse(leaf.generation), Reverse(leaf.proven), leaf.block)
        });
        leaves
    }
}

/// The node at `block`, if the block can hold one.
fn read_at<M: Medium, P: Platform>(store: &Store<M, P>, block: u64) -> Option<(Node, Digest)> {
    if block + store.device.superblock.node_blocks() > store.device.superblock.end_block() {
        return None;
    }
    let mut bytes = vec![0; store.device.superblock.node_size as usize];
    store
        .device
        .medium
        .read(block * u64::from(store.device.superblock.block_size), &mut bytes)
        .ok()?;
    let digest = digest_of(store.device.crc(&bytes));
    Some((Node::from_bytes(bytes, store.device.volume_id()).ok()?, digest))
}
