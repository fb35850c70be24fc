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
}

/// What a record does to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemState {
    /// Nothing, or it is packed already.
    Kept,
    /// It is new.
    Inserted,
    /// It has replaced a removal.
    ReplacedRemoval,
    /// It has replaced a value.
    ReplacedPut,
}

/// One mutation.
#[derive(Debug, Clone, Copy)]
struct GroupItem {
    key: Key,
    form: u8,
    state: ItemState,
    /// Its packed form.
    packed: ValueSpan,
    value: ValueSpan,
}

/// A value in `values`, or a packed form in `packed`.
#[derive(Debug, Clone, Copy, Default)]
struct ValueSpan {
    at: usize,
    len: usize,
}

impl ValueSpan {
    fn range(self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

impl GroupItem {
    fn is_put(&self) -> bool {
        self.form & TAG_PUT != 0
    }

    fn inode(&self) -> u64 {
        self.key.inode_number().0
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
    /// `new` take precedence; the others become settled. Works with `memory`, whatever is there.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn joined(mut self, new: &[u8], memory: &mut Vec<u8>) -> Result<GroupPayload> {
        if planted(Sabotage::ForgetSettled) {
            self = GroupPayload::default();
        }
        for index in self.fresh.drain(..) {
            let item = &mut self.items[index];
            item.form |= TAG_SETTLED;
            self.packed[item.packed.at] |= TAG_SETTLED;
        }
        if self.items.is_empty() {
            // What the first record of a new group needs, and no more.
            self.values.try_reserve_exact(new.len()).map_err(|_| Error::OutOfMemory)?;
        }
        for (key, form, value) in Encoded(new) {
            self.enter(key, form, value)?;
        }
        self.pack_entered(memory)?;
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
    fn enter(&mut self, key: Key, form: u8, value: Option<&[u8]>) -> Result<()> {
        let index = match self.items.last() {
            Some(last) if last.key >= key => self.items.partition_point(|item| item.key < key),
            _ => self.items.len(),
        };
        let replaced = self.items.get(index).filter(|item| item.key == key).copied();
        let free = replaced.map_or(ValueSpan::default(), |item| item.value);
        let state = match replaced {
            None => ItemState::Inserted,
            Some(old) if old.is_put() => ItemState::ReplacedPut,
            Some(_) => ItemState::ReplacedRemoval,
        };
        let value = self.store(value, free)?;
        let item = GroupItem { key, form, state, packed: ValueSpan::default(), value };
        self.plain += item.plain_len();
        memory::push(&mut self.fresh, index)?;
        match replaced {
            Some(old) => {
                self.plain -= old.plain_len();
                self.items[index] = item;
            }
            None => memory::insert(&mut self.items, index, item)?,
        }
        Ok(())
    }

    /// Packs what was entered, in one pass. An item after it is packed again if what it is packed
    /// against has changed: the inode number of the item before it, or the last value of its kind.
    fn pack_entered(&mut self, old: &mut Vec<u8>) -> Result<()> {
        let Some(first) = self.fresh.first().copied() else { return Ok(()) };
        let last = first.checked_sub(1).map(|last| &self.items[last]);
        let start = last.map_or(0, |last| last.packed.range().end);
        let mut inode = last.map_or(0, GroupItem::inode);
        let mut old_inode = inode;
        // Where all items from there on are packed again, their old form is not needed.
        let all = self.fresh.len() == self.items.len() - first;
        old.clear();
        memory::extend(old, if all { &[] } else { &self.packed[start..] })?;
        self.packed.truncate(start);
        // A bit for each kind whose last value is another one than before.
        let mut changed_kinds = 0_u32;
        let (mut index, mut entered) = (first, 0);
        while index < self.items.len() {
            if inode == old_inode && changed_kinds == 0 {
                let next = self.fresh.get(entered).copied().unwrap_or(self.items.len());
                if let [first, .., last] = &self.items[index..next] {
                    inode = last.inode();
                    old_inode = inode;
                    let from = first.packed.at;
                    let to = self.packed.len();
                    let same = &old[from - start..last.packed.range().end - start];
                    memory::extend(&mut self.packed, same)?;
                    for item in &mut self.items[index..next] {
                        item.packed.at = item.packed.at - from + to;
                    }
                    index = next;
                    continue;
                }
            }
            let (before, rest) = self.items.split_at_mut(index);
            let Some(item) = rest.first_mut() else { break };
            let (is_put, kind) = (item.is_put(), 1_u32.wrapping_shl(u32::from(item.kind())));
            let at = self.packed.len();
            let is_kept = item.state == ItemState::Kept;
            if is_kept && inode == old_inode && !(is_put && changed_kinds & kind != 0) {
                let from = item.packed.at - start;
                memory::extend(&mut self.packed, &old[from..from + item.packed.len])?;
            } else {
                let value = is_put.then(|| &self.values[item.value.range()]);
                let like = &self.values[base_of(before, item)];
                put_mutation(&mut self.packed, &item.key, item.form, value, (inode, like))?;
            }
            inode = item.inode();
            if item.state != ItemState::Inserted {
                old_inode = inode;
            }
            if is_kept {
                changed_kinds &= !if is_put { kind } else { 0 };
            } else {
                entered += 1;
                let is_base = is_put || item.state == ItemState::ReplacedPut;
                if is_base && !planted(Sabotage::PackAgainstOldValue) {
                    changed_kinds |= kind;
                }
                item.state = ItemState::Kept;
            }
            item.packed = ValueSpan { at, len: self.packed.len() - at };
            index += 1;
        }
        Ok(())
    }

    /// Stores a value: in the place of the value that it replaces, if that is just as long.
    fn store(&mut self, value: Option<&[u8]>, free: ValueSpan) -> Result<ValueSpan> {
        let Some(value) = value else { return Ok(ValueSpan::default()) };
        if value.len() == free.len {
            self.values[free.range()].copy_from_slice(value);
            return Ok(free);
        }
        let at = self.values.len();
        memory::extend(&mut self.values, value)?;
        Ok(ValueSpan { at, len: value.len() })
    }
}

/// Where the value is that an item is packed against: the last one of its kind before it.
fn base_of(before: &[GroupItem], item: &GroupItem) -> Range<usize> {
    let is_like = |last: &&GroupItem| last.is_put() && last.kind() == item.kind();
    let like = item.is_put().then(|| before.iter().rfind(is_like)).flatten();
    like.map_or(0..0, |last| last.value.range())
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
                group = group.joined(&plain(&record, |_| false), &mut Vec::new()).unwrap();
                all.extend(record.clone());
                let payload = plain(&all, |key| !record.contains_key(key));
                prop_assert_eq!(group.plain_len(), payload.len());
                prop_assert_eq!(group.items.len(), all.len());
                prop_assert_eq!(unpack(group.packed()).unwrap(), Some(payload.clone()));
                if let Some(packed) = pack(&payload).unwrap() {
                    prop_assert_eq!(group.packed(), packed);
                }
            }
            let again = group.cleared().joined(&plain(&all, |_| false), &mut Vec::new()).unwrap();
            let anew = GroupPayload::default().joined(&plain(&all, |_| false), &mut Vec::new()).unwrap();
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
        let group =
            GroupPayload::default().joined(&plain(&old, |_| false), &mut Vec::new()).unwrap();
        let group = group.joined(&plain(&new, |_| false), &mut Vec::new()).unwrap();
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
        let again = group.joined(&[], &mut Vec::new()).unwrap();
        assert_eq!(found(&again, |_| true), all);
        assert!(found(&again, |tag| tag & TAG_SETTLED == 0).is_empty());
    }
}
