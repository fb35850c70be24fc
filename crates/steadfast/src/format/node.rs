//! A node: a sorted array of slots that grows up, and a heap of values that grows down. Both are in
//! one buffer, which is the node's form on the medium.
//!
//! Invariants, checked once when a node is read and kept by every change: keys ascend strictly, and
//! every value lies in the heap. The values of a branch are [`NodePointer`]s, and a branch has at
//! least one. The gap between slots and heap is zero when the node is written.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use crate::error::Error;
use crate::format::NodePointer;
use crate::format::key::{Key, compare_within, inode_part};
use crate::memory;
use crate::types::{BlockAddress, Generation};

/// First bytes of every node.
pub const NODE_MAGIC: [u8; 4] = *b"SFND";
const MAGIC: u32 = u32::from_le_bytes(NODE_MAGIC);
/// Bytes before the slots.
pub const HEADER: usize = 48;
const SLOT: usize = Key::LEN + 4;

// Header fields.
const AT_LEVEL: usize = 4;
const AT_COUNT: usize = 6;
const AT_GENERATION: usize = 8;
const AT_VOLUME: usize = 16;
const AT_ADDRESS: usize = 24;
const AT_HEAP: usize = 32;
const AT_LIVE: usize = 36;

/// Bytes that an item with a value of this length takes.
pub const fn item_size(value_len: usize) -> usize {
    SLOT + value_len
}

/// Bytes for items in a node of this size.
pub const fn item_capacity(node_size: usize) -> usize {
    node_size - HEADER
}

/// Largest value that fits a node of this size, bytes.
pub const fn value_len_max(node_size: usize) -> usize {
    item_capacity(node_size) - item_size(0)
}

/// A node in memory.
#[derive(PartialEq, Eq)]
pub struct Node {
    bytes: Vec<u8>,
}

impl Node {
    /// An empty node. `volume` is the first half of the volume's uuid, `address` the block of the
    /// first copy.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn new(
        node_size: usize,
        level: u8,
        generation: Generation,
        volume: u64,
        address: u64,
    ) -> Result<Node, Error> {
        let mut node = Node::blank(node_size)?;
        node.begin(node_size, level, generation, volume, address);
        Ok(node)
    }

    /// Memory for a node. Call [`begin`](Self::begin) or [`copy_from`](Self::copy_from) before any
    /// other use.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn blank(node_size: usize) -> Result<Node, Error> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(node_size).map_err(|_| Error::OutOfMemory)?;
        Ok(Node { bytes })
    }

    /// Makes it an empty node, see [`new`](Self::new).
    pub fn begin(
        &mut self,
        node_size: usize,
        level: u8,
        generation: Generation,
        volume: u64,
        address: u64,
    ) {
        self.bytes.clear();
        self.bytes.resize(node_size, 0);
        self.put(0, &MAGIC.to_le_bytes());
        self.bytes[AT_LEVEL] = level;
        self.put(AT_VOLUME, &volume.to_le_bytes());
        self.set_heap(self.bytes.len());
        self.stamp(generation, address);
    }

    /// A copy.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn copy(&self) -> Result<Node, Error> {
        Ok(Node { bytes: memory::copy(&self.bytes)? })
    }

    /// Makes it equal to `other`, a node of the same volume.
    pub fn copy_from(&mut self, other: &Node) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// Takes a buffer that was read; `Err` says what is wrong with it.
    pub fn from_bytes(bytes: Vec<u8>, volume: u64) -> Result<Node, &'static str> {
        let node = Node { bytes };
        node.validate(volume)?;
        Ok(node)
    }

    fn validate(&self, volume: u64) -> Result<(), &'static str> {
        let size = self.bytes.len();
        if self.u32(0) != MAGIC {
            return Err("no node magic");
        }
        if self.u64(AT_VOLUME) != volume {
            return Err("node of another volume");
        }
        let heap = self.u32(AT_HEAP) as usize;
        let slots_end = HEADER + self.count() * SLOT;
        if heap > size || slots_end > heap {
            return Err("node slots overlap the heap");
        }
        let mut live = 0;
        for index in 0..self.count() {
            let (offset, length) = self.slot(index);
            if (length > 0 && offset < heap) || offset + length > size {
                return Err("value outside the heap");
            }
            if self.level() > 0 && length != NodePointer::LEN {
                return Err("branch value is no pointer");
            }
            if index > 0 && self.key(index - 1) >= self.key(index) {
                return Err("keys out of order");
            }
            live += length;
        }
        if live != self.live() || live > size - heap {
            return Err("wrong count of live bytes");
        }
        if self.level() > 0 && self.count() == 0 {
            return Err("empty branch");
        }
        Ok(())
    }

    /// The node's bytes in their form on the medium.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// 0 for a leaf, distance to the leaves for a branch.
    #[inline]
    pub fn level(&self) -> u8 {
        self.bytes[AT_LEVEL]
    }

    /// Number of items.
    #[inline]
    pub fn count(&self) -> usize {
        usize::from(self.u16(AT_COUNT))
    }

    /// Generation in which the node was written.
    #[inline]
    pub fn generation(&self) -> Generation {
        Generation(self.u64(AT_GENERATION))
    }

    /// The address of the first copy, as stored in the node.
    pub fn address(&self) -> BlockAddress {
        BlockAddress(self.u64(AT_ADDRESS))
    }

    /// Sets generation and address of a copied node.
    pub fn stamp(&mut self, generation: Generation, address: u64) {
        self.put(AT_GENERATION, &generation.0.to_le_bytes());
        self.put(AT_ADDRESS, &address.to_le_bytes());
    }

    /// The key at `index`, which is below `count`.
    #[inline]
    pub fn key(&self, index: usize) -> Key {
        let at = HEADER + index * SLOT;
        let mut key = Key::MIN;
        key.0.copy_from_slice(&self.bytes[at..at + Key::LEN]);
        key
    }

    /// The value at `index`, which is below `count`.
    #[inline]
    pub fn value(&self, index: usize) -> &[u8] {
        let (offset, length) = self.slot(index);
        &self.bytes[offset..offset + length]
    }

    /// Length of the value at `index`, which is below `count`.
    #[inline]
    pub fn value_len(&self, index: usize) -> usize {
        self.slot(index).1
    }

    /// The child pointer at `index` of a branch.
    #[inline]
    pub fn child(&self, index: usize) -> NodePointer {
        let mut bytes = [0; NodePointer::LEN];
        bytes.copy_from_slice(self.value(index));
        NodePointer::decode(&bytes)
    }

    /// `Ok` with the index of `key`, or `Err` with the index where it would go.
    #[inline]
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        let (slots, _) = self.bytes[HEADER..HEADER + self.count() * SLOT].as_chunks::<SLOT>();
        let inode = key.inode_number().0;
        // The slots from `low` to `high` are not compared yet.
        let (mut low, mut high) = (0, slots.len());
        while low < high {
            let middle = (low + high) / 2;
            let Some((other, _)) = slots.get(middle).and_then(|slot| slot.split_first_chunk())
            else {
                break;
            };
            // Most keys are of other inodes: their order needs no more than the number.
            let number = inode_part(other);
            if number < inode {
                low = middle + 1;
                continue;
            }
            if number > inode {
                high = middle;
                continue;
            }
            match compare_within(other, &key.0) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// As [`search`](Self::search), for a key that is probably at `near` or would go there.
    #[inline]
    pub fn search_near(&self, key: &Key, near: usize) -> Result<usize, usize> {
        let count = self.count();
        let order = if near < count { key.cmp(&self.key(near)) } else { Ordering::Less };
        match order {
            Ordering::Equal => return Ok(near),
            Ordering::Less if near <= count && (near == 0 || self.key(near - 1) < *key) => {
                return Err(near);
            }
            _ => {}
        }
        self.search(key)
    }

    /// Index of the child of a branch whose range holds `key`.
    #[inline]
    pub fn child_index(&self, key: &Key) -> usize {
        match self.search(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// The child of a branch on the path to a key that changes, and its index.
    pub fn step_to_change(&mut self, key: &Key) -> (usize, NodePointer) {
        let index = self.child_index(key);
        if index == 0 && *key < self.key(0) {
            // The branch has replaced a removed one before it. Its first key is a lower bound;
            // otherwise the parts of a split child would not stay in order.
            self.lower_first_key(key);
        }
        (index, self.child(index))
    }

    /// Bytes that the items take.
    #[inline]
    pub fn used(&self) -> usize {
        self.count() * SLOT + self.live()
    }

    /// Bytes left for items.
    #[inline]
    pub fn free(&self) -> usize {
        self.bytes.len() - HEADER - self.used()
    }

    /// Inserts at `index`. The caller has checked that the item fits ([`free`](Self::free)).
    pub fn insert(&mut self, index: usize, key: &Key, value: &[u8]) {
        let count = self.count();
        self.make_gap(item_size(value.len()));
        let at = HEADER + index * SLOT;
        self.bytes.copy_within(at..HEADER + count * SLOT, at + SLOT);
        self.put(at, &key.0);
        self.set_count(count + 1);
        self.put_value(index, value);
    }

    /// Inserts the items `from` of another node at `index`. The caller has checked that they fit.
    pub fn insert_from(&mut self, index: usize, other: &Node, from: Range<usize>) {
        let length = |index| other.slot(index).1;
        let live: usize = from.clone().map(length).sum();
        let (count, at) = (self.count(), HEADER + index * SLOT);
        self.make_gap(from.len() * SLOT + live);
        self.bytes.copy_within(at..HEADER + count * SLOT, at + from.len() * SLOT);
        self.put(at, &other.bytes[HEADER + from.start * SLOT..HEADER + from.end * SLOT]);
        self.set_count(count + from.len());
        let mut heap = self.u32(AT_HEAP) as usize;
        for (offset, item) in from.enumerate() {
            let value = other.value(item);
            heap -= value.len();
            self.put(heap, value);
            self.set_slot(index + offset, heap, value.len());
        }
        self.set_heap(heap);
        self.set_live(self.live() + live);
    }

    /// Removes the items from `index` on.
    pub fn truncate(&mut self, index: usize) {
        let live: usize = (index..self.count()).map(|index| self.slot(index).1).sum();
        self.set_live(self.live() - live);
        self.set_count(index);
    }

    /// Replaces the value at `index` if the new one fits in the place of the old one; returns
    /// `false` otherwise.
    #[inline]
    pub fn replace(&mut self, index: usize, value: &[u8]) -> bool {
        let (offset, length) = self.slot(index);
        if length == value.len() {
            self.put(offset, value);
            return true;
        }
        if self.free() + length < value.len() {
            return false;
        }
        // Drop the old value, then place the new one.
        self.set_live(self.live() - length);
        self.set_slot(index, self.bytes.len(), 0);
        self.make_gap(value.len());
        self.put_value(index, value);
        true
    }

    /// Sets the value of `key` if there is room for it. Returns whether the key was there, and
    /// where the item must go if there is no room; the old value is gone then.
    #[inline]
    pub fn put_key(&mut self, key: &Key, value: &[u8]) -> (bool, Option<usize>) {
        self.put_found(self.search(key), key, value)
    }

    /// As [`put_key`](Self::put_key), for a key that is probably at `near` or would go there.
    #[inline]
    pub fn put_key_near(&mut self, near: usize, key: &Key, value: &[u8]) -> (bool, Option<usize>) {
        self.put_found(self.search_near(key, near), key, value)
    }

    fn put_found(
        &mut self,
        found: Result<usize, usize>,
        key: &Key,
        value: &[u8],
    ) -> (bool, Option<usize>) {
        let (Ok(index) | Err(index)) = found;
        if found.is_ok() {
            if self.replace(index, value) {
                return (true, None);
            }
            self.remove(index);
        }
        if self.free() < item_size(value.len()) {
            return (found.is_ok(), Some(index));
        }
        self.insert(index, key, value);
        (found.is_ok(), None)
    }

    /// Removes `key`. Returns whether it was there.
    #[inline]
    pub fn remove_key(&mut self, key: &Key) -> bool {
        self.remove_found(self.search(key))
    }

    /// As [`remove_key`](Self::remove_key), for a key that is probably at `near`.
    #[inline]
    pub fn remove_key_near(&mut self, near: usize, key: &Key) -> bool {
        self.remove_found(self.search_near(key, near))
    }

    fn remove_found(&mut self, found: Result<usize, usize>) -> bool {
        if let Ok(index) = found {
            self.remove(index);
        }
        found.is_ok()
    }

    /// Whether a node of this size should be merged with a neighbour if its items take `used`
    /// bytes.
    pub fn is_sparse(&self, used: usize) -> bool {
        used < item_capacity(self.bytes.len()) / 4
    }

    /// Sets the first key of a branch, which has children, to a lower one.
    pub fn lower_first_key(&mut self, key: &Key) {
        self.put(HEADER, &key.0);
    }

    /// Removes the item at `index`.
    pub fn remove(&mut self, index: usize) {
        let count = self.count();
        let (_, length) = self.slot(index);
        self.set_live(self.live() - length);
        let at = HEADER + index * SLOT;
        self.bytes.copy_within(at + SLOT..HEADER + count * SLOT, at);
        self.set_count(count - 1);
    }

    /// Zeroes the gap between slots and heap, so that no stale byte reaches the medium.
    pub fn tidy(&mut self) {
        let start = HEADER + self.count() * SLOT;
        let heap = self.u32(AT_HEAP) as usize;
        self.bytes[start..heap].fill(0);
    }

    /// Makes `needed` contiguous bytes between slots and heap, compacting the values if necessary.
    fn make_gap(&mut self, needed: usize) {
        let heap = self.u32(AT_HEAP) as usize;
        if heap - (HEADER + self.count() * SLOT) >= needed {
            return;
        }
        let mut end = self.bytes.len();
        if let Ok(old) = memory::copy(&self.bytes) {
            for index in 0..self.count() {
                let (offset, length) = self.slot(index);
                end -= length;
                self.bytes[end..end + length].copy_from_slice(&old[offset..offset + length]);
                self.set_slot(index, end, length);
            }
        } else {
            end = self.compact_in_place();
        }
        self.set_heap(end);
        assert!(
            end - (HEADER + self.count() * SLOT) >= needed,
            "caller checked that the item fits"
        );
    }

    /// Compacts the values, the last one first, without memory for a copy; slower. Returns where
    /// the heap begins.
    fn compact_in_place(&mut self) -> usize {
        let mut end = self.bytes.len();
        loop {
            // Values already moved are at or after `end`.
            let places = (0..self.count()).map(|index| (self.slot(index).0, index));
            let Some((offset, index)) = places.filter(|(offset, _)| *offset < end).max() else {
                return end;
            };
            let (_, length) = self.slot(index);
            end -= length;
            self.bytes.copy_within(offset..offset + length, end);
            self.set_slot(index, end, length);
        }
    }

    #[inline]
    fn put_value(&mut self, index: usize, value: &[u8]) {
        let start = self.u32(AT_HEAP) as usize - value.len();
        self.put(start, value);
        self.set_slot(index, start, value.len());
        self.set_heap(start);
        self.set_live(self.live() + value.len());
    }

    #[inline]
    fn slot(&self, index: usize) -> (usize, usize) {
        // An index has 16 bits: the compiler then knows that one check of bounds is enough.
        let at = HEADER + (index & usize::from(u16::MAX)) * SLOT + Key::LEN;
        let fields = self.u32(at);
        ((fields & 0xffff) as usize, (fields >> 16) as usize)
    }

    #[inline]
    fn set_slot(&mut self, index: usize, offset: usize, length: usize) {
        let at = HEADER + index * SLOT + Key::LEN;
        // An empty value may be at the very end of a 64 KiB node, whose offset does not fit 16
        // bits.
        let offset = if length == 0 { offset.min(usize::from(u16::MAX)) } else { offset };
        self.put(at, &(offset as u16).to_le_bytes());
        self.put(at + 2, &(length as u16).to_le_bytes());
    }

    #[inline]
    fn live(&self) -> usize {
        self.u32(AT_LIVE) as usize
    }

    #[inline]
    fn set_live(&mut self, live: usize) {
        self.put(AT_LIVE, &(live as u32).to_le_bytes());
    }

    #[inline]
    fn set_heap(&mut self, heap: usize) {
        self.put(AT_HEAP, &(heap as u32).to_le_bytes());
    }

    #[inline]
    fn set_count(&mut self, count: usize) {
        self.put(AT_COUNT, &(count as u16).to_le_bytes());
    }

    // The last byte comes first: its check of bounds is then the only one. A copy of a slice would
    // be a call where the compiler makes code small.
    #[inline]
    fn u16(&self, at: usize) -> u16 {
        let last = self.bytes[at + 1];
        u16::from_le_bytes([self.bytes[at], last])
    }

    #[inline]
    fn u32(&self, at: usize) -> u32 {
        let last = self.bytes[at + 3];
        u32::from_le_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], last])
    }

    #[inline]
    fn u64(&self, at: usize) -> u64 {
        let high = u64::from(self.u32(at + 4));
        u64::from(self.u32(at)) | high << 32
    }

    #[inline]
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::key::Kind;
    use crate::types::InodeNumber;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use proptest::prelude::*;

    fn key(number: u64) -> Key {
        Key::inode(InodeNumber(number))
    }

    #[test]
    fn a_search_ends_at_the_same_index_wherever_it_begins() {
        let key = |number| Key::new(InodeNumber(number / 6), Kind::Xattr, number % 6);
        for count in [0, 1, 2, 25] {
            let mut node = Node::new(1024, 0, Generation(1), 7, 9).unwrap();
            for index in 0..count {
                node.insert(index, &key(2 * index as u64 + 1), b"");
            }
            for number in 0..=2 * count as u64 {
                let index = number as usize / 2;
                let expected = if number % 2 == 1 { Ok(index) } else { Err(index) };
                let key = key(number);
                assert_eq!(node.search(&key), expected, "{key:?} of {count}");
                for near in 0..count + 3 {
                    assert_eq!(node.search_near(&key, near), expected, "{key:?} from {near}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(operations in prop::collection::vec((0u64..40, prop::option::of(0usize..120)), 1..200)) {
            let mut node = Node::new(1024, 0, Generation(1), 7, 9).unwrap();
            let mut map = BTreeMap::<Key, Vec<u8>>::new();
            for (number, length) in operations {
                let key = key(number);
                match (length, node.search(&key)) {
                    (Some(length), Ok(index)) => {
                        let value = vec![number as u8; length];
                        let fits = node.free() + node.value(index).len() >= length;
                        prop_assert_eq!(node.replace(index, &value), fits);
                        if fits {
                            map.insert(key, value);
                        }
                    }
                    (Some(length), Err(index)) => {
                        if node.free() >= item_size(length) {
                            let value = vec![number as u8; length];
                            node.insert(index, &key, &value);
                            map.insert(key, value);
                        }
                    }
                    (None, Ok(index)) => {
                        node.remove(index);
                        map.remove(&key);
                    }
                    (None, Err(_)) => prop_assert!(!map.contains_key(&key)),
                }
                node.tidy();
                let node = Node::from_bytes(node.bytes.clone(), 7).map_err(TestCaseError::fail)?;
                let found: Vec<_> = (0..node.count()).map(|i| (node.key(i), node.value(i).to_vec())).collect();
                prop_assert_eq!(found, map.clone().into_iter().collect::<Vec<_>>());
            }
        }

        /// Items that move together end where items end that move one by one.
        #[test]
        fn items_move_together(
            own in prop::collection::vec(0usize..40, 0..9),
            others in prop::collection::vec(0usize..40, 0..9),
            (at, from, to, left) in (0usize..9, 0usize..9, 0usize..9, 0usize..20),
        ) {
            let filled = |first: u64, lengths: &[usize]| {
                let mut node = Node::new(1024, 0, Generation(1), 7, 9).unwrap();
                for (number, length) in (first..).zip(lengths) {
                    node.insert(node.count(), &key(number), &vec![number as u8; *length]);
                }
                node
            };
            // Keys of the others belong between those of the node.
            let at = at.min(own.len());
            let mut node = filled(0, &own[..at]);
            let after = filled(200, &own[at..]);
            node.insert_from(at, &after, 0..after.count());
            let others = filled(100, &others);
            let to = to.min(others.count());
            let from = from.min(to);
            let mut single = node.copy().unwrap();
            for index in from..to {
                single.insert(at + index - from, &others.key(index), others.value(index));
            }
            node.insert_from(at, &others, from..to);
            let left = left.min(node.count());
            node.truncate(left);
            while single.count() > left {
                single.remove(single.count() - 1);
            }
            node.tidy();
            let node = Node::from_bytes(node.bytes.clone(), 7).map_err(TestCaseError::fail)?;
            let items = |node: &Node| -> Vec<_> {
                (0..node.count()).map(|i| (node.key(i), node.value(i).to_vec())).collect()
            };
            prop_assert_eq!(items(&node), items(&single));
            prop_assert_eq!(node.used(), single.used());
        }

        #[test]
        fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 512), fix in any::<bool>()) {
            if fix {
                bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
                bytes[AT_VOLUME..AT_VOLUME + 8].copy_from_slice(&7u64.to_le_bytes());
                bytes[AT_COUNT + 1] = 0;
                bytes[AT_COUNT] %= 4;
            }
            if let Ok(node) = Node::from_bytes(bytes, 7) {
                for index in 0..node.count() {
                    let _ = (node.key(index), node.value(index));
                }
            }
        }
    }
}
