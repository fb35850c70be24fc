//! What other nodes of a cluster keep of the changes that are not durable yet.
//!
//! The nodes of a cluster change a volume through its owner. When the owner dies, what it had
//! accepted and not made durable would be lost, although the nodes that survive were told of it. So
//! a node gets a [`Delta`] with each answer: the newest values of the keys that have changed since
//! its last one. A node [keeps](KeptDeltas) its deltas until the changes are durable. The next
//! owner [takes](Engine::open_after) the newest ones as one more record behind the log.
//!
//! Invariants:
//! - the deltas that a node keeps lead to the state of the last one, from the durable state and from
//!   any later one that the medium may have. They have every key that has changed since, with its
//!   value in the last one;
//! - what a delta names is not reused before the next checkpoint, as for a sealed commit record;
//! - deltas never change a state that is [newer](Place::is_after) than they are, or older than what
//!   they begin with. So a rollback ends in a checkpoint of a later generation, and so does an
//!   opening with deltas that might count again;
//! - all deltas are of one owner, the one before. Callers see to that: batches of two owners have
//!   the same numbers;
//! - deltas are given while a transaction point may come at any moment: with the timer in the mask,
//!   and outside transactions. Otherwise callers decide what becomes durable together.
//!
//! See docs/decisions/0064-survivors-keep-the-record.md.

pub(in crate::engine) mod changed_keys;
mod kept;
mod take;

use alloc::boxed::Box;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::{Frozen, Working};
use crate::error::Result;
use crate::format::RecordBuilder;
use crate::format::key::Kind;
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::{Generation, Lsn};

use changed_keys::ChangedKeys;
pub use kept::{Delta, KeptDeltas, Place, Reached};

/// Is told the number of each batch, in the thread that makes it.
pub type Observer = Box<dyn Fn(u64) + Send + Sync>;

/// Longest payload of a delta, bytes.
const DELTA_MAX: usize = 1 << 20;

impl Working {
    /// Where the medium is at most: no later generation is frozen, and no later record is sealed.
    fn sealed(&self) -> Place {
        Place { generation: Generation(self.generation.0 - 1), lsn: self.log.position().lsn }
    }

    /// Everything up to batch `sequence` is durable, and the log continues at `lsn`.
    pub(in crate::engine) fn note_durable(&mut self, sequence: u64, lsn: Lsn) {
        let generation = self.checkpointed.generation;
        if let Some(changed) = &mut self.changed {
            changed.note_durable(sequence, Place { generation, lsn });
        }
    }

    /// Another state has taken the place of this one. No delta tells of that: the next one waits
    /// until the new state is durable.
    pub(in crate::engine) fn begin_deltas_again(&mut self, keeps_deltas: bool) {
        self.changed = keeps_deltas.then(|| ChangedKeys::new(self.sequence));
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// What has changed since batch `seen`, for a node that keeps it: since the durable state if
    /// `seen` is older than that. `None`: the volume gives no deltas now. If too much has changed
    /// for a delta, this sets a transaction point.
    pub(crate) fn delta(&self, seen: u64) -> Result<Option<Delta>> {
        if let Some(delta) = self.delta_in(&mut self.working.lock(), seen)? {
            return Ok(delta);
        }
        self.commit_for_event()?;
        Ok(self.delta_in(&mut self.working.lock(), seen)?.flatten())
    }

    /// `None`: too much has changed.
    #[expect(clippy::option_option, reason = "no delta now, or none without a point")]
    fn delta_in(&self, working: &mut Working, seen: u64) -> Result<Option<Option<Delta>>> {
        self.lifecycle.check_not_failed()?;
        // Under the writer's lock: a transaction that has begun has changed nothing yet.
        if self.lifecycle.is_held() || !self.active_mask().contains(TransactionMask::TIMER) {
            return Ok(Some(None));
        }
        let Some(changed) = &working.changed else { return Ok(Some(None)) };
        // Batches of another owner say nothing here.
        let seen = if seen > working.sequence { 0 } else { seen };
        let Some(keys) = changed.since(seen)? else { return Ok(None) };
        let root = self.view.read().root;
        let mut builder = RecordBuilder::new(0)?;
        let mut names_blocks = false;
        for key in &keys {
            names_blocks |= key.kind() == Some(Kind::Extent);
            match self.store.get_with(&root, key, |value| builder.add(key, Some(value)))? {
                Some(added) => added?,
                None => builder.add(key, None)?,
            }
            if builder.payload().len() > DELTA_MAX {
                return Ok(None);
            }
        }
        let delta = Delta {
            begins_at: seen.max(changed.durable_sequence()),
            sequence: working.sequence,
            durable_sequence: changed.durable_sequence(),
            durable: changed.durable(),
            sealed: working.sealed(),
            payload: builder.into_payload(),
        };
        if names_blocks && !planted(Sabotage::ReuseBlocksOfDelta) {
            working.space.note_sealed();
        }
        Ok(Some(Some(delta)))
    }

    /// A checkpoint has made everything up to batch `sequence` durable. The caller holds the commit
    /// lock.
    pub(in crate::engine) fn note_durable(&self, sequence: u64) {
        if self.keeps_deltas {
            let mut working = self.working.lock();
            let lsn = working.log.position().lsn;
            working.note_durable(sequence, lsn);
        }
    }

    /// After a rollback, still under the writer's lock: begins a checkpoint, so that no delta of the
    /// dropped changes counts once it is done. A rollback is no transaction point, so the
    /// checkpoint stores neither mask nor timer.
    pub(in crate::engine) fn freeze_to_drop_deltas(&self, working: &mut Working) -> Result<()> {
        if !self.keeps_deltas || planted(Sabotage::DeltasOutliveRollback) {
            return Ok(());
        }
        let (changed, metaroot) = (working.parameters_changed, working.checkpointed);
        self.freeze(working)?;
        working.parameters_changed = changed;
        if let Some(Frozen { metaroot: frozen, .. }) = &mut working.frozen {
            (frozen.mask, frozen.timer_ms) = (metaroot.mask, metaroot.timer_ms);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use steadfast_media::MemoryMedium;

    use super::*;
    use crate::fs::{Caller, NewNode};
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;
    use crate::types::InodeNumber;
    use crate::volume::Volume;

    type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

    fn medium() -> Arc<MemoryMedium> {
        let medium = Arc::new(MemoryMedium::new(4 << 20, 512).unwrap());
        let options = FormatOptions::default();
        TestVolume::format(&medium, &options, &TestPlatform::new()).unwrap();
        medium
    }

    fn open(medium: &Arc<MemoryMedium>, nodes: &[KeptDeltas]) -> (TestVolume, Vec<Reached>) {
        let (medium, options) = (medium.clone(), OpenOptions::default());
        Volume::open_after(medium, options, TestPlatform::new(), nodes).unwrap()
    }

    fn make(volume: &TestVolume, name: &str, data: &[u8]) -> InodeNumber {
        let (caller, name) = (Caller::default(), name.as_bytes());
        let made = volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller);
        let inode = made.unwrap().inode;
        volume.write(inode, 0, data, false).unwrap();
        inode
    }

    fn content(volume: &TestVolume, name: &str) -> Option<Vec<u8>> {
        let found = volume.lookup(InodeNumber::ROOT, name.as_bytes()).ok()?;
        let mut bytes = alloc::vec![0; found.size as usize];
        volume.read(found.inode, 0, &mut bytes).unwrap();
        Some(bytes)
    }

    fn keep(volume: &TestVolume, kept: &mut KeptDeltas) {
        kept.keep(volume.delta(kept.sequence).unwrap().unwrap()).unwrap();
    }

    #[test]
    fn the_next_owner_has_what_the_newest_deltas_tell() {
        let medium = medium();
        let (volume, _) = open(&medium, &[]);
        let [mut first, mut second] = [KeptDeltas::default(), KeptDeltas::default()];
        make(&volume, "a", &[1; 5000]);
        keep(&volume, &mut first);
        volume.transact().unwrap();
        let inode = make(&volume, "b", &[2; 700]);
        keep(&volume, &mut first);
        keep(&volume, &mut second);
        volume.write(inode, 0, &[3; 9000], false).unwrap();
        volume.unlink(InodeNumber::ROOT, b"a").unwrap();
        keep(&volume, &mut second);
        make(&volume, "told to no node", b"");
        assert_eq!(second.payloads.len(), 2);
        drop(volume);
        let (volume, reached) = open(&medium, &[first.clone(), second.clone()]);
        assert_eq!(reached, [Reached::All, Reached::Same]);
        assert_eq!(content(&volume, "b"), Some(alloc::vec![3; 9000]));
        assert_eq!((content(&volume, "a"), content(&volume, "told to no node")), (None, None));
        drop(volume);
        // It is durable, and the same deltas lead on from it no more.
        let (volume, reached) = open(&medium, &[first, KeptDeltas::default()]);
        assert_eq!(reached, [Reached::All, Reached::All]);
        assert_eq!(content(&volume, "b"), Some(alloc::vec![3; 9000]));
    }

    #[test]
    fn deltas_without_their_data_or_of_a_dropped_state_count_for_nothing() {
        let medium = medium();
        let (volume, _) = open(&medium, &[]);
        let mut kept = KeptDeltas::default();
        make(&volume, "a", &[1; 5000]);
        keep(&volume, &mut kept);
        volume.rollback().unwrap();
        drop(volume);
        let (volume, reached) = open(&medium, &[kept]);
        // The rollback's checkpoint is after what the node was told, and the rollback has dropped it.
        assert_eq!((content(&volume, "a"), reached), (None, alloc::vec![Reached::All]));
        let mut kept = KeptDeltas::default();
        make(&volume, "b", &[7; 5000]);
        keep(&volume, &mut kept);
        drop(volume);
        let size = 4 << 20;
        let mut bytes = alloc::vec![0; size];
        steadfast_media::Medium::read(&*medium, 0, &mut bytes).unwrap();
        let at = bytes.windows(512).position(|window| window == [7; 512]).unwrap();
        steadfast_media::Medium::write(&*medium, at as u64 / 512 * 512, &[8; 512]).unwrap();
        let (volume, reached) = open(&medium, &[kept]);
        assert_eq!((content(&volume, "b"), reached), (None, alloc::vec![Reached::Less]));
    }

    #[test]
    fn an_observer_knows_the_batches_of_its_thread_before_a_delta_has_them() {
        let medium = medium();
        let (mut volume, _) = open(&medium, &[]);
        let (seen, mut kept) = (Arc::new(std::sync::Mutex::new(Vec::new())), KeptDeltas::default());
        let sees = seen.clone();
        volume.observe_batches(Box::new(move |batch| sees.lock().unwrap().push(batch)));
        make(&volume, "a", b"1");
        let (accepted, _) = volume.progress();
        assert_eq!(*seen.lock().unwrap(), [accepted - 1, accepted]);
        keep(&volume, &mut kept);
        assert_eq!(kept.sequence, accepted);
        volume.rollback().unwrap();
        let before = seen.lock().unwrap().len();
        make(&volume, "c", b"");
        assert!(seen.lock().unwrap().len() > before, "a rollback does not end it");
        drop(volume);
        // Nothing has changed since the medium was there.
        let (volume, _) = open(&medium, &[]);
        let mut kept = KeptDeltas::default();
        make(&volume, "b", b"1");
        volume.transact().unwrap();
        keep(&volume, &mut kept);
        assert!(kept.payloads.is_empty());
        let nodes = [kept.clone()];
        drop(volume);
        assert_eq!(open(&medium, &nodes).1, [Reached::Same]);
    }

    #[test]
    fn a_caller_that_decides_alone_what_is_durable_ends_deltas() {
        let medium = medium();
        let (volume, _) = open(&medium, &[]);
        let mut kept = KeptDeltas::default();
        let transaction = volume.begin().unwrap();
        make(&volume, "a", b"1");
        assert_eq!(volume.delta(0).unwrap(), None);
        transaction.commit().unwrap();
        keep(&volume, &mut kept);
        assert_eq!(kept.payloads.len(), 0);
        volume.set_mask(TransactionMask::MANUAL).unwrap();
        make(&volume, "b", b"1");
        assert_eq!(volume.delta(0).unwrap(), None);
        let plain = Volume::open(self::medium(), OpenOptions::default(), TestPlatform::new());
        assert_eq!(plain.unwrap().delta(0).unwrap(), None);
    }
}
