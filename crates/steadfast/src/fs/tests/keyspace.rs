//! A keyspace in memory for unit tests: a sorted map that checks the rules of the interface.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use crate::engine::keyspace::{BATCH_MUTATIONS_MAX, Keyspace, KeyspaceRead, SpaceClass, Visit};
use crate::error::Result;
use crate::format::key::{Key, Kind};
use crate::format::{Mutation, Value, extent};
use crate::fs::tx::Tx;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Timestamp};

/// The test double. Single-threaded; the clock moves one second with every commit.
pub(crate) struct MemoryKeyspace {
    map: RefCell<BTreeMap<Key, Value>>,
    inode: Cell<u64>,
    /// Largest value.
    pub value_len_max: Cell<usize>,
    /// Present time.
    pub now: Cell<Timestamp>,
    /// Generation for birth stamps.
    pub generation: Cell<u64>,
    unpublished: RefCell<BTreeSet<u64>>,
    used: RefCell<BTreeSet<u64>>,
    next_block: Cell<u64>,
}

impl MemoryKeyspace {
    /// An empty map.
    pub fn new() -> Self {
        MemoryKeyspace {
            map: RefCell::default(),
            inode: Cell::new(InodeNumber::FIRST_USER.0),
            value_len_max: Cell::new(1000),
            now: Cell::new(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 }),
            generation: Cell::new(1),
            unpublished: RefCell::default(),
            used: RefCell::default(),
            next_block: Cell::new(1000),
        }
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<Key> {
        self.map.borrow().keys().copied().collect()
    }

    /// Allocates up to `blocks` blocks near `goal` as one run, to be published by a commit.
    pub fn allocate_blocks(&self, blocks: u64, goal: Option<BlockAddress>) -> BlockRun {
        let free = |block: &u64| {
            !self.used.borrow().contains(block) && !self.unpublished.borrow().contains(block)
        };
        let start = goal.map(|goal| goal.0).filter(free).unwrap_or(self.next_block.get());
        let count = (start..start + blocks.clamp(1, 40)).take_while(free).count() as u64;
        self.unpublished.borrow_mut().extend(start..start + count);
        self.next_block.set(self.next_block.get().max(start + count));
        BlockRun { start: BlockAddress(start), count }
    }

    /// Number of blocks in extents.
    pub fn blocks_used(&self) -> usize {
        self.used.borrow().len()
    }

    /// Number of blocks allocated and neither published nor released.
    pub fn blocks_unpublished(&self) -> usize {
        self.unpublished.borrow().len()
    }
}

fn blocks(key: &Key, value: Option<&[u8]>) -> Vec<u64> {
    match (key.kind(), value) {
        (Some(Kind::Extent), Some(value)) => {
            let run = extent::decode_run(value).expect("valid extent");
            (run.start.0..run.end()).collect()
        }
        _ => Vec::new(),
    }
}

impl KeyspaceRead for MemoryKeyspace {
    fn get(&self, key: &Key) -> Result<Option<Value>> {
        Ok(self.map.borrow().get(key).cloned())
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        assert!(from <= to, "empty range {from:?}..={to:?}");
        let map = self.map.borrow();
        Ok(map.range(*from..=*to).next().map(|(key, value)| (*key, value.clone())))
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        assert!(from <= to, "empty range {from:?}..={to:?}");
        let map = self.map.borrow();
        Ok(map.range(*from..=*to).next_back().map(|(key, value)| (*key, value.clone())))
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        Ok(self.get(key)?.map(|value| take(&value)))
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        let items: Vec<_> = {
            let map = self.map.borrow();
            map.range(*from..=*to).map(|(key, value)| (*key, value.clone())).collect()
        };
        for (key, value) in items {
            if !visit(&key, &value)? {
                break;
            }
        }
        Ok(())
    }

    fn value_len_max(&self) -> usize {
        self.value_len_max.get()
    }
}

impl Keyspace for MemoryKeyspace {
    fn apply(&self, mutations: Vec<Mutation>, _: SpaceClass) -> Result<()> {
        let mut map = self.map.borrow_mut();
        assert!(mutations.len() <= BATCH_MUTATIONS_MAX);
        assert!(mutations.is_sorted_by(|a, b| a.key < b.key));
        let (mut appear, mut vanish) = (BTreeSet::new(), BTreeSet::new());
        for mutation in &mutations {
            let old = map.get(&mutation.key).map(Vec::as_slice);
            assert!(mutation.value.is_some() || old.is_some(), "{:?} does not exist", mutation.key);
            vanish.extend(blocks(&mutation.key, old));
            for block in blocks(&mutation.key, mutation.value.as_deref()) {
                assert!(appear.insert(block), "block {block} twice");
            }
            assert!(
                mutation.value.as_ref().is_none_or(|value| value.len() <= self.value_len_max.get()),
                "value of {:?} too long",
                mutation.key
            );
        }
        let (mut used, mut unpublished) = (self.used.borrow_mut(), self.unpublished.borrow_mut());
        for block in appear.difference(&vanish) {
            assert!(unpublished.remove(block), "block {block} was not allocated");
            assert!(used.insert(*block));
        }
        for block in vanish.difference(&appear) {
            assert!(used.remove(block));
        }
        self.now.set(Timestamp { seconds: self.now.get().seconds + 1, nanoseconds: 0 });
        for mutation in mutations {
            match mutation.value {
                Some(value) => drop(map.insert(mutation.key, value)),
                None => drop(map.remove(&mutation.key)),
            }
        }
        Ok(())
    }

    fn allocate_inode(&self) -> Result<InodeNumber> {
        self.inode.set(self.inode.get() + 1);
        Ok(InodeNumber(self.inode.get() - 1))
    }

    fn generation(&self) -> Generation {
        Generation(self.generation.get())
    }

    fn now(&self) -> Timestamp {
        self.now.get()
    }
}

/// Runs one operation in a transaction of its own.
pub(crate) fn update<T>(
    keyspace: &MemoryKeyspace,
    class: SpaceClass,
    operation: impl Fn(&mut Tx<'_, MemoryKeyspace>) -> Result<T>,
) -> Result<T> {
    let mut tx = Tx::new(keyspace, class);
    operation(&mut tx).and_then(|answer| tx.apply().map(|()| answer))
}
