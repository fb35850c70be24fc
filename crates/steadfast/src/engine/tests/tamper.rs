//! Damage for tests of the checker: changes of the working state that no operation makes.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::format::SnapshotCounts;
use crate::format::key::Key;
use crate::platform::Platform;
use crate::tree::PlannedChange;
use crate::volume::Volume;

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Puts or removes a key without any checks. The next checkpoint writes it.
    pub(crate) fn tamper(&self, key: Key, value: Option<Vec<u8>>) {
        let mut working = self.engine.working.lock();
        let roots = self.engine.roots(&working);
        let change = PlannedChange { key, value_len: value.as_ref().map(Vec::len) };
        let plan = self.engine.store.plan(&roots.working, working.generation, &[change]).unwrap();
        working.prepare_change(&self.engine.store, &roots, &plan, &[]).unwrap();
        self.engine
            .change_tree(&mut working, plan, |tree| match &value {
                Some(value) => tree.put(&key, value).map(drop),
                None => tree.remove(&key).map(drop),
            })
            .unwrap();
        working.enter_nodes(&self.engine.store);
        working.pending.set_overflow();
    }

    /// Changes the snapshot counts of the next metaroot.
    pub(crate) fn tamper_counts(&self, change: impl FnOnce(&mut SnapshotCounts)) {
        let mut working = self.engine.working.lock();
        // Waiting entries go into the list of the right snapshot first.
        while self.engine.put_bitmaps_into_tree(&mut working).unwrap()
            || self.engine.put_dead_into_tree(&mut working).unwrap()
        {}
        change(&mut working.snapshots);
        working.pending.set_overflow();
    }
}
