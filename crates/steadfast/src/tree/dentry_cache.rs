//! Recently looked-up or changed names and attributes of the working tree: a cache in front of its
//! nodes.
//!
//! A directory entry takes one line of the processor's cache here, and an inode two. The path down
//! the tree takes a dozen lines in as many pages. There the inode of a small file lies between the
//! data of others in its leaf. So this holds many more of them than the node cache has nodes for.
//!
//! Invariants:
//! - an entry here equals the value in the working tree. A caller that [looks
//!   up](DentryCache::attributes) or [notes](DentryCache::note) a value keeps the tree from
//!   changing meanwhile. Every change of a key goes through
//!   [`TreeWriter`](crate::tree::TreeWriter), which enters it while readers are excluded. If the
//!   whole tree is replaced, all entries are dropped with its nodes;
//! - an entry stands for the sixteen keys that names with one hash can have: it holds the first of
//!   them, or that there is none;
//! - nothing depends on it: without memory, or with a value of unusual length, nothing is kept.
//!
//! There are two tables of pairs. Of the two keys in a pair, the older one is replaced. Memory is
//! allocated a part at a time, for the first key in the part, so opening a volume allocates none.
//! Each part has its own lock, held for reading or copying one value.

use alloc::vec::Vec;

use lock_api::Mutex;
use steadfast_media::sync::atomic::{AtomicBool, Ordering};

use crate::format::key::{Key, Kind};
use crate::platform::Platform;
use crate::profile::NAME_CACHE;
use crate::sabotage::{Sabotage, planted};
use crate::types::InodeNumber;

/// Parts of a table.
const PARTS: usize = 64;
/// Places for one key.
const WAYS: usize = 2;
/// Length of an inode's value.
const ATTRIBUTES: usize = 112;
/// Longest entry that is kept: 9 bytes and a name of up to 37.
const ENTRY: usize = 46;
/// Entries for each inode.
const NAMES_PER_INODE: usize = 2;
/// Minimum number of inodes that it holds: a pair for each part.
const INODES_MIN: usize = WAYS * PARTS;
/// Memory for one inode and its entries.
const UNIT: usize =
    size_of::<Slot<u64, ATTRIBUTES>>() + NAMES_PER_INODE * size_of::<Slot<[u64; 2], ENTRY>>();
/// The part of the cache's memory that this may take.
const SHARE: usize = 4;

/// A key and its value.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot<T, const N: usize> {
    tag: T,
    length: u8,
    /// For an entry: which slot its key has.
    probe: u8,
    value: [u8; N],
}

/// A shard of a table.
struct Shard<P: Platform, T, const N: usize> {
    /// Empty until its first key.
    slots: Mutex<P::Mutex, Vec<Slot<T, N>>>,
    /// Whether it has memory, for those that do not take the lock. Changes under the lock.
    filled: AtomicBool,
}

/// One kind of key. The tag of a free place is zero.
struct Table<P: Platform, T, const N: usize> {
    parts: Vec<Shard<P, T, N>>,
    /// Pairs in a part.
    pairs: usize,
}

impl<P: Platform, T: Copy + Eq + Default, const N: usize> Table<P, T, N> {
    /// A table of `places` places. With fewer than two for each part, or without memory, it holds
    /// nothing.
    fn new(places: usize) -> Self {
        let pairs = places / (WAYS * PARTS);
        let mut parts = Vec::new();
        if pairs > 0 && parts.try_reserve_exact(PARTS).is_ok() {
            let (slots, filled) = (|| Mutex::new(Vec::new()), || AtomicBool::new(false));
            parts.resize_with(PARTS, || Shard { slots: slots(), filled: filled() });
        }
        Table { parts, pairs }
    }

    /// Place of a key: the part, and the first of its two places there.
    #[inline]
    fn place(&self, hash: u64) -> Option<(&Shard<P, T, N>, usize)> {
        // Neighbouring inodes are neighbours here. A table that holds nothing has no parts.
        if !NAME_CACHE {
            return None;
        }
        let pair = hash.checked_rem((self.pairs * PARTS) as u64)? as usize;
        Some((self.parts.get(pair / self.pairs)?, pair % self.pairs * WAYS))
    }

    /// Passes the value of a key to `take`; returns `take` if it is not here.
    #[inline]
    fn with<R, F: FnOnce(&[u8]) -> R>(&self, tag: T, hash: u64, take: F) -> Result<R, F> {
        let Some((part, at)) = self.place(hash) else { return Err(take) };
        let slots = part.slots.lock();
        let pair = slots.get(at..at + WAYS).unwrap_or_default();
        match pair.iter().find(|slot| slot.tag == tag) {
            Some(slot) => Ok(take(&slot.value)),
            None => Err(take),
        }
    }

    fn get(&self, tag: T, hash: u64) -> Option<Slot<T, N>> {
        let (part, at) = self.place(hash)?;
        let slots = part.slots.lock();
        slots.get(at..at + WAYS)?.iter().find(|slot| slot.tag == tag).copied()
    }

    /// Enters a value that is not longer than a slot, in place of the one that the key had.
    #[inline]
    fn put(&self, tag: T, hash: u64, probe: u8, value: &[u8]) {
        let Some((part, at)) = self.place(hash) else { return };
        let mut slots = part.slots.lock();
        if slots.is_empty() && !self.fill(part, &mut slots) {
            return;
        }
        let Some([newer, older]) =
            slots.get_mut(at..at + WAYS).and_then(|pair| pair.as_mut_array())
        else {
            return;
        };
        if newer.tag != tag {
            *older = *newer;
        }
        (newer.tag, newer.length, newer.probe) = (tag, value.len() as u8, probe);
        if let Some(bytes) = newer.value.get_mut(..value.len()) {
            bytes.copy_from_slice(value);
        }
    }

    /// Allocates a part. Returns whether there was memory for it.
    #[cold]
    fn fill(&self, part: &Shard<P, T, N>, slots: &mut Vec<Slot<T, N>>) -> bool {
        let count = self.pairs * WAYS;
        let filled = slots.try_reserve_exact(count).is_ok();
        if filled {
            slots.resize(count, Slot { tag: T::default(), length: 0, probe: 0, value: [0; N] });
            part.filled.store(true, Ordering::Relaxed);
        }
        filled
    }

    fn remove(&self, tag: T, hash: u64) {
        let Some((part, at)) = self.place(hash) else { return };
        let mut slots = part.slots.lock();
        for slot in
            slots.get_mut(at..at + WAYS).into_iter().flatten().filter(|slot| slot.tag == tag)
        {
            slot.tag = T::default();
        }
    }

    fn clear(&self) {
        for part in &self.parts {
            let mut slots = part.slots.lock();
            *slots = Vec::new();
            part.filled.store(false, Ordering::Relaxed);
        }
    }

    /// Bytes of a part that is filled.
    fn part_size(&self) -> usize {
        self.pairs * WAYS * size_of::<Slot<T, N>>()
    }

    fn filled(&self) -> impl Iterator<Item = &Shard<P, T, N>> {
        self.parts.iter().filter(|part| part.filled.load(Ordering::Relaxed))
    }

    /// Drops filled parts until `bytes` bytes are free; returns how many are.
    fn give_back(&self, bytes: usize) -> usize {
        let mut freed = 0;
        for part in self.filled() {
            if freed >= bytes {
                break;
            }
            let Some(mut slots) = part.slots.try_lock() else { continue };
            let dropped = core::mem::take(&mut *slots);
            part.filled.store(false, Ordering::Relaxed);
            drop(slots);
            freed += usize::from(!dropped.is_empty()) * self.part_size();
        }
        freed
    }
}

/// What is known of the keys of one hash.
pub enum CachedDentry {
    /// There is none.
    Absent,
    /// The first one.
    First(Key, EntryValue),
}

/// The value of an entry.
pub struct EntryValue {
    bytes: [u8; ENTRY],
    length: u8,
}

impl EntryValue {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(ENTRY)]
    }
}

/// See the module.
pub struct DentryCache<P: Platform> {
    names: Table<P, [u64; 2], ENTRY>,
    inodes: Table<P, u64, ATTRIBUTES>,
}

impl<P: Platform> DentryCache<P> {
    /// Takes at most a quarter of `cache_size` bytes, on demand.
    pub(super) fn new(cache_size: usize) -> Self {
        let cache_size = if NAME_CACHE { cache_size } else { 0 };
        let inodes = cache_size / SHARE / UNIT / INODES_MIN * INODES_MIN;
        DentryCache { names: Table::new(inodes * NAMES_PER_INODE), inodes: Table::new(inodes) }
    }

    /// Memory that it takes at most, bytes.
    pub(super) fn memory(&self) -> usize {
        self.inodes.parts.len() * self.inodes.pairs * WAYS * UNIT
    }

    /// Passes the value of an inode's key to `take`; returns `take` if the value is not here.
    /// `take` runs under a lock of this cache, so it must not come back.
    #[inline]
    pub fn attributes<R, F>(&self, key: &Key, take: F) -> Result<R, F>
    where
        F: FnOnce(&[u8]) -> R,
    {
        let Some(tag) = inode_of(key) else { return Err(take) };
        self.inodes.with(tag, tag, take)
    }

    /// What is known of the names from `first` on, the lowest key of a hash.
    pub fn entry(&self, first: &Key) -> Option<CachedDentry> {
        let (tag, hash) = names_of(first)?;
        let found = self.names.get(tag, hash)?;
        if found.length == 0 {
            return Some(CachedDentry::Absent);
        }
        let key = Key::new(first.inode_number(), Kind::Dirent, tag[1] + u64::from(found.probe));
        Some(CachedDentry::First(key, EntryValue { bytes: found.value, length: found.length }))
    }

    /// Notes that the tree has this value under an inode's key. Returns whether that is kept, if
    /// there is memory.
    pub fn note(&self, key: &Key, value: &[u8]) -> bool {
        let (Some(tag), Ok(value)) = (inode_of(key), <&[u8; ATTRIBUTES]>::try_from(value)) else {
            return false;
        };
        self.inodes.put(tag, tag, 0, value);
        true
    }

    /// Notes that `key` is the first of its hash in the tree. Returns as [`note`](Self::note).
    pub fn note_first(&self, key: &Key, value: &[u8]) -> bool {
        let Some((tag, hash)) = names_of(key) else { return false };
        if value.is_empty() || value.len() > ENTRY {
            return false;
        }
        self.names.put(tag, hash, (key.suffix() - tag[1]) as u8, value);
        true
    }

    /// Notes that there is no name with the hash of `first` in the tree.
    pub fn note_absent(&self, first: &Key) {
        let Some((tag, hash)) = names_of(first) else { return };
        self.names.put(tag, hash, 0, &[]);
    }

    /// Drops the entry of `key`, which changes in the tree.
    pub(super) fn forget(&self, key: &Key) {
        match key.kind() {
            Some(Kind::Inode) if !planted(Sabotage::KeepOldAttributes) => {
                if let Some(tag) = inode_of(key) {
                    self.inodes.remove(tag, tag);
                }
            }
            Some(Kind::Dirent) if !planted(Sabotage::KeepOldNames) => {
                if let Some((tag, hash)) = names_of(key) {
                    self.names.remove(tag, hash);
                }
            }
            _ => {}
        }
    }

    /// Notes the new value of `key` in the tree, or drops the entry of the key.
    pub(super) fn changed(&self, key: &Key, value: &[u8]) {
        let noted = match key.kind() {
            Some(Kind::Inode) if !planted(Sabotage::KeepOldAttributes) => self.note(key, value),
            // No key of the hash is lower.
            Some(Kind::Dirent) if key.is_first_slot() => self.note_first(key, value),
            _ => false,
        };
        if !noted {
            self.forget(key);
        }
    }

    /// Memory that it takes now, bytes.
    pub(super) fn memory_used(&self) -> usize {
        self.names.filled().count() * self.names.part_size()
            + self.inodes.filled().count() * self.inodes.part_size()
    }

    /// Drops parts of about `bytes` bytes together; returns how many bytes are free then. Waits for
    /// no lock.
    pub(super) fn give_back(&self, bytes: usize) -> usize {
        let names = self.names.give_back(bytes);
        names + self.inodes.give_back(bytes.saturating_sub(names))
    }

    /// Drops all entries.
    pub(super) fn clear(&self) {
        if !planted(Sabotage::KeepNamesOfRolledBack) {
            self.names.clear();
            self.inodes.clear();
        }
    }
}

/// The tag of an inode's key. The system's inode has no attributes. No sound volume has an inode
/// key with another suffix.
#[inline]
fn inode_of(key: &Key) -> Option<u64> {
    let inode = key.inode_number();
    (inode != InodeNumber::SYSTEM && *key == Key::inode(inode)).then_some(inode.0)
}

/// The tag that all keys of a hash have, and its place.
fn names_of(key: &Key) -> Option<([u64; 2], u64)> {
    let directory = key.inode_number().0;
    if directory == 0 || key.kind() != Some(Kind::Dirent) {
        return None;
    }
    let first = key.first_slot().suffix();
    // The suffix is a keyed hash. Equal names in many directories must not collide.
    let hash =
        (first >> Key::SLOT_BITS).wrapping_add(directory.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Some(([directory, first], hash))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::testing::TestPlatform;

    fn recent() -> DentryCache<TestPlatform> {
        DentryCache::new(1 << 20)
    }

    fn value(recent: &DentryCache<TestPlatform>, key: &Key) -> Option<Vec<u8>> {
        recent.attributes(key, <[u8]>::to_vec).ok()
    }

    fn name(directory: u64, suffix: u64) -> Key {
        Key::new(InodeNumber(directory), Kind::Dirent, suffix)
    }

    fn found(recent: &DentryCache<TestPlatform>, first: &Key) -> Option<Option<(Key, Vec<u8>)>> {
        recent.entry(first).map(|entry| match entry {
            CachedDentry::Absent => None,
            CachedDentry::First(key, value) => Some((key, value.bytes().to_vec())),
        })
    }

    #[test]
    fn slots_are_whole_lines() {
        assert_eq!(
            (size_of::<Slot<u64, ATTRIBUTES>>(), size_of::<Slot<[u64; 2], ENTRY>>()),
            (128, 64)
        );
        assert!(recent().memory() <= (1 << 20) / SHARE && recent().memory() > 0);
    }

    #[test]
    fn too_little_memory_holds_nothing() {
        for size in [0, 1, UNIT * SHARE, UNIT * SHARE * INODES_MIN - 1] {
            let recent = DentryCache::<TestPlatform>::new(size);
            assert_eq!(recent.memory(), 0);
            let (key, first) = (Key::inode(InodeNumber(1)), name(1, 160));
            recent.note(&key, &[1; ATTRIBUTES]);
            recent.note_absent(&first);
            recent.forget(&key);
            recent.changed(&first, b"value");
            recent.clear();
            assert!(value(&recent, &key).is_none());
        }
    }

    #[test]
    fn a_changed_name_is_the_first_or_unknown() {
        let recent = recent();
        let first = name(5, 160);
        assert!(found(&recent, &first).is_none());
        recent.note_absent(&first);
        assert_eq!(found(&recent, &first), Some(None));
        recent.forget(&name(5, 163));
        recent.changed(&name(5, 163), b"after others, perhaps");
        assert!(found(&recent, &first).is_none());
        recent.note_first(&name(5, 163), b"value");
        assert_eq!(found(&recent, &first), Some(Some((name(5, 163), b"value".to_vec()))));
        assert!(found(&recent, &name(6, 160)).is_none() && found(&recent, &name(5, 176)).is_none());
        recent.changed(&first, b"in front");
        assert_eq!(found(&recent, &first), Some(Some((first, b"in front".to_vec()))));
        recent.changed(&first, b"short");
        assert_eq!(found(&recent, &first), Some(Some((first, b"short".to_vec()))));
        recent.changed(&first, &[1; ENTRY + 1]);
        assert!(found(&recent, &first).is_none(), "too long to be kept");
        recent.note_first(&first, b"once more");
        recent.changed(&name(5, 163), b"after others, perhaps");
        assert!(found(&recent, &first).is_none(), "one of the same hash has changed");
        let key = Key::inode(InodeNumber(5));
        recent.note(&key, &[1; ATTRIBUTES]);
        recent.changed(&key, &[2; ATTRIBUTES]);
        assert_eq!(value(&recent, &key), Some(vec![2; ATTRIBUTES]));
        recent.changed(&key, &[3; ATTRIBUTES - 1]);
        assert!(value(&recent, &key).is_none(), "of unusual length");
    }

    #[test]
    fn the_older_of_two_goes() {
        let recent = recent();
        let apart = (recent.inodes.pairs * PARTS) as u64;
        let key = |number: u64| Key::inode(InodeNumber(3 + number * apart));
        for number in 0..3 {
            recent.note(&key(number), &[number as u8; ATTRIBUTES]);
        }
        assert!(value(&recent, &key(0)).is_none());
        assert_eq!(value(&recent, &key(1)), Some(vec![1; ATTRIBUTES]));
        assert_eq!(value(&recent, &key(2)), Some(vec![2; ATTRIBUTES]));
        recent.note(&key(2), &[9; ATTRIBUTES]);
        assert_eq!(value(&recent, &key(1)), Some(vec![1; ATTRIBUTES]), "replaced in its own place");
        recent.clear();
        assert!(value(&recent, &key(2)).is_none());
        for strange in [Key::inode(InodeNumber::SYSTEM), Key::new(InodeNumber(3), Kind::Inode, 1)] {
            recent.note(&strange, &[1; ATTRIBUTES]);
            assert!(value(&recent, &strange).is_none());
        }
        recent.note(&key(0), &[1; ATTRIBUTES]);
        assert!(value(&recent, &Key::new(InodeNumber(3), Kind::Inode, 1)).is_none());
    }
}
