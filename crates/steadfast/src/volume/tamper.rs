//! Damage for tests of the check: changes of the working state that no operation makes.

use alloc::vec::Vec;

use steadfast_media::Medium;

use super::Volume;
use crate::key::Key;
use crate::layout::SnapshotCounts;
use crate::platform::Platform;
use crate::tree::PlannedChange;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Puts or removes a key past all rules. The next checkpoint writes it.
    pub(crate) fn tamper(&self, key: Key, value: Option<Vec<u8>>) {
        let mut working = self.working.lock();
        let roots = self.roots(&working);
        let change = PlannedChange { key, value_len: value.as_ref().map(Vec::len) };
        let plan = self.store.plan(&roots.working, working.generation, &[change]).unwrap();
        self.prepare_change(&mut working, &roots, &plan, &[]).unwrap();
        self.change_tree(&mut working, plan, |tree| match &value {
            Some(value) => tree.put(&key, value).map(drop),
            None => tree.remove(&key).map(drop),
        })
        .unwrap();
        self.settle(&mut working);
        working.pending.set_overflow();
    }

    /// Changes what the next metaroot says of snapshots.
    pub(crate) fn tamper_counts(&self, change: impl FnOnce(&mut SnapshotCounts)) {
        let mut working = self.working.lock();
        // What waits is put into the list of the right snapshot.
        while self.flush_groups(&mut working).unwrap() || self.flush_dead(&mut working).unwrap() {}
        change(&mut working.snapshots);
        working.pending.set_overflow();
    }
}
