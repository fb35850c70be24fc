//! Memory of batches that were applied, and of records that were built, for the next ones: most are
//! alike.

use alloc::vec::Vec;

use crate::format::key::Key;
use crate::format::{Mutation, Value};
use crate::memory;
use crate::profile::NAME_CACHE;
use crate::types::BlockRun;

/// Values that are kept.
const VALUES: usize = 4;
/// Longest of them, bytes: an inode and most names fit.
const VALUE_MAX: usize = 256;
/// Longest list that is kept.
const LIST_MAX: usize = 8;
/// Most keys of a record whose memory is kept.
const KEYS_MAX: usize = 16;

/// A range of blocks with its number of references, or the change of that number.
#[derive(Debug, Clone, Copy)]
pub struct CountedRange {
    pub start: u64,
    pub end: u64,
    pub count: i64,
}

/// Memory that finding the blocks of a batch works with. It outlives the batch.
#[derive(Default)]
pub struct SpareRanges {
    /// Where the number of references rises or falls.
    pub steps: Vec<(u64, i64)>,
    /// The ranges in which it changes.
    pub changes: Vec<CountedRange>,
    /// The numbers before, in one of them.
    pub references: Vec<CountedRange>,
    /// Blocks that the batch releases.
    pub freed: Vec<BlockRun>,
}

impl SpareRanges {
    fn is_small(&self) -> bool {
        let counted = self.changes.capacity().max(self.references.capacity());
        counted.max(self.steps.capacity()).max(self.freed.capacity()) <= LIST_MAX
    }

    fn clear(&mut self) {
        self.steps.clear();
        self.changes.clear();
        self.references.clear();
        self.freed.clear();
    }
}

/// What is kept.
#[derive(Default)]
struct SpareLists {
    list: Vec<Mutation>,
    values: Vec<Value>,
    runs: Vec<BlockRun>,
    ranges: SpareRanges,
    keys: Vec<Key>,
    payload: Vec<u8>,
}

/// See the module. A build without the dentry and inode cache has little memory, and keeps none.
#[derive(Default)]
pub struct SpareMemory {
    /// None or one: opening a volume has the working state on its stack, without the lists.
    lists: Vec<SpareLists>,
}

impl SpareMemory {
    /// What `take` finds among the lists.
    fn find<T: Default>(&mut self, take: impl FnOnce(&mut SpareLists) -> T) -> T {
        self.lists.first_mut().map(take).unwrap_or_default()
    }

    /// The lists, if they may be kept and there is memory for them.
    fn lists(&mut self) -> Option<&mut SpareLists> {
        if NAME_CACHE && self.lists.is_empty() {
            self.lists.try_reserve_exact(1).ok()?;
            self.lists.push(SpareLists::default());
        }
        self.lists.first_mut()
    }

    /// An empty list of mutations.
    pub fn list(&mut self) -> Vec<Mutation> {
        self.find(|lists| core::mem::take(&mut lists.list))
    }

    /// An empty value.
    pub fn value(&mut self) -> Value {
        self.find(|lists| lists.values.pop().unwrap_or_default())
    }

    /// An empty list of runs, and empty lists of ranges.
    pub fn ranges(&mut self) -> (Vec<BlockRun>, SpareRanges) {
        self.find(|lists| (core::mem::take(&mut lists.runs), core::mem::take(&mut lists.ranges)))
    }

    /// A list of keys, and memory for the payload of a record, with any content.
    pub fn record(&mut self) -> (Vec<Key>, Vec<u8>) {
        self.find(|lists| (core::mem::take(&mut lists.keys), core::mem::take(&mut lists.payload)))
    }

    /// Keeps the memory of a list of runs, if it is little.
    pub fn keep_runs(&mut self, mut runs: Vec<BlockRun>) {
        if (1..=LIST_MAX).contains(&runs.capacity())
            && let Some(lists) = self.lists()
        {
            runs.clear();
            lists.runs = runs;
        }
    }

    /// Keeps the memory of lists of ranges, if it is little.
    pub fn keep_ranges(&mut self, mut ranges: SpareRanges) {
        if ranges.is_small()
            && let Some(lists) = self.lists()
        {
            ranges.clear();
            lists.ranges = ranges;
        }
    }

    /// Keeps the memory of the keys and the payload of a record, if it is little: the payload has up
    /// to a `block` of bytes.
    pub fn keep_record(&mut self, keys: Vec<Key>, payload: Vec<u8>, block: usize) {
        if keys.capacity() <= KEYS_MAX
            && payload.capacity() <= block
            && let Some(lists) = self.lists()
        {
            (lists.keys, lists.payload) = (keys, payload);
        }
    }

    /// Keeps the memory of a batch, as far as there is a place for it.
    pub fn keep(&mut self, mut list: Vec<Mutation>) {
        if list.capacity() > LIST_MAX {
            return;
        }
        let Some(lists) = self.lists() else { return };
        for mut value in list.drain(..).filter_map(|mutation| mutation.value) {
            if lists.values.len() < VALUES && value.capacity() <= VALUE_MAX {
                value.clear();
                // Without memory for the list of values, the value is dropped.
                let _ = memory::push(&mut lists.values, value);
            }
        }
        lists.list = list;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn batch(lengths: &[usize]) -> Vec<Mutation> {
        let value = |length: &usize| Some(vec![1; *length]);
        lengths.iter().map(|length| Mutation { key: Key::MIN, value: value(length) }).collect()
    }

    #[test]
    fn it_keeps_little_and_gives_it_back_empty() {
        let mut spare = SpareMemory::default();
        assert!(spare.list().capacity() == 0 && spare.value().capacity() == 0);
        spare.keep(batch(&[100, VALUE_MAX + 1, 30]));
        let (list, values) = (spare.list(), [spare.value(), spare.value(), spare.value()]);
        assert!(list.is_empty() && list.capacity() >= 3);
        assert!(values.iter().all(Vec::is_empty));
        assert_eq!(values.map(|value| value.capacity()), [30, 100, 0]);
        assert!(spare.list().capacity() == 0);
        spare.keep(batch(&[1; LIST_MAX + 1]));
        assert!(spare.list().capacity() == 0 && spare.value().capacity() == 0);
        for _ in 0..3 {
            spare.keep(batch(&[1; LIST_MAX]));
        }
        assert_eq!(spare.lists[0].values.len(), VALUES);
        spare.keep_runs(vec![BlockRun::default(); LIST_MAX]);
        assert!(spare.ranges().0.is_empty());
        spare.keep_runs(vec![BlockRun::default(); LIST_MAX + 1]);
        assert!(spare.ranges().0.capacity() == 0);
        let ranges = |length| SpareRanges { steps: vec![(1, 1); length], ..Default::default() };
        spare.keep_ranges(ranges(LIST_MAX));
        let steps = spare.ranges().1.steps;
        assert!(steps.is_empty() && steps.capacity() == LIST_MAX);
        spare.keep_ranges(ranges(LIST_MAX + 1));
        assert!(spare.ranges().1.steps.capacity() == 0);
        spare.keep_record(vec![Key::MIN], vec![1; 512], 512);
        let (keys, payload) = spare.record();
        assert!(keys.capacity() == 1 && payload.capacity() == 512);
        spare.keep_record(vec![Key::MIN; KEYS_MAX + 1], vec![1], 512);
        assert!(spare.record().0.capacity() == 0);
    }
}
