//! Setting transaction points: by a commit record, or by a checkpoint where a commit record is not
//! possible.

pub(crate) mod group_commit;
mod store_parameters;
pub(crate) mod transaction;

use alloc::vec::Vec;

use steadfast_media::Medium;
use steadfast_media::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::engine::apply::record_limit;
use crate::engine::state::{CommitState, Working};
use crate::error::{Error, Result};
use crate::format::extent::written_since;
use crate::format::key::Kind;
use crate::format::{LogPosition, RecordBuilder, Root};
use crate::log::{self, Next};
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::profile::NAME_CACHE;
use crate::sabotage::{Sabotage, planted};

/// Up to this many bytes of unflushed data share the record's flush, and opening checks them. More
/// is flushed before the record is written, so that opening never reads much. Both bounds are one
/// block where a flush costs next to nothing.
const CHECKED_DATA_MAX: u32 = 256 << 10;
/// Limit of the data that opening reads to check it, bytes. An extent counts as a whole, however
/// little of it is new.
const READ_DATA_MAX: u64 = 4 << 20;

/// A record that is ready to be written.
struct CommitRecord {
    at: u64,
    bytes: Vec<u8>,
    /// Log position after it.
    next: LogPosition,
    flush_data_first: bool,
    /// The [`Working::sequence`] up to which it covers everything.
    sequence: u64,
}

enum CommitStep {
    Nothing,
    Write(CommitRecord),
    /// The log cannot take it: a checkpoint makes it durable.
    Checkpoint,
    /// A checkpoint has to finish first.
    Wait,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Makes everything accepted so far durable: a transaction point.
    pub(crate) fn commit(&self) -> Result<()> {
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.group_commit(Err(Error::Held))
    }

    /// As [`commit`](Self::commit), for an event of the mask: nothing happens while the volume
    /// is held.
    pub(crate) fn commit_for_event(&self) -> Result<()> {
        self.group_commit(Ok(()))
    }

    /// An event of the mask has happened: a transaction point if the mask has it. A volume that was
    /// opened for reading has nothing to make durable.
    pub(crate) fn event(&self, event: TransactionMask) -> Result<()> {
        let wanted = !self.read_only && self.active_mask().contains(event);
        if wanted { self.commit_for_event() } else { self.lifecycle.check_not_closed() }
    }

    /// Joins or leads a group commit: returns when everything accepted so far is durable. While the
    /// volume is held, the result is `held`.
    fn group_commit(&self, held: Result<()>) -> Result<()> {
        self.ensure_writable()?;
        let _present = self.committers.join();
        let target = self.working.lock().sequence;
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        if self.lifecycle.is_held() && !planted(Sabotage::IgnoreHold) {
            return if planted(Sabotage::HoldAfterPoint) { Ok(()) } else { held };
        }
        if commit.committed >= target && !self.working.lock().must_store_parameters() {
            return Ok(());
        }
        self.committers
            .lead(&self.store.device.platform, &mut commit, |commit| self.commit_locked(commit))
    }

    /// Makes the present state durable, for every caller that waits for the commit lock.
    pub(crate) fn commit_locked(&self, commit: &mut CommitState) -> Result<()> {
        loop {
            let step = self.next_step(&mut self.working.lock(), &mut commit.record)?;
            match step {
                CommitStep::Nothing => break,
                CommitStep::Wait => self.finish_checkpoint()?,
                CommitStep::Checkpoint => {
                    self.commit_by_checkpoint(commit)?;
                    break;
                }
                CommitStep::Write(record) => {
                    let written = self.write_record(&record);
                    written.map_err(|error| {
                        self.lifecycle.fail_with("the intent log could not be written", error)
                    })?;
                    let late = planted(Sabotage::CountLatecomers);
                    commit.committed =
                        if late { self.working.lock().sequence } else { record.sequence };
                    let early = self.store.device.wants_discards_early();
                    if early || self.keeps_deltas {
                        let mut working = self.working.lock();
                        if early {
                            working.space.commit_is_durable();
                        }
                        working.note_durable(record.sequence, record.next.lsn);
                    }
                    self.tally.lock().points += 1;
                    // A build without the dentry and inode cache has little memory.
                    let block = self.store.device.superblock.block_size as usize;
                    if NAME_CACHE && record.bytes.capacity() <= block {
                        commit.record = record.bytes;
                    }
                    break;
                }
            }
        }
        commit.last_ms = self.store.device.platform.monotonic_ms();
        Ok(())
    }

    fn next_step(&self, working: &mut Working, memory: &mut Vec<u8>) -> Result<CommitStep> {
        self.lifecycle.check_not_failed()?;
        if working.frozen.as_ref().is_some_and(|frozen| frozen.uncommitted) {
            return Ok(CommitStep::Wait);
        }
        if working.pending.is_empty() && !working.parameters_changed {
            let (sequence, lsn) = (working.sequence, working.log.position().lsn);
            working.note_durable(sequence, lsn);
            return Ok(CommitStep::Nothing);
        }
        // A unit of deleting a snapshot waits for a transaction point.
        let starve = self.background.snapshots_starve.load(Ordering::Acquire);
        let needs_checkpoint = working.pending.overflow()
            || working.log.blocks() == 0
            || working.parameters_changed
            || starve;
        let record = if needs_checkpoint { None } else { self.next_record(working, memory)? };
        let Some((next, data)) = record else {
            return Ok(if working.frozen.is_some() {
                CommitStep::Wait
            } else {
                CommitStep::Checkpoint
            });
        };
        let record = self.seal_record(working, next, data);
        // The state is at a transaction point now, so a background checkpoint can be frozen.
        if self.pace().wants_checkpoint(working) {
            // If the freeze fails, the commit record is still written, and a later point tries
            // again.
            let _ = self.freeze(working);
        }
        Ok(CommitStep::Write(record))
    }

    /// The next record, and the bytes of data that opening would read to check it. `None` if the
    /// log cannot take it. Not inlined, as [`write_record`](Self::write_record): a checkpoint of
    /// the same transaction point would have their variables on the stack.
    #[inline(never)]
    fn next_record(
        &self,
        working: &mut Working,
        memory: &mut Vec<u8>,
    ) -> Result<Option<(Next, u64)>> {
        let root: Root = self.view.read().root;
        let checkpointed = working.checkpointed.generation;
        let (mut keys, payload) = working.spare.record();
        working.pending.keys(&mut keys)?;
        let mut builder = RecordBuilder::in_memory(payload, working.pending.bytes())?;
        let mut data_blocks = 0;
        for key in &keys {
            let mut add = |value: &[u8]| {
                if key.kind() == Some(Kind::Extent) {
                    data_blocks += written_since(value, checkpointed);
                }
                builder.add(key, Some(value))
            };
            match self.store.get_with(&root, key, &mut add)? {
                Some(added) => added?,
                None => builder.add(key, None)?,
            }
        }
        let data = data_blocks * u64::from(self.store.device.superblock.block_size);
        if builder.payload().len() > record_limit(&self.store) {
            return Ok(None);
        }
        let next = working.log.next(&builder, memory)?;
        let block = self.store.device.superblock.block_size as usize;
        working.spare.keep_record(keys, builder.into_payload(), block);
        Ok(next.map(|next| (next, data)))
    }

    /// Fixes the record's place in the log and its content.
    fn seal_record(&self, working: &mut Working, next: Next, data: u64) -> CommitRecord {
        let unflushed = self.store.device.unflushed();
        let block_size = self.store.device.superblock.block_size;
        let (unflushed_max, data_max) = match self.store.device.medium.flushes_cheaply() {
            true => (block_size, u64::from(block_size)),
            false => (CHECKED_DATA_MAX, READ_DATA_MAX),
        };
        let too_much = unflushed > unflushed_max || (unflushed > 0 && data > data_max);
        let flush_data_first = self.store.device.test_and_clear_in_place() || too_much;
        let check_data = unflushed > 0 && !flush_data_first;
        let (at, bytes) = working.log.seal(&self.store, next, check_data);
        self.background.count_commit();
        working.pending.clear();
        working.space.note_sealed();
        working.space.seal_discards();
        let next = working.log.position();
        if planted(Sabotage::ForgetDeltasEarly) {
            working.note_durable(working.sequence, next.lsn);
        }
        CommitRecord { at, bytes, next, flush_data_first, sequence: working.sequence }
    }

    #[inline(never)]
    fn write_record(&self, record: &CommitRecord) -> Result<()> {
        if record.flush_data_first && !planted(Sabotage::SkipFlushOfData) {
            self.store.device.flush()?;
        }
        let write = || {
            log::write(&self.store, record.at, &record.bytes)?;
            if planted(Sabotage::SkipFlushOfCommit) { Ok(()) } else { self.store.device.flush() }
        };
        self.watch.write_checked(&self.store, &self.lifecycle, false, write, |own| {
            own.note_record(&self.store, record.at, &record.bytes, &record.next);
        })
    }

    /// Sets a transaction point and empties the log.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.ensure_writable()?;
        self.lifecycle.check_not_held()?;
        self.checkpoint_now()
    }

    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        self.ensure_writable()?;
        self.finish_checkpoint()?;
        if self.lifecycle.is_held() {
            return Ok(());
        }
        let clean = {
            let working = self.working.lock();
            working.pending.is_empty()
                && working.log.used() == 0
                && !working.parameters_changed
                && working.space.almost_free() == 0
        };
        if clean { Ok(()) } else { self.commit_by_checkpoint(&mut commit) }
    }

    /// A checkpoint of the present state, in the foreground. The caller holds the commit lock;
    /// nothing is frozen.
    pub(crate) fn commit_by_checkpoint(&self, commit: &mut CommitState) -> Result<()> {
        let sequence = {
            let mut working = self.working.lock();
            self.delete_unit(&mut working);
            self.freeze(&mut working)?;
            working.sequence
        };
        self.commit_frozen(commit, sequence)
    }

    /// Finishes the checkpoint of a state that was frozen at `sequence`. That is a transaction point.
    pub(in crate::engine) fn commit_frozen(
        &self,
        commit: &mut CommitState,
        sequence: u64,
    ) -> Result<()> {
        self.finish_checkpoint()?;
        commit.committed = sequence;
        self.note_durable(sequence);
        self.tally.lock().points += 1;
        commit.last_ms = self.store.device.platform.monotonic_ms();
        Ok(())
    }
}
