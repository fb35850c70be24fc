//! Rollback of a live volume to the last durable transaction point.

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::engine::commit::transaction::NO_TRANSACTION;
use crate::engine::lifecycle::Lifecycle;
use crate::engine::reader::View;
use crate::engine::recovery::open::read_log;
use crate::engine::state::{CommitState, Working};
use crate::error::{Error, Result};
use crate::format::Metaroot;
use crate::platform::Platform;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Returns the volume to its last durable transaction point: the newest metaroot and the log up
    /// to the last commit record. The caller holds the locks of all inodes, so that no writer is
    /// between allocating and publishing blocks.
    pub(crate) fn rollback(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        self.lifecycle.check_not_held()?;
        self.rollback_under(&mut commit)
    }

    /// As [`rollback`](Self::rollback), to the beginning of the transaction that holds the volume.
    /// After an error the volume is still held if nothing has changed.
    pub(crate) fn roll_back_transaction(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        if self.lifecycle.now() == Lifecycle::Open {
            return Err(NO_TRANSACTION);
        }
        self.rollback_under(&mut commit)
    }

    fn rollback_under(&self, commit: &mut CommitState) -> Result<()> {
        self.check_rollback()?;
        // A checkpoint of uncommitted changes that was refused for lack of memory is not finished
        // now: the rollback drops those changes.
        let uncommitted =
            self.working.lock().frozen.as_ref().is_some_and(|frozen| frozen.uncommitted);
        if !uncommitted {
            self.finish_checkpoint()?;
        }
        // No other thread finishes it.
        let checkpoint = self.checkpoint.lock();
        {
            let mut working = self.working.lock();
            self.restore_committed_in(commit, &mut working)?;
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            self.freeze_to_drop_deltas(&mut working)?;
        }
        drop(checkpoint);
        if self.keeps_deltas {
            self.finish_checkpoint()?;
            self.note_durable(commit.committed);
        }
        Ok(())
    }

    /// Makes the committed state the working one. The caller holds the inode locks and the commit
    /// lock; nothing is frozen.
    pub(crate) fn restore_committed(&self, commit: &mut CommitState) -> Result<()> {
        self.restore_committed_in(commit, &mut self.working.lock())
    }

    /// As [`restore_committed`](Self::restore_committed), under the writer's lock.
    pub(crate) fn restore_committed_in(
        &self,
        commit: &mut CommitState,
        working: &mut Working,
    ) -> Result<()> {
        self.watch.restore_checked(&self.store, &self.lifecycle, working, |working| {
            self.restore(commit, working)
        })
    }

    fn restore(&self, commit: &mut CommitState, working: &mut Working) -> Result<()> {
        let metaroot = Metaroot::read_newest(
            &self.store.device.medium,
            &self.store.device.superblock_now(),
            &self.store.device.platform,
        )?;
        if metaroot.generation != working.checkpointed.generation {
            return Err(Error::NoMetaroot);
        }
        let found = read_log(&self.store, &metaroot)?;
        // Opening takes an unreadable last record for one that was never finished. Here the writer
        // knows that it was finished.
        if let Some(error) = found.unreadable
            && found.end.lsn < working.log.position().lsn
        {
            return Err(error);
        }
        let mut restored = self.working_at(&metaroot)?;
        let (epoch, sequence, next_inode, generation) = (
            working.log.position().epoch,
            working.sequence,
            working.next_inode,
            working.generation,
        );
        {
            let mut view = self.view.write();
            self.lifecycle.begin_rollback();
            self.store.forget_all();
            *view = View { root: metaroot.root(), log: None };
            core::mem::swap(working, &mut *restored);
            drop(restored);
        }
        if self.keeps_deltas {
            working.raise_generation(generation);
        }
        self.find_shared_data(working);
        let replayed =
            self.continue_log_after(working, &found).and_then(|()| self.replay(working, &found));
        working.log.raise_epoch(epoch);
        // The numbers of batches continue, so an old batch is never taken for a new one.
        working.sequence = sequence + 1;
        working.begin_deltas_again(self.keeps_deltas);
        working.note_durable(sequence + 1, found.end.lsn);
        // A caller may still hold the number of an inode that no longer exists. That number must
        // not be reused.
        working.next_inode = working.next_inode.max(next_inode);
        // Mask and timer are the user's present choice and not part of the state.
        working.parameters_changed = metaroot.mask != self.parameters.mask()
            || metaroot.timer_ms != self.parameters.timer_ms();
        let replayed = replayed.map_err(|error| {
            self.lifecycle.fail_with("the state to roll back to could not be restored", error)
        });
        self.lifecycle.end_rollback(replayed.is_ok());
        replayed?;
        commit.committed = working.sequence;
        commit.last_ms = self.store.device.platform.monotonic_ms();
        self.background.wake_reclaim();
        Ok(())
    }
}
