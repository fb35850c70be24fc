//! Changing: one writer at a time, and the checks before a change.

use alloc::vec::Vec;
use core::cell::RefCell;

use lock_api::MutexGuard;
use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::apply::Origin;
use crate::engine::keyspace::{Keyspace, KeyspaceRead, SpaceClass, Visit};
use crate::engine::lifecycle::Lifecycle;
use crate::engine::state::Working;
use crate::error::{Error, Result};
use crate::format::key::Key;
use crate::format::{Mutation, Value};
use crate::memory::Boxed;
use crate::platform::Platform;
use crate::space::Roots;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Timestamp};

/// The only writer of metadata while it exists.
pub(crate) struct Writer<'a, M: Medium, P: Platform> {
    engine: &'a Engine<M, P>,
    working: RefCell<MutexGuard<'a, P::Mutex, Boxed<Working>>>,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Becomes the only writer of metadata, as soon as the volume can take changes.
    ///
    /// # Errors
    /// `ReadOnly`, `Poisoned`; those of the medium.
    pub(crate) fn writer(&self) -> Result<Writer<'_, M, P>> {
        self.ensure_writable()?;
        self.watch.check_if_due(&self.store, &self.lifecycle)?;
        self.throttle()?;
        let writer = Writer { engine: self, working: RefCell::new(self.working.lock()) };
        // A rollback that was waited for may have failed.
        self.lifecycle.check_not_failed()?;
        writer.working.borrow_mut().needs_later = None;
        Ok(writer)
    }

    /// Allocates up to `blocks` blocks near `goal` for data, as one run that may be shorter.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`, `Poisoned`.
    pub(crate) fn allocate_blocks(
        &self,
        blocks: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<BlockRun> {
        self.ensure_writable()?;
        self.watch.check_if_due(&self.store, &self.lifecycle)?;
        self.allocate_blocks_in(&mut self.working.lock(), blocks, goal, class)
    }

    pub(crate) fn release_blocks(&self, run: BlockRun) {
        self.working.lock().space.release(run);
    }

    fn allocate_blocks_in(
        &self,
        working: &mut Working,
        blocks: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<BlockRun> {
        let roots = self.roots(working);
        let kept = self.budget().kept_from_data(working, class);
        if !self.budget().has_budget(working, &roots, kept)? {
            return Err(Error::NoSpace);
        }
        let blocks =
            blocks.min(working.available(&self.store.device.superblock).saturating_sub(kept));
        if blocks == 0 {
            return Err(Error::NoSpace);
        }
        let together = self.store.device.superblock.node_blocks() > 1;
        if working.space.available() < blocks {
            working.trim_pool(
                &self.store,
                if together { kept.div_ceil(self.store.device.superblock.node_cost()) } else { 0 },
            );
        }
        match working.space.allocate_data(&self.store, &roots, blocks, goal) {
            Err(Error::NoSpace) if together => {
                self.allocate_before_nodes(working, &roots, blocks, goal, kept)
            }
            allocated => allocated,
        }
    }

    /// For nodes that were set aside where data may go, while the free blocks lie where data may
    /// not go. Allocates the data first and sets the nodes aside again after it. Without a place
    /// for the nodes nothing is allocated.
    fn allocate_before_nodes(
        &self,
        working: &mut Working,
        roots: &Roots,
        blocks: u64,
        goal: Option<BlockAddress>,
        kept: u64,
    ) -> Result<BlockRun> {
        working.empty_pool(&self.store);
        let run = working.space.allocate_data(&self.store, roots, blocks, goal)?;
        working.space.look_for_nodes_after_data();
        let has_budget = self.budget().has_budget(working, roots, kept);
        if !matches!(has_budget, Ok(true)) {
            working.space.release(run);
            has_budget?;
            return Err(Error::NoSpace);
        }
        Ok(run)
    }

    /// As for a change, but after a failed rollback another rollback may be tried.
    pub(crate) fn check_rollback(&self) -> Result<()> {
        if self.lifecycle.now() == Lifecycle::Lost { Ok(()) } else { self.ensure_writable() }
    }

    /// Checks that changes are accepted. Replays the log if that is not done yet.
    pub(crate) fn ensure_writable(&self) -> Result<()> {
        self.lifecycle.check_not_closed()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.lifecycle.check_not_failed()?;
        self.replay_overlay()
    }
}

impl<M: Medium, P: Platform> Writer<'_, M, P> {
    /// Blocks that the last change that did not fit needs after a checkpoint, beside what its class
    /// must leave, if they were counted.
    pub(crate) fn needs_later(&self) -> Option<u64> {
        self.working.borrow().needs_later
    }
}

impl<M: Medium, P: Platform> KeyspaceRead for Writer<'_, M, P> {
    fn get(&self, key: &Key) -> Result<Option<Value>> {
        self.engine.view.read().get(&self.engine.store, key)
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.engine.view.read().get_with(&self.engine.store, key, take)
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        self.engine.view.read().scan(&self.engine.store, from, to, visit)
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.engine.view.read().next(&self.engine.store, from, to)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Value)>> {
        self.engine.view.read().previous(&self.engine.store, from, to)
    }

    fn next_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.engine.view.read().next_with(&self.engine.store, from, to, take)
    }

    fn previous_with<T>(
        &self,
        from: &Key,
        to: &Key,
        take: impl FnOnce(&Key, &[u8]) -> T,
    ) -> Result<Option<T>> {
        self.engine.view.read().previous_with(&self.engine.store, from, to, take)
    }

    fn value_len_max(&self) -> usize {
        self.engine.store.device.superblock.value_len_max()
    }
}

impl<M: Medium, P: Platform> Keyspace for Writer<'_, M, P> {
    fn apply(&self, mutations: Vec<Mutation>, class: SpaceClass) -> Result<()> {
        self.engine.apply(&mut self.working.borrow_mut(), mutations, Origin::Operation(class))
    }

    fn blank_list(&self) -> Vec<Mutation> {
        self.working.borrow_mut().spare.list()
    }

    fn blank_value(&self) -> Value {
        self.working.borrow_mut().spare.value()
    }

    fn allocate_inode(&self) -> Result<InodeNumber> {
        Ok(self.working.borrow_mut().take_inode_number())
    }

    fn generation(&self) -> Generation {
        self.working.borrow().generation
    }

    fn now(&self) -> Timestamp {
        self.engine.store.device.platform.now()
    }
}
