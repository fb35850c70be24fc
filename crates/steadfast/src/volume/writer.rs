//! Changing: one writer at a time, over the [`Keyspace`] seam.

use core::cell::RefCell;
use core::sync::atomic::Ordering;

use lock_api::MutexGuard;
use steadfast_media::{ErrorClass, Medium, MediumError};

use super::Volume;
use super::apply::Origin;
use super::reclaim::{RECLAIM_TRIES, Wanted};
use super::state::Working;
use crate::error::{Error, Result};
use crate::fs::tx::Tx;
use crate::key::Key;
use crate::keyspace::{Batch, Keyspace, KeyspaceRead, SpaceClass, Version, Versioned, Visit};
use crate::mask::TransactionMask;
use crate::platform::Platform;
use crate::space::Roots;
use crate::types::{BlockAddress, BlockRun, Generation, InodeNumber, Timestamp};

/// The only writer of metadata while it exists.
pub(crate) struct Writer<'a, M: Medium, P: Platform> {
    volume: &'a Volume<M, P>,
    working: RefCell<MutexGuard<'a, P::Mutex, Working>>,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Runs one operation as a whole, again where it has to.
    ///
    /// # Errors
    /// Those of the operation; `NoSpace` where a checkpoint cannot help or the mask does not allow
    /// one.
    pub(crate) fn update<T>(
        &self,
        class: SpaceClass,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        self.update_with_tries(0, class, operation)
    }

    /// An operation that is not worth a checkpoint: without space it is left out.
    pub(crate) fn update_if_room<T>(
        &self,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        self.update_with_tries(RECLAIM_TRIES, SpaceClass::Normal, operation)
    }

    /// `tries`: how often it counts as tried again; with all of them used up nothing is brought
    /// back for it.
    fn update_with_tries<T>(
        &self,
        mut tries: u32,
        class: SpaceClass,
        operation: impl Fn(&mut Tx<'_, Writer<'_, M, P>>) -> Result<T>,
    ) -> Result<T> {
        loop {
            self.check_writable()?;
            self.look_now_and_then()?;
            self.relieve()?;
            let writer = Writer { volume: self, working: RefCell::new(self.working.lock()) };
            writer.working.borrow_mut().fits_later = None;
            let mut tx = Tx::new(&writer, class);
            let result = operation(&mut tx).and_then(|value| tx.commit().map(|()| value));
            let fits_later = writer.working.borrow().fits_later;
            drop(writer);
            match result {
                Err(Error::Conflict) => {}
                Err(Error::NoSpace)
                    if tries < RECLAIM_TRIES
                        && self.reclaim(Wanted::Change(class, fits_later), tries)? =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error),
                Ok(value) => return Ok(value),
            }
        }
    }

    /// Reserves blocks for data, see [`Keyspace::reserve`], of a request for `all` that are still
    /// missing: with a transaction point where only that makes room for them.
    pub(crate) fn reserve(
        &self,
        blocks: u64,
        all: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<BlockRun> {
        let mut tries = 0;
        loop {
            self.check_writable()?;
            self.look_now_and_then()?;
            let reserved = self.reserve_in(&mut self.working.lock(), blocks, goal, class);
            match reserved {
                Err(Error::NoSpace) if self.reclaim(Wanted::Data(class, all.max(1)), tries)? => {
                    tries += 1
                }
                reserved => return reserved,
            }
        }
    }

    pub(crate) fn release_blocks(&self, run: BlockRun) {
        self.working.lock().space.release(run);
    }

    fn reserve_in(
        &self,
        working: &mut Working,
        blocks: u64,
        goal: Option<BlockAddress>,
        class: SpaceClass,
    ) -> Result<BlockRun> {
        let roots = self.roots(working);
        let kept = self.kept_from_data(working, class);
        if !self.has_room(working, &roots, kept)? {
            return Err(Error::NoSpace);
        }
        let blocks = blocks.min(self.available(working).saturating_sub(kept));
        if blocks == 0 {
            return Err(Error::NoSpace);
        }
        let together = self.store.superblock.node_blocks() > 1;
        if working.space.available() < blocks {
            self.trim_pool(working, if together { kept.div_ceil(self.node_cost()) } else { 0 });
        }
        match working.space.reserve_data(&self.store, &roots, blocks, goal) {
            Err(Error::NoSpace) if together => {
                self.reserve_before_nodes(working, &roots, blocks, goal, kept)
            }
            reserved => reserved,
        }
    }

    /// Nodes that were set aside lie where data may be, and what is free lies where it may not:
    /// sets them aside anew behind the data. Where they do not find their place then, nothing is
    /// reserved.
    fn reserve_before_nodes(
        &self,
        working: &mut Working,
        roots: &Roots,
        blocks: u64,
        goal: Option<BlockAddress>,
        kept: u64,
    ) -> Result<BlockRun> {
        self.empty_pool(working);
        let run = working.space.reserve_data(&self.store, roots, blocks, goal)?;
        working.space.look_for_nodes_behind_data();
        let has_room = self.has_room(working, roots, kept);
        if !matches!(has_room, Ok(true)) {
            working.space.release(run);
            has_room?;
            return Err(Error::NoSpace);
        }
        Ok(run)
    }

    /// An event of the mask has happened: a transaction point if the mask has it.
    pub(crate) fn event(&self, event: TransactionMask) -> Result<()> {
        if self.active_mask().contains(event) { self.transact_now() } else { Ok(()) }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Poisoned("it has been closed"));
        }
        Ok(())
    }

    /// Whether there is a state to show.
    pub(super) fn check_shown(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(self.poisoned()) } else { Ok(()) }
    }

    pub(super) fn poisoned(&self) -> Error {
        Error::Poisoned(self.failure.lock().unwrap_or("an earlier failure"))
    }

    /// As for a change, but where a rollback has failed another one may be tried.
    pub(super) fn check_rollback(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { self.check_open() } else { self.check_writable() }
    }

    /// Whether changes are taken. The log is replayed then.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(self.poisoned());
        }
        self.catch_up()
    }

    /// Why the volume takes no changes any more, if it went read-only by itself.
    pub fn failure(&self) -> Option<&'static str> {
        *self.failure.lock()
    }

    /// The volume cannot go on safely: read-only from now on. Returns `error`.
    pub(super) fn fail(&self, why: &'static str, error: Error) -> Error {
        let why = match error {
            Error::Medium(MediumError { class: ErrorClass::Full, .. }) => {
                "the storage below it is full"
            }
            _ => why,
        };
        self.failure.lock().get_or_insert(why);
        self.failed.store(true, Ordering::Release);
        error
    }
}

impl<M: Medium, P: Platform> KeyspaceRead for Writer<'_, M, P> {
    fn get(&self, key: &Key) -> Result<Option<Versioned>> {
        self.volume.versioned_get(&self.volume.view.read(), key)
    }

    fn get_with<T>(&self, key: &Key, take: impl FnOnce(&[u8], Version) -> T) -> Result<Option<T>> {
        self.volume
            .look_up_with(&self.volume.view.read(), key, |value| take(value, Version::default()))
    }

    fn scan(&self, from: &Key, to: &Key, visit: Visit<'_>) -> Result<()> {
        self.volume.look_up_scan(&self.volume.view.read(), from, to, visit)
    }

    fn next(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_next(&self.volume.view.read(), from, to)
    }

    fn previous(&self, from: &Key, to: &Key) -> Result<Option<(Key, Versioned)>> {
        self.volume.versioned_previous(&self.volume.view.read(), from, to)
    }

    fn value_len_max(&self) -> usize {
        self.volume.store.superblock.value_len_max()
    }
}

impl<M: Medium, P: Platform> Keyspace for Writer<'_, M, P> {
    fn commit(&self, batch: Batch) -> Result<()> {
        // Preconditions hold: they were read under the lock that this writer still has.
        self.volume.apply(
            &mut self.working.borrow_mut(),
            batch.mutations,
            Origin::Operation(batch.class),
        )
    }

    fn allocate_inode(&self) -> Result<InodeNumber> {
        Ok(self.volume.next_inode(&mut self.working.borrow_mut()))
    }

    fn generation(&self) -> Generation {
        self.working.borrow().generation
    }

    fn now(&self) -> Timestamp {
        self.volume.store.platform.now()
    }

    fn reserve(&self, blocks: u64, goal: Option<BlockAddress>) -> Result<BlockRun> {
        self.volume.reserve_in(&mut self.working.borrow_mut(), blocks, goal, SpaceClass::Normal)
    }

    fn release(&self, run: BlockRun) {
        self.working.borrow_mut().space.release(run);
    }
}
