//! Snapshots: what is stored of them, and the blocks that only they hold.
//!
//! A snapshot is a checkpointed state whose root the live tree stores under a key. So taking one
//! costs the same at any size of the volume. The *birth* of its blocks, the generation that
//! allocated them, keeps them from being reused:
//!
//! - A block that the live tree releases and that was born after the newest snapshot belongs to no
//!   snapshot and is freed. A block that was born earlier goes to the *dead list* of the newest
//!   snapshot, and its bit in the allocation bitmap stays set. So the bitmaps say what the live
//!   tree uses or snapshots hold. Normal operation costs the same with none and with a thousand of
//!   them.
//! - The life of a block is one interval of generations. Once the block is dead, the newest
//!   snapshot within the interval has it in its dead list. So deleting a snapshot needs only that
//!   list. Blocks born after the previous snapshot were held by no other one and are free. The rest
//!   goes to the list of the previous snapshot. Blocks that the deleted snapshot shares with the
//!   next one are not touched.
//! - Returning to a snapshot makes its tree the live one, with its own bitmaps, so later blocks are
//!   free at once.
//!
//! No log record holds the keys of all this. Dead lists follow from the mutations, as bitmaps do,
//! so replay produces them again. Snapshots are added and removed only by checkpoints.
//!
//! Taking a snapshot makes two checkpoints in the foreground. The first writes the state that
//! becomes the snapshot. The second, of the next generation, has the key that records the first. A
//! power cut before the second is durable leaves no snapshot; a power cut after it leaves the whole
//! snapshot. The newest snapshot's generation is valid from the first freeze on, so nothing that
//! the snapshot holds is freed in between.
//!
//! This file takes and lists snapshots. [`delete`], [`open`] and [`rollback`] do the rest; the
//! values of the keys are in [`crate::format`].

pub(in crate::engine) mod dead;
mod delete;
mod deleted;
mod open;
pub(crate) mod pending_dead;
mod rollback;

pub(crate) use pending_dead::PendingDead;

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::{Key, Kind};
use crate::format::{GENERATION_MAX, Root, Snapshot, SnapshotCounts, SnapshotRecord, check_name};
use crate::memory;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::tree::{PlannedChange, Store};
use crate::types::{Generation, InodeNumber};

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Takes a snapshot of everything accepted so far, which becomes durable with it: a transaction
    /// point. The work does not depend on the size of the volume. Apart from the search for a
    /// snapshot of this name it does not depend on the number of snapshots.
    pub(crate) fn snapshot_create(&self, name: &str) -> Result<Snapshot> {
        check_name(name)?;
        if !SNAPSHOTS {
            return Err(NO_SNAPSHOTS);
        }
        self.ensure_writable()?;
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        // A snapshot is a transaction point.
        self.lifecycle.check_not_held()?;
        self.finish_checkpoint()?;
        let (record, entered) = {
            let mut working = self.working.lock();
            let root = self.view.read().root;
            if self.snapshot_records(&root).find(name)?.is_some() {
                return Err(Error::AlreadyExists);
            }
            let mut record = self.record_of(&working, name)?;
            let key = Key::snapshot(record.generation);
            let change = PlannedChange { key, value_len: Some(record.encode()?.len()) };
            // Every node will be of an earlier generation.
            let generation = Generation(working.generation.0 + 1);
            let nodes = self.store.plan(&root, generation, &[change])?.nodes;
            let roots = self.roots(&working);
            self.budget().check_for_snapshot(&mut working, &roots, nodes)?;
            self.freeze(&mut working)?;
            let before = (working.snapshots, working.shared_data);
            let entered = self.enter_snapshot(&mut working, &mut record);
            if entered.is_err() {
                (working.snapshots, working.shared_data) = before;
            }
            (record, entered)
        };
        // Needed even without a snapshot: the freeze may have skipped a log sequence number.
        self.finish_checkpoint()?;
        entered?;
        self.commit_by_checkpoint(&mut commit)?;
        record.to_snapshot()
    }

    /// A record of the state that the next freeze makes, without its root.
    fn record_of(&self, working: &Working, name: &str) -> Result<SnapshotRecord> {
        if working.generation.0 > GENERATION_MAX {
            return Err(Error::Unsupported("snapshots on a volume with so many checkpoints"));
        }
        let mut owned = alloc::string::String::new();
        owned.try_reserve_exact(name.len()).map_err(|_| Error::OutOfMemory)?;
        owned.push_str(name);
        Ok(SnapshotRecord {
            root: self.view.read().root,
            generation: working.generation,
            deleting: false,
            created: self.store.device.platform.now(),
            inodes: working.inodes,
            used_blocks: working.space.used(),
            nodes: working.nodes,
            next_inode: working.next_inode,
            snapshots: working.snapshots,
            name: owned,
        })
    }

    /// Upper bound of the data that the live tree shares with the newest snapshot, from the stored
    /// counts of both. If the snapshot's key cannot be read, no bound is known.
    pub(crate) fn find_shared_data(&self, working: &mut Working) {
        working.shared_data = u64::MAX;
        if !SNAPSHOTS {
            return;
        }
        let newest = working.snapshots.newest;
        let root = self.view.read().root;
        if newest.0 > 0
            && let Ok(Some(record)) = self.snapshot_records(&root).of(newest)
        {
            working.shared_data = record.data_blocks(self.store.device.superblock.node_cost());
        }
    }

    /// Makes the state that was just frozen a snapshot.
    fn enter_snapshot(&self, working: &mut Working, record: &mut SnapshotRecord) -> Result<()> {
        let frozen =
            working.frozen.as_ref().map(|frozen| frozen.metaroot).ok_or(Error::NoMetaroot)?;
        record.root = frozen.root();
        record.used_blocks = frozen.used_blocks;
        record.nodes = frozen.nodes;
        record.snapshots = frozen.snapshots;
        working.snapshots.newest = record.generation;
        working.snapshots.keys = working.snapshots.keys.saturating_add(1);
        working.snapshots.shared_nodes = frozen.nodes;
        working.shared_data = record.data_blocks(self.store.device.superblock.node_cost());
        self.put_record(working, record)
    }

    /// Puts a snapshot's key into the working tree. No record of the log can hold it.
    pub(crate) fn put_record(&self, working: &mut Working, record: &SnapshotRecord) -> Result<()> {
        let key = Key::snapshot(record.generation);
        let value = record.encode()?;
        let roots = self.roots(working);
        let change = PlannedChange { key, value_len: Some(value.len()) };
        let plan = self.store.plan(&roots.working, working.generation, &[change])?;
        working.prepare_change(&self.store, &roots, &plan, &[])?;
        self.change_tree(working, plan, |tree| tree.put(&key, &value).map(drop))?;
        working.pending.set_overflow();
        working.enter_nodes(&self.store);
        Ok(())
    }

    /// The snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let mut list = Vec::new();
        self.visit_snapshots(|record| {
            memory::push(&mut list, record.to_snapshot()?)?;
            Ok(true)
        })?;
        Ok(list)
    }

    /// The snapshot of this name.
    pub(crate) fn snapshot(&self, name: &str) -> Result<Snapshot> {
        let mut found = Err(Error::NotFound);
        self.visit_snapshots(|record| {
            if record.name == name {
                found = Ok(record.to_snapshot()?);
            }
            Ok(found.is_err())
        })?;
        found
    }

    /// Whether there is a snapshot of this generation.
    pub(crate) fn has_snapshot(&self, generation: Generation) -> Result<bool> {
        let lists = self.listing();
        let found = self.snapshot_records(self.reader()?.root()).of(generation)?;
        Ok(found.is_some_and(|record| lists(&record)))
    }

    /// Calls `visit` for every snapshot, oldest first, until it says `false`.
    fn visit_snapshots(
        &self,
        mut visit: impl FnMut(&SnapshotRecord) -> Result<bool>,
    ) -> Result<()> {
        let lists = self.listing();
        let reader = self.reader()?;
        self.snapshot_records(reader.root())
            .visit(|record| if lists(&record) { visit(&record) } else { Ok(true) })
    }

    /// Which snapshots are listed. After a failure of the medium, one whose key cannot become
    /// durable is not listed, because it cannot be opened. A snapshot that only waits for memory is
    /// listed: the next transaction point makes it durable.
    fn listing(&self) -> impl Fn(&SnapshotRecord) -> bool + use<M, P> {
        let failed = self.lifecycle.has_failed();
        let durable = self.working.lock().checkpointed.generation;
        move |record| !record.deleting && (record.generation < durable || !failed)
    }
}

/// The snapshots that a tree names.
pub(crate) struct SnapshotRecords<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    root: &'a Root,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(crate) fn snapshot_records<'a>(&'a self, root: &'a Root) -> SnapshotRecords<'a, M, P> {
        SnapshotRecords { store: &self.store, root }
    }
}

impl<M: Medium, P: Platform> SnapshotRecords<'_, M, P> {
    /// Calls `visit` for every snapshot, oldest first, until it says `false`.
    pub(crate) fn visit(
        &self,
        mut visit: impl FnMut(SnapshotRecord) -> Result<bool>,
    ) -> Result<()> {
        let (mut from, last) = Key::kind_range(InodeNumber::SYSTEM, Kind::Snapshot);
        while let Some((key, value)) = self.store.next(self.root, &from, &last)? {
            let go_on = visit(SnapshotRecord::decode(Generation(key.suffix()), &value)?)?;
            let Some(next) = key.successor().filter(|_| go_on) else { break };
            from = next;
        }
        Ok(())
    }

    /// The snapshot of this generation, also one that is being deleted.
    pub(crate) fn of(&self, generation: Generation) -> Result<Option<SnapshotRecord>> {
        let decode = |value: &[u8]| SnapshotRecord::decode(generation, value);
        self.store.get_with(self.root, &Key::snapshot(generation), decode)?.transpose()
    }

    /// The snapshot of this name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<SnapshotRecord>> {
        let mut found = None;
        self.visit(|record| {
            if !record.deleting && record.name == name {
                found = Some(record);
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    /// The counts, and the data shared with the newest snapshot, when `record` is no longer a
    /// snapshot.
    pub(super) fn counts_without(
        &self,
        record: &SnapshotRecord,
        working: &Working,
    ) -> Result<(SnapshotCounts, u64)> {
        let counts = working.snapshots;
        if record.generation != counts.newest {
            return Ok((counts, working.shared_data));
        }
        let (mut newest, mut shared_nodes, mut data) = (Generation(0), 0, 0);
        self.visit(|other| {
            if (!other.deleting || planted(Sabotage::NewestIsDeleting))
                && other.generation < record.generation
            {
                (newest, shared_nodes, data) = (
                    other.generation,
                    other.nodes,
                    other.data_blocks(self.store.device.superblock.node_cost()),
                );
            }
            Ok(other.generation < record.generation)
        })?;
        // Blocks shared with the previous snapshot are shared with both.
        let shared_nodes = counts.shared_nodes.min(shared_nodes);
        Ok((SnapshotCounts { newest, shared_nodes, ..counts }, working.shared_data.min(data)))
    }
}
