//! Returning to a snapshot: its tree becomes the live one.
//!
//! It takes two checkpoints. The first is of the last transaction point, so the log is empty and no
//! record names blocks that are free in the snapshot. The second has the snapshot's root with two
//! changes. It gets the snapshot's own key, which its tree does not have. Every older snapshot that
//! was deleted since gets a flag.
//!
//! Those older snapshots reappear with the directory of the tree, together with their dead lists.
//! Blocks of these lists may have been reused for newer data, so background work deletes the
//! snapshots a second time. A full volume may have no room beside these blocks; then the way back
//! [frees](crate::engine::snapshots::deleted) some of them itself. Blocks that were allocated after
//! the snapshot are free by its bitmaps.

use alloc::vec::Vec;

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::engine::reader::View;
use crate::engine::snapshots::deleted::DeletedSnapshots;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::{Metaroot, Root, SnapshotCounts, SnapshotRecord};
use crate::memory;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::types::Generation;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Returns the whole volume to a snapshot; the snapshot stays. Changes that were not durable
    /// are dropped first, as by [`rollback`](Self::rollback), with the same effect on every user of
    /// the volume. Newer snapshots are deleted. If there are any and `destroy_newer` is false, the
    /// call fails. The result is durable on return.
    pub(crate) fn snapshot_rollback(&self, name: &str, destroy_newer: bool) -> Result<()> {
        if !SNAPSHOTS {
            return Err(NO_SNAPSHOTS);
        }
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.finish_checkpoint()?;
        let (record, older) = self.rollback_target(name, destroy_newer)?;
        self.restore_committed(&mut commit)?;
        self.commit_by_checkpoint(&mut commit)?;
        let sequence = {
            let mut working = self.working.lock();
            self.lifecycle.begin_rollback();
            match self.switch_to(&mut working, &record, &older) {
                Ok(()) => {
                    self.lifecycle.end_rollback(true);
                    working.sequence
                }
                Err(error) => {
                    // If this fails too, there is no state to show; another rollback may find one.
                    // No writer comes in between.
                    self.restore_committed_in(&mut commit, &mut working).map_err(|error| {
                        let error = self
                            .lifecycle
                            .fail_with("the state to roll back to could not be restored", error);
                        self.lifecycle.end_rollback(false);
                        error
                    })?;
                    self.incarnation.fetch_add(1, Ordering::AcqRel);
                    // A later turn of background work finishes it.
                    let _ = self.freeze_to_drop_deltas(&mut working);
                    return Err(error);
                }
            }
        };
        self.finish_checkpoint()?;
        // Groups that were full in the previous checkpointed state may no longer be full.
        self.working.lock().space.forget_full();
        commit.committed = sequence;
        self.note_durable(sequence);
        self.tally.lock().points += 1;
        commit.last_ms = self.store.device.platform.monotonic_ms();
        self.background.wake_reclaim();
        self.background.wake_snapshots();
        self.incarnation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The snapshot, and the generations of all older ones.
    fn rollback_target(
        &self,
        name: &str,
        destroy_newer: bool,
    ) -> Result<(SnapshotRecord, Vec<Generation>)> {
        let reader = self.reader()?;
        let record = self.snapshot_records(reader.root()).find(name)?.ok_or(Error::NotFound)?;
        let mut older = Vec::new();
        let mut newer = false;
        self.snapshot_records(reader.root()).visit(|other| {
            if !other.deleting {
                newer |= other.generation > record.generation;
                if other.generation < record.generation {
                    memory::push(&mut older, other.generation)?;
                }
            }
            Ok(true)
        })?;
        if newer && !destroy_newer {
            return Err(Error::NewerSnapshots);
        }
        Ok((record, older))
    }

    /// Makes the snapshot's tree the working one, with the necessary changes, and freezes it.
    fn switch_to(
        &self,
        working: &mut Working,
        record: &SnapshotRecord,
        older: &[Generation],
    ) -> Result<()> {
        let state = Metaroot {
            root: record.root.pointer,
            height: record.root.height,
            inodes: record.inodes,
            used_blocks: record.used_blocks,
            nodes: record.nodes,
            snapshots: SnapshotCounts {
                newest: record.generation,
                keys: record.snapshots.keys.saturating_add(1),
                shared_nodes: record.nodes,
                ..record.snapshots
            },
            ..working.checkpointed
        };
        let mut now = self.working_at(&state)?;
        {
            let mut view = self.view.write();
            self.store.forget_all();
            *view = View { root: record.root, log: None };
        }
        // Generations, commit numbers and inode numbers continue.
        now.generation = working.generation;
        now.sequence = working.sequence + 1;
        now.next_inode = working.next_inode;
        now.log = working.log.without_group();
        now.checkpointed = working.checkpointed;
        now.shared_data = record.data_blocks(self.store.device.superblock.node_cost());
        core::mem::swap(working, &mut *now);
        working.begin_deltas_again(self.keeps_deltas);
        drop(now);
        let root: Root = record.root;
        let mut again: Vec<SnapshotRecord> = Vec::new();
        let mut deleted = DeletedSnapshots::new(root);
        let mut kept = Generation(0);
        self.snapshot_records(&root).visit(|other| {
            let gone = !other.deleting && !older.contains(&other.generation);
            match gone || other.deleting {
                true => deleted.add(other.generation, kept)?,
                false => kept = other.generation,
            }
            if gone && !planted(Sabotage::ForgetDeletedSnapshots) {
                memory::push(&mut again, SnapshotRecord { deleting: true, ..other })?;
            }
            Ok(true)
        })?;
        for other in again.iter().chain([record]) {
            self.with_space_of_deleted(working, &mut deleted, |working| {
                self.put_record(working, other)
            })?;
        }
        loop {
            self.put_deleted_lists(working, &mut deleted)?;
            match self.freeze(working) {
                Err(Error::NoSpace) if self.free_deleted(working, &mut deleted)? => {}
                done => return done,
            }
        }
    }
}
