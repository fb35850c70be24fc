//! The packed payload of a group of records, as it grows from record to record.
//!
//! Each record of a group repeats the mutations of the group so far ([`crate::log`]). Packing all
//! of them for every record took half of the instructions of a small durable write. So the packed
//! form of the group is kept, and a new mutation is put into its place there.
//!
//! Invariant: `packed` is what [`pack`](super::pack::pack) makes of the same mutations. A mutation
//! is packed against the inode number of the mutation before it and the last value of its kind. It
//! is packed again only where one of these has changed.

use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::pack::put_mutation;
use crate::format::payload::{Encoded, TAG_PUT, TAG_SETTLED, size_of};
use crate::memory;
use crate::sabotage::{Sabotage, planted};

/// The mutations of a group, in key order, each key once.
#[derive(Debug, Default)]
pub struct GroupPayload {
    items: Vec<GroupItem>,
    /// The values of the items, and some that were replaced by values of another length.
    values: Vec<u8>,
    packed: Vec<u8>,
    /// Bytes of the payload before packing.
    plain: usize,
    /// Indices of the items that only the last record has.
    fresh: Vec<usize>,
    /// For one packed mutation.
    buffer: Vec<u8>,
}

/// One mutation.
#[derive(Debug, Clone, Copy)]
struct GroupItem {
    key: Key,
    form: u8,
    /// Where its packed form begins.
    at: usize,
    value: ValueSpan,
}

/// A value in `values`.
#[derive(Debug, Clone, Copy, Default)]
struct ValueSpan {
    at: usize,
    len: usize,
}

impl GroupItem {
    fn is_put(&self) -> bool {
        self.form & TAG_PUT != 0
    }

    fn kind(&self) -> u8 {
        self.key.0[Key::KIND_AT]
    }

    fn plain_len(&self) -> usize {
        size_of(self.is_put().then_some(self.value.len))
    }
}

impl GroupPayload {
    /// The packed payload.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// Bytes of the payload before packing.
    pub fn plain_len(&self) -> usize {
        self.plain
    }

    /// Bytes in memory that hold values, also replaced ones.
    pub fn values_len(&self) -> usize {
        self.values.len()
    }

    /// This payload with the mutations of `new`, the plain payload of the next record. Mutations of
    /// `new` take precedence; the others become settled.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn joined(mut self, new: &[u8]) -> Result<GroupPayload> {
        if planted(Sabotage::ForgetSettled) {
            self = GroupPayload::default();
        }
        for index in self.fresh.drain(..) {
            let item = &mut self.items[index];
            item.form |= TAG_SETTLED;
            self.packed[item.at] |= TAG_SETTLED;
        }
        if self.items.is_empty() {
            // What the first record of a group needs, and no more.
            self.values.try_reserve_exact(new.len()).map_err(|_| Error::OutOfMemory)?;
        }
        for (key, form, value) in Encoded(new) {
            self.put(key, form, value)?;
        }
        Ok(self)
    }

    /// This payload without mutations. Its memory stays for others.
    pub fn cleared(mut self) -> GroupPayload {
        self.items.clear();
        self.values.clear();
        self.packed.clear();
        self.fresh.clear();
        self.plain = 0;
        self
    }

    /// Adds a mutation. Its key is after those that were added before it.
    fn put(&mut self, key: Key, form: u8, value: Option<&[u8]>) -> Result<()> {
        if self.items.last().is_none_or(|last| last.key < key) {
            return self.append(key, form, value);
        }
        let index = self.items.partition_point(|item| item.key < key);
        let replaced = self.items.get(index).filter(|item| item.key == key).copied();
        let free = replaced.map_or(ValueSpan::default(), |item| item.value);
        let item =
            GroupItem { key, form, at: self.start_of(index), value: self.store(value, free)? };
        self.plain += item.plain_len();
        memory::push(&mut self.fresh, index)?;
        match replaced {
            Some(old) => {
                self.plain -= old.plain_len();
                let end = self.start_of(index + 1);
                self.items[index] = item;
                self.pack_again(index, end)?;
            }
            None => {
                self.items.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
                self.items.insert(index, item);
                self.pack_again(index, item.at)?;
            }
        }
        // The mutation after it is packed against its inode number, and the next value of the kind
        // against its value.
        let before = index.checked_sub(1).map_or(0, |last| self.inode_of(last));
        let following = replaced.is_none() && before != self.inode_of(index);
        let following = (following && index + 1 < self.items.len()).then_some(index + 1);
        let is_base = item.is_put() || replaced.is_some_and(|old| old.is_put());
        let is_next = |next: &GroupItem| next.is_put() && next.kind() == item.kind();
        let next = self.items[index + 1..].iter().position(is_next);
        let next = next.filter(|_| is_base && !planted(Sabotage::PackAgainstOldValue));
        let next = next.map(|distance| index + 1 + distance);
        for changed in [following.filter(|item| Some(*item) != next), next].into_iter().flatten() {
            self.pack_again(changed, self.start_of(changed + 1))?;
        }
        Ok(())
    }

    /// Adds a mutation after all others: nothing is packed against it yet.
    fn append(&mut self, key: Key, form: u8, value: Option<&[u8]>) -> Result<()> {
        let mut item = GroupItem { key, form, at: self.packed.len(), value: ValueSpan::default() };
        let base = self.base_of(self.items.len(), &item);
        put_mutation(&mut self.packed, &key, form, value, (base.0, &self.values[base.1]))?;
        item.value = self.store(value, ValueSpan::default())?;
        self.plain += item.plain_len();
        memory::push(&mut self.fresh, self.items.len())?;
        memory::push(&mut self.items, item)
    }

    /// What an item at `index` is packed against: the inode number of the item before it, and where
    /// the last value of its kind is.
    fn base_of(&self, index: usize, item: &GroupItem) -> (u64, Range<usize>) {
        let before = &self.items[..index];
        let inode = before.last().map_or(0, |last| last.key.inode_number().0);
        let is_like = |last: &&GroupItem| last.is_put() && last.kind() == item.kind();
        let like = item.is_put().then(|| before.iter().rfind(is_like)).flatten();
        (inode, like.map_or(0..0, |last| last.value.at..last.value.at + last.value.len))
    }

    /// Where the packed form of an item begins, also of the one after the last.
    fn start_of(&self, index: usize) -> usize {
        self.items.get(index).map_or(self.packed.len(), |item| item.at)
    }

    fn inode_of(&self, index: usize) -> u64 {
        self.items[index].key.inode_number().0
    }

    /// Stores a value: in the place of the value that it replaces, if that is just as long.
    fn store(&mut self, value: Option<&[u8]>, free: ValueSpan) -> Result<ValueSpan> {
        let Some(value) = value else { return Ok(ValueSpan::default()) };
        if value.len() == free.len {
            self.values[free.at..free.at + free.len].copy_from_slice(value);
            return Ok(free);
        }
        let at = self.values.len();
        memory::extend(&mut self.values, value)?;
        Ok(ValueSpan { at, len: value.len() })
    }

    fn value_of(&self, item: &GroupItem) -> Option<&[u8]> {
        let place = item.value;
        item.is_put().then(|| &self.values[place.at..place.at + place.len])
    }

    /// Packs an item. Its new form replaces the old one, which ends at `end`.
    fn pack_again(&mut self, index: usize, end: usize) -> Result<()> {
        let mut buffer = core::mem::take(&mut self.buffer);
        let item = self.items[index];
        let (inode, like) = self.base_of(index, &item);
        let like = &self.values[like];
        buffer.clear();
        put_mutation(&mut buffer, &item.key, item.form, self.value_of(&item), (inode, like))?;
        let (before, new_end) = (self.packed.len(), item.at + buffer.len());
        if new_end > end {
            let more = new_end - end;
            self.packed.try_reserve(more).map_err(|_| Error::OutOfMemory)?;
            self.packed.resize(before + more, 0);
        }
        self.packed.copy_within(end..before, new_end);
        self.packed.truncate(before - end + new_end);
        self.packed[item.at..new_end].copy_from_slice(&buffer);
        self.buffer = buffer;
        for item in &mut self.items[index + 1..] {
            item.at = item.at - end + new_end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::pack::{pack, unpack};
    use crate::format::payload::{encode, mutations};

    /// A record: inode number, kind and suffix of each key, and its value.
    type Mutations = BTreeMap<(u64, u8, u64), Option<Vec<u8>>>;

    fn plain(mutations: &Mutations, settled: impl Fn(&(u64, u8, u64)) -> bool) -> Vec<u8> {
        let mut payload = Vec::new();
        for (key, value) in mutations {
            let form =
                (u8::from(value.is_some()) * TAG_PUT) | (u8::from(settled(key)) * TAG_SETTLED);
            let (inode, kind, suffix) = *key;
            encode(&mut payload, &Key::from_parts(inode, kind, suffix), form, value.as_deref())
                .unwrap();
        }
        payload
    }

    fn record() -> impl Strategy<Value = Mutations> {
        let key = (prop_oneof![0..12_u64, any::<u64>()], 1..8_u8, 0..3_u64);
        let byte = prop_oneof![4 => Just(0), 1 => any::<u8>()];
        let value = prop_oneof![
            prop::collection::vec(byte.clone(), 29),
            prop::collection::vec(byte, 0..60)
        ];
        prop::collection::btree_map(key, prop::option::of(value), 0..6)
    }

    proptest! {
        /// After every record the packed form is that of all mutations packed at once.
        #[test]
        fn it_is_what_packing_all_would_give(records in prop::collection::vec(record(), 1..12)) {
            let mut group = GroupPayload::default();
            let mut all = Mutations::new();
            for record in records {
                group = group.joined(&plain(&record, |_| false)).unwrap();
                all.extend(record.clone());
                let payload = plain(&all, |key| !record.contains_key(key));
                prop_assert_eq!(group.plain_len(), payload.len());
                prop_assert_eq!(group.items.len(), all.len());
                prop_assert_eq!(unpack(group.packed()).unwrap(), Some(payload.clone()));
                if let Some(packed) = pack(&payload).unwrap() {
                    prop_assert_eq!(group.packed(), packed);
                }
            }
            let again = group.cleared().joined(&plain(&all, |_| false)).unwrap();
            let anew = GroupPayload::default().joined(&plain(&all, |_| false)).unwrap();
            prop_assert_eq!(again.packed(), anew.packed());
            prop_assert_eq!(again.plain_len(), anew.plain_len());
        }
    }

    /// Every key is there once, in order, with the newest value, and the new ones are marked.
    #[test]
    fn joining_keeps_the_newest_of_each_key() {
        let some = |text: &[u8]| Some(text.to_vec());
        let key = |number: u64| (number, 1, 0);
        let old = Mutations::from([
            (key(1), some(b"a")),
            (key(3), some(b"b")),
            (key(5), None),
            (key(9), some(b"c")),
        ]);
        let new = Mutations::from([
            (key(2), None),
            (key(3), some(b"new")),
            (key(5), some(b"back")),
            (key(10), None),
        ]);
        let group = GroupPayload::default().joined(&plain(&old, |_| false)).unwrap();
        let group = group.joined(&plain(&new, |_| false)).unwrap();
        let found = |group: &GroupPayload, wanted: fn(u8) -> bool| -> Vec<_> {
            let payload = unpack(group.packed()).unwrap().unwrap();
            let found = mutations(&payload, wanted).unwrap().unwrap();
            found.into_iter().map(|one| (one.key.inode_number().0, one.value)).collect()
        };
        let all = [
            (1, some(b"a")),
            (2, None),
            (3, some(b"new")),
            (5, some(b"back")),
            (9, some(b"c")),
            (10, None),
        ];
        assert_eq!(found(&group, |_| true), all);
        let fresh = [all[1].clone(), all[2].clone(), all[3].clone(), all[5].clone()];
        assert_eq!(found(&group, |tag| tag & TAG_SETTLED == 0), fresh);
        let again = group.joined(&[]).unwrap();
        assert_eq!(found(&again, |_| true), all);
        assert!(found(&again, |tag| tag & TAG_SETTLED == 0).is_empty());
    }
}
