//! The structure of an image, taken from docs/FORMAT.md alone: the positions of fields, and how
//! checksums are corrected.

use steadfast::checksum::crc32c_portable;

/// Bytes of a superblock or metaroot.
const STRUCTURE: usize = 512;
/// Position of their digest.
const STRUCTURE_DIGEST: usize = 496;
/// Bytes of a node before its slots.
pub const NODE_HEADER: usize = 48;
/// Bytes of a slot: key, offset, length.
pub const SLOT: usize = 21;
/// Bytes of a pointer.
pub const POINTER: usize = 40;
/// Bytes of a log record before its payload.
pub const RECORD_HEADER: usize = 72;
/// Maximum number of nodes listed.
const NODES_MAX: usize = 2048;

/// Reads a little-endian number of up to eight bytes; bytes beyond the image are zeros.
pub fn get(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut value = [0; 8];
    if let Some(found) = bytes.get(at..at + length) {
        value[..length].copy_from_slice(found);
    }
    u64::from_le_bytes(value)
}

/// Writes such a number, if it lies inside the image.
pub fn set(bytes: &mut [u8], at: usize, length: usize, value: u64) {
    if let Some(place) = bytes.get_mut(at..at + length) {
        place.copy_from_slice(&value.to_le_bytes()[..length]);
    }
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = [0; 16];
    digest[..4].copy_from_slice(&crc32c_portable(0, bytes).to_le_bytes());
    digest
}

/// A node and its path: the index of the child in each branch from the root on.
#[derive(Debug, Clone)]
pub struct Found {
    /// Positions of its copies in the image.
    pub copies: Vec<usize>,
    /// Path from the root.
    pub path: Vec<usize>,
    /// Its level.
    pub level: u8,
}

/// The parameters of an image that is still valid.
#[derive(Debug, Clone)]
pub struct Anatomy {
    /// Bytes of a block.
    pub block: usize,
    /// Bytes of a node.
    pub node: usize,
    /// Bytes of a cell.
    cell: usize,
    /// Blocks of the volume.
    pub blocks: u64,
    /// First block of the log.
    pub log_start: u64,
    /// Blocks of the log.
    pub log_blocks: u64,
}

impl Anatomy {
    /// The parameters in the image's superblock.
    pub fn of(image: &[u8]) -> Anatomy {
        let block = get(image, 64, 4) as usize;
        Anatomy {
            block,
            node: get(image, 68, 4) as usize,
            cell: block.max(STRUCTURE),
            blocks: get(image, 56, 8),
            log_start: get(image, 80, 8),
            log_blocks: get(image, 88, 8),
        }
    }

    /// The positions of the copies of the newest metaroot.
    pub fn metaroot(&self, image: &[u8]) -> [usize; 2] {
        // An erased slot has no generation.
        let generation =
            |slot| Some(get(image, slot * self.cell + 24, 8)).filter(|found| *found != u64::MAX);
        let slot = usize::from(generation(2) > generation(1));
        [self.cell * (1 + slot), image.len() - self.cell * (3 - slot)]
    }

    /// The positions of the copies of the superblock.
    pub fn superblock(&self, image: &[u8]) -> [usize; 2] {
        [0, image.len() - self.cell]
    }

    /// Corrects the digest of a superblock or metaroot, and copies the first copy to the second.
    pub fn seal_structure(&self, image: &mut [u8], copies: [usize; 2]) {
        let [first, second] = copies;
        let right = digest(&image[first..first + STRUCTURE_DIGEST]);
        image[first + STRUCTURE_DIGEST..first + STRUCTURE].copy_from_slice(&right);
        image.copy_within(first..first + STRUCTURE, second);
    }

    /// Positions of the copies that a pointer names.
    fn copies(&self, image: &[u8], pointer: usize) -> Vec<usize> {
        let address = |at| get(image, at, 8);
        let inside = |address: &u64| {
            address
                .checked_mul(self.block as u64)
                .is_some_and(|byte| byte + self.node as u64 <= image.len() as u64)
        };
        [address(pointer), address(pointer + 8)]
            .iter()
            .filter(|address| inside(address))
            .map(|address| *address as usize * self.block)
            .collect()
    }

    /// Number of items of the node at `at`, limited to those that fit.
    pub fn count(&self, image: &[u8], at: usize) -> usize {
        (get(image, at + 6, 2) as usize).min((self.node - NODE_HEADER) / SLOT)
    }

    /// The position of an item's value, if it lies inside its node.
    pub fn value(&self, image: &[u8], node: usize, index: usize) -> Option<(usize, usize)> {
        let slot = node + NODE_HEADER + index * SLOT;
        let (offset, length) =
            (get(image, slot + 17, 2) as usize, get(image, slot + 19, 2) as usize);
        (offset + length <= self.node).then_some((node + offset, length))
    }

    /// All reachable nodes, parents first.
    pub fn nodes(&self, image: &[u8]) -> Vec<Found> {
        let root = self.metaroot(image)[0] + 32;
        let level = (get(image, root + POINTER, 4) as u8).wrapping_sub(1);
        let mut found = vec![Found { copies: self.copies(image, root), path: Vec::new(), level }];
        let mut at = 0;
        while at < found.len() && found.len() < NODES_MAX {
            let parent = found[at].clone();
            at += 1;
            let Some(node) = parent.copies.first().copied().filter(|_| parent.level > 0) else {
                continue;
            };
            for index in 0..self.count(image, node) {
                if let Some((value, POINTER)) = self.value(image, node, index) {
                    let mut path = parent.path.clone();
                    path.push(index);
                    found.push(Found {
                        copies: self.copies(image, value),
                        path,
                        level: parent.level - 1,
                    });
                }
            }
        }
        found.retain(|node| !node.copies.is_empty());
        found
    }

    /// Corrects everything above a node whose first copy was changed: its other copy, the digest in
    /// each pointer on its path, and the metaroot.
    pub fn seal(&self, image: &mut [u8], path: &[usize]) {
        let copies = self.metaroot(image);
        // The pointers on the path, from the metaroot's down.
        let mut pointers = vec![copies[0] + 32];
        for index in path {
            let last = pointers[pointers.len() - 1];
            let Some(node) = self.copies(image, last).first().copied() else { break };
            match self.value(image, node, *index) {
                Some((value, POINTER)) => pointers.push(value),
                _ => break,
            }
        }
        for pointer in pointers.into_iter().rev() {
            let nodes = self.copies(image, pointer);
            if let Some(first) = nodes.first().copied() {
                for other in &nodes[1..] {
                    image.copy_within(first..first + self.node, *other);
                }
                let right = digest(&image[first..first + self.node]);
                image[pointer + 24..pointer + POINTER].copy_from_slice(&right);
            }
        }
        self.seal_structure(image, copies);
    }

    /// The log records after the metaroot: the position of each, and the length of its payload. The
    /// list ends before the first record that wraps around the end of the log.
    pub fn records(&self, image: &[u8]) -> Vec<(usize, usize)> {
        let metaroot = self.metaroot(image)[0];
        let mut lsn = get(image, metaroot + 112, 8);
        let mut block = get(image, metaroot + 120, 8);
        let mut found = Vec::new();
        while block < self.log_blocks {
            let at = (self.log_start + block) as usize * self.block;
            let payload = get(image, at + 48, 4) as usize;
            let blocks = (RECORD_HEADER + payload).div_ceil(self.block) as u64;
            if get(image, at, 4) != u64::from(u32::from_le_bytes(*b"SFLR"))
                || get(image, at + 16, 8) != lsn
                || block + blocks > self.log_blocks
            {
                break;
            }
            found.push((at, payload));
            lsn += 1;
            block += blocks;
        }
        found
    }

    /// The longest payload that fits into the same number of blocks as one of this length.
    pub fn record_room(&self, payload: usize) -> usize {
        (RECORD_HEADER + payload).next_multiple_of(self.block) - RECORD_HEADER
    }

    /// Corrects the digests of all records from `first` on, and the chain between them.
    pub fn seal_records(&self, image: &mut [u8], records: &[(usize, usize)], first: usize) {
        let mut previous: Option<[u8; 16]> = None;
        for (at, payload) in records.iter().copied().skip(first) {
            if let Some(previous) = previous {
                image[at + 32..at + 48].copy_from_slice(&previous);
            }
            image[at + 56..at + RECORD_HEADER].fill(0);
            let right = digest(&image[at..at + RECORD_HEADER + payload]);
            image[at + 56..at + RECORD_HEADER].copy_from_slice(&right);
            previous = Some(right);
        }
    }
}
