//! Detects another writer, on media that others may write to.
//!
//! A volume has one writer. Locks ensure that where they work. They do not cover a disk that two
//! machines share, or a device under two names. So the writer checks the medium itself: what it
//! wrote last must still be there, with nothing that continues it. Otherwise the writer
//! [stops](crate::engine::lifecycle::LifecycleCell), before it builds on a state that is no longer the newest.
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

use core::sync::atomic::Ordering;

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::state::Working;
use crate::error::{Error, Result, SECOND_WRITER};
use crate::format::{LogPosition, Metaroot};
use crate::log;
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};
use crate::types::Generation;

/// How long a check is valid for operations and commit records, milliseconds.
const CHECK_EVERY_MS: u32 = 1000;

/// Number of log blocks that are checked: those of a group, which its writer changes by turns.
const TAIL: usize = 2;

/// Content of the medium as long as there is no other writer.
#[derive(Debug)]
pub(super) struct MountWatch {
    durable: Metaroot,
    next: LogPosition,
    /// Checksums of the beginnings of the last log blocks, the newest first; `None` where unknown.
    tail: [Option<u32>; TAIL],
}

impl MountWatch {
    /// With the state of this metaroot; nothing is known of the log yet.
    pub(super) fn new(durable: &Metaroot) -> MountWatch {
        MountWatch { durable: *durable, next: durable.log, tail: [None; TAIL] }
    }

    /// Notes that this writer's own metaroot is on the medium.
    pub(super) fn written(&mut self, durable: &Metaroot) {
        self.durable = *durable;
    }
}

/// The block of a ring of `count` blocks that lies `back + 1` blocks before `position`.
fn block_before(position: &LogPosition, back: usize, count: u64) -> Option<u64> {
    (count > TAIL as u64).then(|| (position.block + count - 1 - back as u64) % count)
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Whether there may be another writer at all.
    pub(super) fn may_be_shared(&self) -> bool {
        !self.read_only && (self.shared || self.store.medium.may_be_shared())
    }

    /// Takes the present content of the medium as this writer's own.
    #[inline(never)]
    pub(super) fn begin_to_watch(&self, working: &Working) {
        if self.may_be_shared() {
            *self.others.lock() = self.as_it_is(working);
        }
    }

    fn as_it_is(&self, working: &Working) -> MountWatch {
        let next = working.log.position();
        let count = working.log.blocks();
        let at = |back| self.beginning_of(block_before(&next, back, count)?);
        MountWatch { durable: working.checkpointed, next, tail: core::array::from_fn(at) }
    }

    /// Before an operation: checks if the last check is too old.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_writer_if_due(&self) -> Result<()> {
        if !self.check_is_due() {
            return Ok(());
        }
        self.check_writer_unless_locked()
    }

    /// Before a replay writes nodes to free blocks, also in a rollback, which holds the lock.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(super) fn check_writer_unless_locked(&self) -> Result<()> {
        if !self.may_be_shared() {
            return Ok(());
        }
        // The thread that holds the lock is about to check, or has just done so.
        match self.others.try_lock() {
            Some(others) => self.check_now(&others),
            None => Ok(()),
        }
    }

    fn check_is_due(&self) -> bool {
        let checked = self.checked_ms.load(Ordering::Relaxed);
        checked == 0 || self.now_ms().wrapping_sub(checked) >= CHECK_EVERY_MS
    }

    /// Whether a check surrounds every commit record and metaroot.
    fn checks_always(&self) -> bool {
        self.shared && !planted(Sabotage::TrustForASecond)
    }

    /// Never 0, which stands for never.
    fn now_ms(&self) -> u32 {
        (self.store.platform.monotonic_ms() as u32).max(1)
    }

    /// Runs `write`, which writes to the log or a metaroot, if there is no other writer. With
    /// `always` it checks even shortly after the last check. `done` notes what was written. Where
    /// the volume is shared, a check follows: what another writer has written over is not
    /// acknowledged.
    ///
    /// # Errors
    /// `Poisoned`, and those of `write`.
    pub(super) fn write_checked(
        &self,
        always: bool,
        write: impl FnOnce() -> Result<()>,
        done: impl FnOnce(&mut MountWatch),
    ) -> Result<()> {
        if !self.may_be_shared() {
            return write();
        }
        // Held throughout: another thread must not mistake this write for another writer's.
        let mut others = self.others.lock();
        if always || self.checks_always() || self.check_is_due() {
            self.check_now(&others)?;
        }
        write()?;
        done(&mut others);
        if self.checks_always() { self.check_now(&others) } else { Ok(()) }
    }

    /// Before blocks that are free in this state change: a newer state of another writer may use
    /// them. Without `always` it checks only if the last check is too old.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn check_other_writer(&self, always: bool) -> Result<()> {
        self.write_checked(always, || Ok(()), |_| {})
    }

    /// Runs `discard`, after which blocks of the log may read as anything: they are no longer
    /// checked.
    pub(super) fn discard_checked(&self, discard: impl FnOnce()) {
        if self.may_be_shared() && self.store.medium.wants_discards() {
            let mut others = self.others.lock();
            others.tail = [None; TAIL];
            discard();
        } else {
            discard();
        }
    }

    /// Checks whether another writer has written to the volume.
    ///
    /// # Errors
    /// `Poisoned` if it has.
    fn check_now(&self, others: &MountWatch) -> Result<()> {
        self.checked_ms.store(self.now_ms(), Ordering::Relaxed);
        // A volume that is being made has no metaroot yet; what is there belongs to an earlier one.
        let is_made = others.durable.generation > Generation(0);
        if !is_made || planted(Sabotage::TrustToBeAlone) {
            return Ok(());
        }
        let store = &self.store;
        if others.durable.is_overtaken(&store.medium, &store.superblock_now(), &store.platform)
            || self.log_has_changed(others)
        {
            return Err(self.lifecycle.fail_with(SECOND_WRITER, Error::Poisoned(SECOND_WRITER)));
        }
        Ok(())
    }

    /// Runs `restore` if there is no other writer. `restore` reads the committed state again and
    /// may erase what follows it.
    ///
    /// # Errors
    /// `Poisoned`, and those of `restore`.
    pub(super) fn restore_checked(
        &self,
        working: &mut Working,
        restore: impl FnOnce(&mut Working) -> Result<()>,
    ) -> Result<()> {
        if !self.may_be_shared() {
            return restore(working);
        }
        let mut others = self.others.lock();
        self.check_now(&others)?;
        let restored = restore(working);
        *others = self.as_it_is(working);
        restored
    }

    fn log_has_changed(&self, others: &MountWatch) -> bool {
        let (store, count) = (&self.store, self.store.superblock.log.count);
        let changed = |(back, known): (usize, &Option<u32>)| {
            let found =
                block_before(&others.next, back, count).and_then(|block| self.beginning_of(block));
            matches!((known, found), (Some(known), Some(found)) if *known != found)
        };
        others.tail.iter().enumerate().any(changed)
            || count > TAIL as u64
                && log::glance(store, others.next.block)
                    .is_some_and(|bytes| log::continues(&bytes, store.volume_id(), &others.next))
    }

    /// The checksum of the beginning of a block of the log.
    fn beginning_of(&self, block: u64) -> Option<u32> {
        log::glance(&self.store, block).map(|bytes| self.store.crc(&bytes))
    }

    /// Notes this writer's own record: it is at block `at` of the log, which continues at `next`.
    pub(super) fn note_record(
        &self,
        others: &mut MountWatch,
        at: u64,
        record: &[u8],
        next: &LogPosition,
    ) {
        let count = self.store.superblock.log.count;
        let block_size = self.store.superblock.block_size as usize;
        let known = |block: u64| {
            let before =
                (0..TAIL).find(|back| block_before(&others.next, *back, count) == Some(block))?;
            others.tail[before]
        };
        let beginning = |back| {
            let block = block_before(next, back, count)?;
            let start = ((block + count - at) % count) as usize * block_size;
            match record.get(start..start + log::glance_size(&self.store)) {
                Some(bytes) => Some(self.store.crc(bytes)),
                None => known(block),
            }
        };
        let tail = core::array::from_fn(beginning);
        *others = MountWatch { next: *next, tail, ..*others };
    }
}
