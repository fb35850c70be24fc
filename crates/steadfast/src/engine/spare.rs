//! Memory of batches that were applied, for the next ones: most batches are alike.

use alloc::vec::Vec;

use crate::format::{Mutation, Value};
use crate::memory;
use crate::profile::NAME_CACHE;

/// Values that are kept.
const VALUES: usize = 4;
/// Longest of them, bytes: an inode and most names fit.
const VALUE_MAX: usize = 256;
/// Longest list that is kept.
const LIST_MAX: usize = 8;

/// See the module. A build without the dentry and inode cache has little memory, and keeps none.
#[derive(Default)]
pub struct SpareMemory {
    list: Vec<Mutation>,
    values: Vec<Value>,
}

impl SpareMemory {
    /// An empty list of mutations.
    pub fn list(&mut self) -> Vec<Mutation> {
        core::mem::take(&mut self.list)
    }

    /// An empty value.
    pub fn value(&mut self) -> Value {
        self.values.pop().unwrap_or_default()
    }

    /// Keeps the memory of a batch, as far as there is a place for it.
    pub fn keep(&mut self, mut list: Vec<Mutation>) {
        if !NAME_CACHE || list.capacity() > LIST_MAX {
            return;
        }
        for mut value in list.drain(..).filter_map(|mutation| mutation.value) {
            if self.values.len() < VALUES && value.capacity() <= VALUE_MAX {
                value.clear();
                // Without memory for the list of values, the value is dropped.
                let _ = memory::push(&mut self.values, value);
            }
        }
        self.list = list;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::format::key::Key;

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
        assert_eq!(spare.values.len(), VALUES);
    }
}
