//! Fingers: the leaves at which the last look-ups ended, each with the keys that belong there. A
//! look-up of such a key starts at the leaf instead of the root. That is *finger search*: Guibas,
//! McCreight, Plass and Roberts, "A new representation for linear lists", 1977. The keys of one
//! file are neighbours, so most look-ups of an operation end at the same leaf.
//!
//! Invariant: a finger says the truth about the tree of its root. A change that moves, splits or
//! removes nodes [forgets](Fingers::forget) all fingers first, and sets none until it is done.

use crate::format::Root;
use crate::format::key::Key;
use crate::types::{BlockAddress, Generation};

/// Number of fingers: an operation on a name concerns the directory, the name and the file.
const FINGERS: usize = 4;

/// The keys that a way down from the root leads to the same leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The lowest of them, as far as the branches say.
    pub low: Key,
    /// The lowest key after them, if there is a leaf after this one.
    pub high: Option<Key>,
    /// The key that was looked up is below the first key of a branch.
    pub below: bool,
}

impl Bounds {
    /// Those of the root.
    pub const ALL: Bounds = Bounds { low: Key::MIN, high: None, below: false };

    /// Whether the way to `key` leads to the same leaf.
    #[inline]
    pub fn hold(&self, key: &Key) -> bool {
        self.low <= *key && self.high.is_none_or(|high| *key < high)
    }
}

/// What tells a node from all others, whatever its checksum is at present.
pub(super) type NodeId = (BlockAddress, Generation);

#[derive(Clone, Copy)]
struct Finger {
    root: NodeId,
    leaf: NodeId,
    bounds: Bounds,
}

/// See the module.
#[derive(Default)]
pub(super) struct Fingers {
    fingers: [Option<Finger>; FINGERS],
    /// The one that was set last.
    last: usize,
}

impl Fingers {
    /// The leaf of `key`, if a finger knows it.
    #[inline]
    pub fn find(&self, root: &Root, key: &Key) -> Option<(NodeId, Bounds)> {
        // The newest one first.
        for age in 0..FINGERS {
            let Some(finger) = &self.fingers[(self.last + FINGERS - age) % FINGERS] else {
                continue;
            };
            if finger.bounds.hold(key) && finger.root == id(root) {
                return Some((finger.leaf, finger.bounds));
            }
        }
        None
    }

    /// Sets a finger at a leaf below `root`.
    pub fn set(&mut self, root: &Root, leaf: NodeId, bounds: Bounds) {
        if bounds.below {
            return;
        }
        self.last = (self.last + 1) % FINGERS;
        self.fingers[self.last] = Some(Finger { root: id(root), leaf, bounds });
    }

    /// Forgets all fingers.
    pub fn forget(&mut self) {
        self.fingers = Default::default();
    }
}

fn id(root: &Root) -> NodeId {
    (root.pointer.addresses[0], root.pointer.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::NodePointer;
    use crate::types::InodeNumber;

    fn key(inode: u64) -> Key {
        Key::inode(InodeNumber(inode))
    }

    fn root(address: u64) -> Root {
        let addresses = [BlockAddress(address), BlockAddress::NONE];
        let (generation, digest) = (Generation(3), Default::default());
        Root { pointer: NodePointer { addresses, generation, digest }, height: 2 }
    }

    fn leaf(address: u64) -> NodeId {
        (BlockAddress(address), Generation(3))
    }

    fn bounds(low: u64, high: u64) -> Bounds {
        Bounds { low: key(low), high: Some(key(high)), below: false }
    }

    #[test]
    fn a_finger_knows_the_keys_of_its_leaf_below_its_root() {
        let mut fingers = Fingers::default();
        fingers.set(&root(1), leaf(10), bounds(5, 9));
        fingers.set(&root(2), leaf(20), bounds(5, 9));
        let found = |fingers: &Fingers, root: &Root, inode| {
            fingers.find(root, &key(inode)).map(|((address, _), _)| address.0)
        };
        for (inode, expected) in [(4, None), (5, Some(10)), (8, Some(10)), (9, None)] {
            assert_eq!(found(&fingers, &root(1), inode), expected, "inode {inode}");
        }
        assert_eq!(found(&fingers, &root(2), 5), Some(20));
        assert_eq!(found(&fingers, &root(3), 5), None);
        // The last leaf has no end.
        fingers.set(&root(1), leaf(11), Bounds { high: None, ..bounds(9, 9) });
        assert_eq!(found(&fingers, &root(1), u64::MAX), Some(11));
        fingers.forget();
        assert_eq!(found(&fingers, &root(1), 5), None);
    }

    #[test]
    fn the_oldest_finger_goes_and_a_key_below_a_branch_gets_none() {
        let mut fingers = Fingers::default();
        for number in 0..=FINGERS as u64 {
            fingers.set(&root(1), leaf(number), bounds(10 * number, 10 * number + 10));
        }
        assert!(fingers.find(&root(1), &key(5)).is_none());
        assert!(fingers.find(&root(1), &key(15)).is_some());
        fingers.set(&root(1), leaf(99), Bounds { below: true, ..bounds(900, 999) });
        assert!(fingers.find(&root(1), &key(950)).is_none());
    }
}
