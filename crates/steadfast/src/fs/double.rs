//! A keyspace in memory for tests: a sorted map that checks the rules of the seam and answers
//! `Conflict` at random.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use crate::error::{Error, Result};
use crate::extent;
use crate::key::{Key, Kind};
use crate::keyspace::{
    BATCH_MUTATIONS_MAX, Batch, Keyspace, KeyspaceRead, Value, Version, Versioned,
};
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Timestamp};

/// The test double. Single-threaded; the clock moves one second with every commit.
pub(crate) struct MemoryKeyspace {
    map: RefCell<BTreeMap<Key, (Value, Version)>>,
    version: Cell<u64>,
    inode: Cell<u64>,
    random: Cell<u64>,
    /// One commit in so many answers `Conflict`; 0: none.
    pub conflict_one_in: Cell<u64>,
    /// Largest value.
    pub value_len_max: Cell<usize>,
    /// Present time.
    pub now: Cell<Timestamp>,
    /// Generation for birth stamps.
    pub generation: Cell<u64>,
    reserved: RefCell<BTreeSet<u64>>,
    used: RefCell<BTreeSet<u64>>,
    next_block: Cell<u64>,
}

impl MemoryKeyspace {
    /// An empty map; `seed` decides which commits conflict.
    pub fn new(seed: u64) -> Self {
        MemoryKeyspace {
            map: RefCell::default(),
            version: Cell::new(1),
            inode: Cell::new(InodeNumber::FIRST_USER.0),
            random: Cell::new(seed.max(1)),
            conflict_one_in: Cell::new(0),
            value_len_max: Cell::new(1000),
            now: Cell::new(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 }),
            generation: Cell::new(1),
            reserved: RefCell::default(),
            used: RefCell::default(),
            next_block: Cell::new(1000),
        }
    }

    fn random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<Key> {
        self.map.borrow().keys().copied().collect()
    }

    /// Number of blocks in extents.
    pub fn blocks_used(&self) -> usize {
        self.used.borrow().len()
    }

    /// Number of blocks reserved and neither published nor released.
    pub fn blocks_reserved(&self) -> usize {
        self.reserved.borrow().len()
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
    fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        let map = self.map.borrow();
        Ok(map
            .get(key)
            .map(|(value, version)| Versioned { value: value.clone(), version: *version }))
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        assert!(from <= to, "empty range {from:?}..={to:?}");
        let map = self.map.borrow();
        let found = map.range(*from..=*to).next();
        Ok(found.map(|(key, (value, version))| {
            (*key, Versioned { value: value.clone(), version: *version })
        }))
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        assert!(from <= to, "empty range {from:?}..={to:?}");
        let map = self.map.borrow();
        let found = map.range(*from..=*to).next_back();
        Ok(found.map(|(key, (value, version))| {
            (*key, Versioned { value: value.clone(), version: *version })
        }))
    }

    fn value_len_max(&self) -> usize {
        self.value_len_max.get()
    }
}

impl Keyspace for MemoryKeyspace {
    fn commit(&self, batch: Batch) -> Result<()> {
        if self.conflict_one_in.get() > 0
            && self.random().is_multiple_of(self.conflict_one_in.get())
        {
            return Err(Error::Conflict);
        }
        let mut map = self.map.borrow_mut();
        for precondition in &batch.preconditions {
            if map.get(&precondition.key).map(|(_, version)| *version) != precondition.version {
                return Err(Error::Conflict);
            }
        }
        assert!(batch.mutations.len() <= BATCH_MUTATIONS_MAX);
        assert!(batch.mutations.is_sorted_by(|a, b| a.key < b.key));
        let (mut appear, mut vanish) = (BTreeSet::new(), BTreeSet::new());
        for mutation in &batch.mutations {
            let old = map.get(&mutation.key).map(|(value, _)| value.as_slice());
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
        let (mut used, mut reserved) = (self.used.borrow_mut(), self.reserved.borrow_mut());
        for block in appear.difference(&vanish) {
            assert!(reserved.remove(block), "block {block} was not reserved");
            assert!(used.insert(*block));
        }
        for block in vanish.difference(&appear) {
            assert!(used.remove(block));
        }
        self.version.set(self.version.get() + 1);
        self.now.set(Timestamp { seconds: self.now.get().seconds + 1, nanoseconds: 0 });
        for mutation in batch.mutations {
            match mutation.value {
                Some(value) => drop(map.insert(mutation.key, (value, Version(self.version.get())))),
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

    fn reserve(&self, blocks: u64, goal: Option<BlockAddress>) -> Result<BlockRun> {
        let free = |block: &u64| {
            !self.used.borrow().contains(block) && !self.reserved.borrow().contains(block)
        };
        let start = goal.map(|goal| goal.0).filter(free).unwrap_or(self.next_block.get());
        let count = (start..start + blocks.clamp(1, 40)).take_while(free).count() as u64;
        self.reserved.borrow_mut().extend(start..start + count);
        self.next_block.set(self.next_block.get().max(start + count));
        Ok(BlockRun { start: BlockAddress(start), count })
    }

    fn release(&self, run: BlockRun) {
        for block in run.start.0..run.end() {
            assert!(self.reserved.borrow_mut().remove(&block));
        }
    }
}
