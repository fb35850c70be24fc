//! Pressure: when a checkpoint begins, and what operations contribute to it, so that no operation
//! waits for a whole one.
//!
//! Changes fill three resources. One is the intent log. One is the memory for nodes that are not on
//! the medium yet. One is the medium itself, with freed blocks that wait to be reused. A checkpoint
//! empties all three. It begins at a transaction point while much room is left, and background
//! steps write it.
//!
//! If background steps do not keep up, each operation writes some nodes before it begins. It
//! follows a schedule by which the checkpoint is done when three quarters of the room are used up.
//! It never writes more than [`PAID_NODES`]. An operation waits for a whole checkpoint only if the
//! room is used up at once.
//!
//! Where a mount should read little (flash), the length of the log decides. Background work keeps
//! the log near a half, because it writes a checkpoint as soon as the checkpoint has begun. If
//! background work has not run for a while, checkpoints begin earlier, and operations pay for them
//! at once. They are then done before the log is half full, so a mount reads no more than with
//! background work.
//!
//! Without transaction points no checkpoint can begin. Then each operation seals some nodes and
//! writes them out without a checkpoint. These nodes are of the working generation and may change
//! again. A changed node is no longer sealed, and the list of
//! [leaving](crate::engine::state::Working::leaving) nodes ignores it.

use core::cmp::Reverse;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::background::BackgroundWork;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::memory;
use crate::platform::Platform;
use crate::sort::sort_by_key;
use crate::tree::{CacheUse, Store};

/// Limit of the nodes that one operation writes, each with all its copies. It is more than an
/// operation changes itself, and quickly written.
const PAID_NODES: usize = 8;
/// In a smaller cache one operation takes a large part, and checkpoints would never end.
const CACHE_NODES_MIN: usize = 64;
/// A checkpoint begins when freed blocks that wait for it exceed this many lengths of the log.
/// Small changes free much less while they fill a log, so for them the log decides.
const WAITING_LOGS: u64 = 16;

/// Whether the memory for nodes that are not on the medium becomes scarce.
fn crowded(usage: &CacheUse) -> bool {
    usage.dirty > usage.capacity / 2
}

/// Limit of such nodes, including those of a checkpoint in progress.
fn dirty_max(usage: &CacheUse) -> usize {
    usage.capacity * 3 / 4
}

/// How many of `units` are due when `used` of `room` are used up: none up to a quarter, all from
/// three quarters on.
fn due(units: usize, used: u64, room: u64) -> usize {
    if 4 * used >= 3 * room {
        return if used > 0 { units } else { 0 };
    }
    let (part, whole) = ((4 * used).saturating_sub(room), 2 * room);
    (units as u64 * part).div_ceil(whole) as usize
}

/// When a checkpoint begins, and how fast operations write it.
pub(crate) struct Pace<'a, M: Medium, P: Platform> {
    store: &'a Store<M, P>,
    background: &'a BackgroundWork,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    pub(crate) fn pace(&self) -> Pace<'_, M, P> {
        Pace { store: &self.store, background: &self.background }
    }
}

impl<M: Medium, P: Platform> Pace<'_, M, P> {
    /// Whether a checkpoint should begin at the transaction point of the working state. It should
    /// if the log is half full, or half of the memory is dirty. It should also if freed blocks hold
    /// back much space, or half of the available blocks. The last condition matters for points that
    /// change the same keys for ever: they need no more of the log, and each frees blocks.
    pub(crate) fn wants_checkpoint(&self, working: &Working) -> bool {
        if working.frozen.is_some() {
            return false;
        }
        let (log, space, usage) = (&working.log, &working.space, self.store.cache_use());
        let waiting_max = space.available().min(log.blocks() * WAITING_LOGS);
        log.used() > self.log_bounds(log).0
            || usage.capacity >= CACHE_NODES_MIN && crowded(&usage)
            || space.almost_free() > waiting_max
    }

    /// Whether only operations keep the log short, without background work, where a mount should
    /// read little.
    fn is_unattended(&self, log: &Log) -> bool {
        let commits = u64::from(self.background.commits());
        self.store.device.medium.flushes_cheaply() && commits > log.blocks() / 4
    }

    /// Blocks of the log in use when a checkpoint begins, and when the log is full. The checkpoint
    /// should be done when three quarters of the blocks in between are used up.
    fn log_bounds(&self, log: &Log) -> (u64, u64) {
        let blocks = log.blocks();
        if self.is_unattended(log) { (blocks / 3, blocks / 2) } else { (blocks / 2, blocks) }
    }

    /// Nodes of the checkpoint in progress that an operation writes; its last step counts as one.
    fn owed(&self, working: &Working, usage: &CacheUse) -> usize {
        let Some(frozen) = &working.frozen else { return 0 };
        let (left, log) = (frozen.nodes.len(), &working.log);
        let changed = usage.dirty.saturating_sub(left);
        let (_, end) = self.log_bounds(log);
        let rooms = [
            (log.used().saturating_sub(frozen.log_used), end.saturating_sub(frozen.log_used)),
            (changed as u64, dirty_max(usage).saturating_sub(frozen.all) as u64),
            (frozen.available.saturating_sub(working.space.available()), frozen.available),
        ];
        let due = rooms.into_iter().map(|(used, room)| due(frozen.all + 1, used, room)).max();
        due.unwrap_or(0).saturating_sub(frozen.all - left).min(PAID_NODES)
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Work that an operation does before it begins, so a refused operation has changed nothing.
    ///
    /// # Errors
    /// Nodes and bitmaps that cannot be read. The medium's write errors, after which the volume is
    /// read-only.
    pub(crate) fn throttle(&self) -> Result<()> {
        let usage = self.store.cache_use();
        let owed = {
            let mut working = self.working.lock();
            if working.space.has_many_dirty_groups()
                || working.pending_dead.len() > self.pending_dead_max()
            {
                self.put_bitmaps_into_tree(&mut working)?;
                while self.put_dead_into_tree(&mut working)? {}
            }
            if crowded(&usage) && working.frozen.is_none() {
                self.write_some_dirty(&mut working)?;
            }
            self.pace().owed(&working, &usage)
        };
        if owed > 0 {
            self.checkpoint_step(owed as u64 * self.store.device.superblock.node_bytes())?;
        }
        let usage = self.store.cache_use();
        if usage.dirty <= dirty_max(&usage) {
            return Ok(());
        }
        // Last resort: the whole checkpoint in the foreground.
        self.finish_checkpoint()?;
        let mut working = self.working.lock();
        // The first call writes nodes sealed before, the second call nodes changed since.
        self.write_out(&mut working, usize::MAX)?;
        self.write_out(&mut working, usize::MAX)
    }

    /// Writes out some of the dirty nodes: the share of one operation.
    fn write_some_dirty(&self, working: &mut Working) -> Result<()> {
        let upkeep = self.store.device.upkeep();
        if !upkeep.is_any() {
            return self.write_out(working, PAID_NODES);
        }
        for _ in 0..PAID_NODES {
            self.write_out(working, 1)?;
            if working.leaving.is_empty()
                || self.store.device.is_beyond(
                    upkeep,
                    PAID_NODES as u64 * self.store.device.superblock.node_bytes(),
                )
            {
                break;
            }
        }
        Ok(())
    }

    /// Writes out the nodes that a replay has changed, before they fill the cache. One record can
    /// change more nodes than that, so it happens in the middle of a record, too.
    ///
    /// The nodes go to blocks that neither the checkpointed state nor the log uses. So a power cut,
    /// or an error, changes nothing: the log is there, and the next opening replays it. With a
    /// damaged newer state nothing is written, because free blocks may be the remains of it.
    ///
    /// # Errors
    /// The medium's; `OutOfMemory`. The caller drops the replay.
    pub(crate) fn throttle_replay(&self, working: &mut Working) -> Result<()> {
        let usage = self.store.cache_use();
        if usage.dirty <= dirty_max(&usage) || self.read_only || self.newer_state.is_some() {
            return Ok(());
        }
        // Another writer may use blocks that are free to this one.
        self.watch.check_unless_locked(&self.store, &self.lifecycle)?;
        self.write_out_dirty(working, usize::MAX)
    }

    /// Writes out up to `most` of the dirty nodes, without a checkpoint.
    fn write_out(&self, working: &mut Working, most: usize) -> Result<()> {
        self.write_out_dirty(working, most).map_err(|error| match error {
            // The nodes are still on the list.
            Error::OutOfMemory => error,
            error => self.lifecycle.fail_with("metadata could not be written out", error),
        })
    }

    /// As [`write_out`](Self::write_out); after an error the volume goes on.
    #[inline(never)]
    fn write_out_dirty(&self, working: &mut Working, most: usize) -> Result<()> {
        if working.leaving.is_empty() {
            let room = self.store.room_to_seal()?;
            let leaving = &mut working.leaving;
            leaving.try_reserve_exact(room.capacity()).map_err(|_| Error::OutOfMemory)?;
            let sealed = self.store.seal(&mut self.view.write().root, room)?;
            leaving.extend(sealed.iter().map(|sealed| sealed.pointer));
            // They are taken from the end, so neighbours on the medium go in one request.
            sort_by_key(leaving, |pointer| Reverse(pointer.addresses[0]));
        }
        let mut nodes = alloc::vec::Vec::new();
        let mut first = working.leaving.len();
        while first > 0 && nodes.len() < most {
            first -= 1;
            if let Some(sealed) = self.store.sealed(&working.leaving[first]) {
                memory::push(&mut nodes, sealed)?;
            }
        }
        self.store.write_nodes(&nodes)?;
        for sealed in &nodes {
            self.store.set_clean(sealed.pointer.addresses[0]);
        }
        working.leaving.truncate(first);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_grows_from_nothing_to_everything() {
        assert_eq!(
            [0, 25, 26, 50, 74, 75, 100].map(|used| due(60, used, 100)),
            [0, 0, 2, 30, 59, 60, 60]
        );
        assert_eq!([0, 1].map(|used| due(60, used, 0)), [0, 60]);
        assert_eq!([0, 1].map(|used| due(60, used, 1)), [0, 60]);
    }
}
