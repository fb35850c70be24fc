//! The device I/O of checkpoints, in steps of a bounded size. Operations run between the steps.
//!
//! Invariants:
//! - one step at a time, whichever thread makes it (the checkpoint lock is held from the choice of
//!   its nodes until they are written);
//! - the last step writes no nodes: flush, metaroot, flush, second copy of the metaroot. It comes
//!   after all nodes have been written, so the metaroot never names a node that a power cut can
//!   take away;
//! - a node of the frozen state does not change any more, and its blocks are not reused before a
//!   later checkpoint is durable. So it counts as clean as soon as it is written. Its memory can be
//!   freed although nothing durable names it yet;
//! - a step ends when the medium's own upkeep (garbage collection) exceeds the bytes that the step
//!   may write.

use core::slice;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::{Metaroot, Superblock};
use crate::memory;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::SealedNode;

/// Nodes of a step without a given size: a request that suits a disk. On flash, where nodes are
/// small, it is done quickly too.
const STEP_NODES: u64 = 16;

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Writes the frozen state, if there is one, and makes it the checkpointed one.
    ///
    /// # Errors
    /// The medium's; the volume is read-only then. `OutOfMemory`: the next caller that needs the
    /// checkpoint continues it.
    pub(crate) fn finish_checkpoint(&self) -> Result<()> {
        let Some(frozen) = self.working.lock().frozen_generation() else { return Ok(()) };
        // In steps too, so that operations that write a part of it wait for one step only.
        while self.working.lock().frozen_generation() == Some(frozen) {
            self.checkpoint_step(self.step_bytes())?;
        }
        Ok(())
    }

    /// Makes one step of the checkpoint in progress. `false`: there is none.
    ///
    /// While nodes are left, the step writes some: `bytes` bytes at most, all copies counted, but
    /// at least one node. It ends early when the medium has done more than `bytes` bytes of upkeep.
    /// When no node is left, the step is the last one and writes the metaroot.
    ///
    /// # Errors
    /// As [`finish_checkpoint`](Self::finish_checkpoint).
    pub(crate) fn checkpoint_step(&self, bytes: u64) -> Result<bool> {
        let _one_at_a_time = self.checkpoint.lock();
        let (metaroot, nodes, begins) = {
            let working = self.working.lock();
            let Some(frozen) = &working.frozen else { return Ok(false) };
            // After a failed write or flush, a later one says nothing about the data before it.
            self.lifecycle.check_not_failed()?;
            let first =
                frozen.nodes.len().saturating_sub(nodes_of(bytes, &self.store.device.superblock));
            let begins = frozen.nodes.len() == frozen.all;
            (frozen.metaroot, memory::collect(frozen.nodes[first..].iter().cloned())?, begins)
        };
        let written = if nodes.is_empty() {
            self.write_metaroot(&metaroot).map(|()| 0)
        } else {
            self.check_other_writer(begins)
                .and_then(|()| self.write_nodes(&metaroot, &nodes, bytes))
        };
        let written = written.map_err(|error| match error {
            // It occurs before anything that counts is written.
            Error::OutOfMemory => error,
            error => self.lifecycle.fail_with("a checkpoint could not be written", error),
        })?;
        if nodes.is_empty() {
            self.complete_checkpoint(metaroot);
            return Ok(true);
        }
        let mut working = self.working.lock();
        for sealed in &nodes[nodes.len() - written..] {
            self.store.set_clean(sealed.pointer.addresses[0]);
        }
        if let Some(frozen) = &mut working.frozen {
            frozen.nodes.truncate(frozen.nodes.len() - written);
        }
        Ok(true)
    }

    /// Bytes of a step without a given size.
    pub(crate) fn step_bytes(&self) -> u64 {
        STEP_NODES * self.store.device.superblock.node_bytes()
    }

    /// Writes nodes from the end on, until the medium has done more than `bytes` of its own upkeep.
    /// Returns the number of nodes written.
    fn write_nodes(&self, metaroot: &Metaroot, nodes: &[SealedNode], bytes: u64) -> Result<usize> {
        if planted(Sabotage::MetarootBeforeLastStep) {
            self.write_metaroot(metaroot)?;
        }
        let upkeep = self.store.device.upkeep();
        if !upkeep.is_any() {
            self.store.write_nodes(nodes)?;
            return Ok(nodes.len());
        }
        for (left, node) in nodes.iter().enumerate().rev() {
            self.store.write_nodes(slice::from_ref(node))?;
            if self.store.device.is_beyond(upkeep, bytes) {
                return Ok(nodes.len() - left);
            }
        }
        Ok(nodes.len())
    }

    fn write_metaroot(&self, metaroot: &Metaroot) -> Result<()> {
        let store = &self.store;
        if !planted(Sabotage::SkipFlushBeforeMetaroot) {
            store.device.flush()?;
        }
        let flush = || {
            if planted(Sabotage::SkipFlushAfterMetaroot) { Ok(()) } else { store.device.flush() }
        };
        let write = || {
            metaroot.write(
                &store.device.medium,
                &store.device.superblock_now(),
                &store.device.platform,
                flush,
            )
        };
        self.watch.write_checked(store, &self.lifecycle, true, write, |own| own.written(metaroot))
    }

    fn complete_checkpoint(&self, metaroot: Metaroot) {
        let mut working = self.working.lock();
        working.frozen = None;
        working.checkpointed = metaroot;
        self.watch.discard_checked(&self.store, || working.log.release_checkpointed(&self.store));
        self.tally.lock().checkpoints += 1;
        let pins = self.pins.lock();
        working.space.release_checkpointed(&self.store, &metaroot.root(), &pins);
    }
}

/// How many nodes fit `bytes`, all copies counted; at least one.
fn nodes_of(bytes: u64, superblock: &Superblock) -> usize {
    usize::try_from(bytes / superblock.node_bytes()).unwrap_or(usize::MAX).max(1)
}
