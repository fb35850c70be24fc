//! Detects another writer, on media that others may write to.
//!
//! A volume has one writer. Locks ensure that where they work. They do not cover a disk that two
//! machines share, or a device under two names. So the writer checks the medium itself: what it
//! wrote last must still be there, with nothing that continues it. Otherwise the volume
//! [fails](LifecycleCell), before the writer builds on a state that is no longer the newest.
//!
//! Invariants, which hold while only this writer changes the volume:
//! - no metaroot on the medium is newer than the checkpointed one, none of the same generation
//!   differs, and none belongs to another volume;
//! - the last blocks of the log begin with what was found there at opening, or written since;
//! - at the end of the log there is no record that continues it.
//!
//! The check runs before the first and the last step of a checkpoint. It also runs before an
//! operation, or before the commit record of a transaction point, if the last check is
//! [`CHECK_EVERY_MS`] old. So a writer that resumes after a pause checks before it writes anything.
//! The check cannot prevent what two writers do to each other within that time. A volume opened as
//! [shared](crate::OpenOptions::shared) checks before and after every commit record and metaroot.
//! See docs/decisions/0032-two-openers.md.
//!
//! Unreadable blocks prove nothing here. Checksums detect rot.

use lock_api::Mutex;
use steadfast_media::Medium;
use steadfast_media::sync::atomic::{AtomicU32, Ordering};

use crate::engine::Engine;
use crate::engine::lifecycle::LifecycleCell;
use crate::engine::state::Working;
use crate::error::{Error, Result, SECOND_WRITER};
use crate::format::{LogPosition, Metaroot};
use crate::log;
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::tree::Store;
use crate::types::Generation;

/// How long a check is valid for operations and commit records, milliseconds.
const CHECK_EVERY_MS: u32 = 1000;

/// Number of log blocks that are checked: those of a group, which its writer changes by turns.
const TAIL: usize = 2;

/// Watches for another writer.
pub(super) struct MountWatch<P: Platform> {
    read_only: bool,
    /// Checks around every log record and metaroot.
    shared: bool,
    own: Mutex<P::Mutex, OwnContent>,
    /// Time of the last check, milliseconds; 0: never.
    checked_ms: AtomicU32,
}

/// Content of the medium as long as there is no other writer.
#[derive(Debug)]
pub(super) struct OwnContent {
    checkpointed: Metaroot,
    next: LogPosition,
    /// Checksums of the beginnings of the last log blocks, the newest first; `None` where unknown.
    tail: [Option<u32>; TAIL],
}

impl OwnContent {
    fn as_it_is<M: Medium, P: Platform>(store: &Store<M, P>, working: &Working) -> OwnContent {
        let next = working.log.position();
        let count = working.log.blocks();
        let at = |back| beginning_of(store, block_before(&next, back, count)?);
        OwnContent { checkpointed: working.checkpointed, next, tail: core::array::from_fn(at) }
    }

    /// Notes that this writer's own metaroot is on the medium.
    pub(super) fn written(&mut self, metaroot: &Metaroot) {
        self.checkpointed = *metaroot;
    }

    fn log_has_changed<M: Medium, P: Platform>(&self, store: &Store<M, P>) -> bool {
        let count = store.device.superblock.log.count;
        let changed = |(back, known): (usize, &Option<u32>)| {
            let found =
                block_before(&self.next, back, count).and_then(|block| beginning_of(store, block));
            matches!((known, found), (Some(known), Some(found)) if *known != found)
        };
        self.tail.iter().enumerate().any(changed)
            || count > TAIL as u64
                && log::glance(store, self.next.block).is_some_and(|bytes| {
                    log::continues(&bytes, store.device.volume_id(), &self.next)
                })
    }

    /// Notes this writer's own record: it is at block `at` of the log, which continues at `next`.
    pub(super) fn note_record<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        at: u64,
        record: &[u8],
        next: &LogPosition,
    ) {
        let count = store.device.superblock.log.count;
        let block_size = store.device.superblock.block_size as usize;
        let known = |block: u64| {
            let before =
                (0..TAIL).find(|back| block_before(&self.next, *back, count) == Some(block))?;
            self.tail[before]
        };
        let beginning = |back| {
            let block = block_before(next, back, count)?;
            let start = ((block + count - at) % count) as usize * block_size;
            match record.get(start..start + log::glance_size(store)) {
                Some(bytes) => Some(store.device.crc(bytes)),
                None => known(block),
            }
        };
        let tail = core::array::from_fn(beginning);
        (self.next, self.tail) = (*next, tail);
    }
}

/// The block of a ring of `count` blocks that lies `back + 1` blocks before `position`.
fn block_before(position: &LogPosition, back: usize, count: u64) -> Option<u64> {
    (count > TAIL as u64).then(|| (position.block + count - 1 - back as u64) % count)
}

/// The checksum of the beginning of a block of the log.
fn beginning_of<M: Medium, P: Platform>(store: &Store<M, P>, block: u64) -> Option<u32> {
    log::glance(store, block).map(|bytes| store.device.crc(&bytes))
}

/// The time, milliseconds. Never 0, which stands for never.
fn now_ms<M: Medium, P: Platform>(store: &Store<M, P>) -> u32 {
    (store.device.platform.monotonic_ms() as u32).max(1)
}

impl<P: Platform> MountWatch<P> {
    /// With the state of this metaroot; nothing is known of the log yet.
    pub(super) fn new(metaroot: &Metaroot, options: &OpenOptions) -> MountWatch<P> {
        let own = OwnContent { checkpointed: *metaroot, next: metaroot.log, tail: [None; TAIL] };
        MountWatch {
            read_only: options.read_only,
            shared: options.shared,
            own: Mutex::new(own),
            checked_ms: AtomicU32::new(0),
        }
    }

    /// Whether there may be another writer at all.
    fn may_be_shared<M: Medium>(&self, store: &Store<M, P>) -> bool {
        !self.read_only && (self.shared || store.device.medium.may_be_shared())
    }

    /// Takes the present content of the medium as this writer's own.
    #[inline(never)]
    pub(super) fn begin<M: Medium>(&self, store: &Store<M, P>, working: &Working) {
        if self.may_be_shared(store) {
            *self.own.lock() = OwnContent::as_it_is(store, working);
        }
    }

    /// Before an operation: checks if the last check is too old.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_if_due<M: Medium>(
        &self,
        store: &Store<M, P>,
        lifecycle: &LifecycleCell<P::Mutex>,
    ) -> Result<()> {
        if !self.check_is_due(store) {
            return Ok(());
        }
        self.check_unless_locked(store, lifecycle)
    }

    /// Before a replay writes nodes to free blocks, also in a rollback, which holds the lock.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_unless_locked<M: Medium>(
        &self,
        store: &Store<M, P>,
        lifecycle: &LifecycleCell<P::Mutex>,
    ) -> Result<()> {
        if !self.may_be_shared(store) {
            return Ok(());
        }
        // The thread that holds the lock is about to check, or has just done so.
        match self.own.try_lock() {
            Some(own) => self.check_now(store, lifecycle, &own),
            None => Ok(()),
        }
    }

    fn check_is_due<M: Medium>(&self, store: &Store<M, P>) -> bool {
        let checked = self.checked_ms.load(Ordering::Relaxed);
        checked == 0 || now_ms(store).wrapping_sub(checked) >= CHECK_EVERY_MS
    }

    /// Whether a check surrounds every commit record and metaroot.
    fn checks_always(&self) -> bool {
        self.shared && !planted(Sabotage::TrustForASecond)
    }

    /// Runs `write`, which writes to the log or a metaroot, if there is no other writer. With
    /// `always` it checks even shortly after the last check. `done` notes what was written. Where
    /// the volume is shared, a check follows: what another writer has written over is not
    /// acknowledged.
    ///
    /// # Errors
    /// `Poisoned`, and those of `write`.
    pub(super) fn write_checked<M: Medium>(
        &self,
        store: &Store<M, P>,
        lifecycle: &LifecycleCell<P::Mutex>,
        always: bool,
        write: impl FnOnce() -> Result<()>,
        done: impl FnOnce(&mut OwnContent),
    ) -> Result<()> {
        if !self.may_be_shared(store) {
            return write();
        }
        // Held throughout: another thread must not mistake this write for another writer's.
        let mut own = self.own.lock();
        if always || self.checks_always() || self.check_is_due(store) {
            self.check_now(store, lifecycle, &own)?;
        }
        write()?;
        done(&mut own);
        if self.checks_always() { self.check_now(store, lifecycle, &own) } else { Ok(()) }
    }

    /// Runs `discard`, after which blocks of the log may read as anything: they are no longer
    /// checked.
    pub(super) fn discard_checked<M: Medium>(&self, store: &Store<M, P>, discard: impl FnOnce()) {
        if self.may_be_shared(store) && store.device.medium.wants_discards() {
            let mut own = self.own.lock();
            own.tail = [None; TAIL];
            discard();
        } else {
            discard();
        }
    }

    /// Checks whether another writer has written to the volume.
    ///
    /// # Errors
    /// `Poisoned` if it has.
    fn check_now<M: Medium>(
        &self,
        store: &Store<M, P>,
        lifecycle: &LifecycleCell<P::Mutex>,
        own: &OwnContent,
    ) -> Result<()> {
        // A volume that is being made has no metaroot yet; what is there belongs to an earlier one.
        let is_made = own.checkpointed.generation > Generation(0);
        if !is_made || planted(Sabotage::TrustToBeAlone) {
            return Ok(());
        }
        if own.checkpointed.is_overtaken(
            &store.device.medium,
            &store.device.superblock_now(),
            &store.device.platform,
        ) || own.log_has_changed(store)
        {
            return Err(lifecycle.fail_with(SECOND_WRITER, Error::Poisoned(SECOND_WRITER)));
        }
        // Only now: no other thread may write because of a check that is not over.
        self.checked_ms.store(now_ms(store), Ordering::Relaxed);
        Ok(())
    }

    /// Runs `restore` if there is no other writer. `restore` reads the committed state again and
    /// may erase what follows it.
    ///
    /// # Errors
    /// `Poisoned`, and those of `restore`.
    pub(super) fn restore_checked<M: Medium>(
        &self,
        store: &Store<M, P>,
        lifecycle: &LifecycleCell<P::Mutex>,
        working: &mut Working,
        restore: impl FnOnce(&mut Working) -> Result<()>,
    ) -> Result<()> {
        if !self.may_be_shared(store) {
            return restore(working);
        }
        let mut own = self.own.lock();
        self.check_now(store, lifecycle, &own)?;
        let restored = restore(working);
        *own = OwnContent::as_it_is(store, working);
        restored
    }
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Before blocks that are free in this state change: a newer state of another writer may use
    /// them. Without `always` it checks only if the last check is too old.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn check_other_writer(&self, always: bool) -> Result<()> {
        // Without a check to make, an operation need not wait for a record that is being written.
        if !always && !self.watch.checks_always() && !self.watch.check_is_due(&self.store) {
            return Ok(());
        }
        self.watch.write_checked(&self.store, &self.lifecycle, always, || Ok(()), |_| {})
    }
}
