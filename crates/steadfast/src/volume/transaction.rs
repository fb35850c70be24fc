//! Changes of several files that become durable together, or not at all.

use steadfast_media::Medium;

use super::Volume;
use crate::engine::NO_TRANSACTION;
use crate::error::Result;
use crate::platform::Platform;

/// All changes of the volume from [`Volume::begin`] to [`commit`](Self::commit).
///
/// Dropped without a commit, it rolls back. If a panic ends a commit or a rollback, the volume
/// fails and publishes nothing more: its state in memory is unknown. After a power cut the volume
/// is in the state of the beginning or of the commit.
///
/// The transaction is of the whole volume. Changes that other threads make meanwhile belong to it,
/// and no other caller can set a transaction point or roll back ([`Held`](crate::Error::Held)). A
/// rollback concerns every user of the volume, see [`Volume::rollback`].
#[must_use = "a transaction that is dropped rolls back"]
pub struct Transaction<'v, M: Medium, P: Platform> {
    volume: &'v Volume<M, P>,
    open: bool,
    /// A commit or a rollback runs; a drop sees it only where a panic has ended that.
    ending: bool,
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Begins a transaction. Changes that were accepted before are durable when this returns.
    ///
    /// # Errors
    /// `Held` if another transaction is open; as [`transact`](Self::transact).
    pub fn begin(&self) -> Result<Transaction<'_, M, P>> {
        self.engine.begin_transaction()?;
        Ok(Transaction { volume: self, open: true, ending: false })
    }

    /// Makes the volume read-only after a panic in one of its functions: its state in memory is
    /// unknown, so nothing of it may become durable.
    pub fn fail_after_panic(&self) {
        self.engine.lifecycle.fail_after_panic();
    }

    /// Whether a transaction is open.
    pub fn is_held(&self) -> bool {
        self.engine.lifecycle.is_held()
    }

    /// The open transaction, after [`Transaction::detach`].
    ///
    /// # Errors
    /// `InvalidArgument` if no transaction is open; `Poisoned`.
    pub fn resume(&self) -> Result<Transaction<'_, M, P>> {
        self.engine.ensure_writable()?;
        if !self.is_held() {
            return Err(NO_TRANSACTION);
        }
        Ok(Transaction { volume: self, open: true, ending: false })
    }
}

impl<'v, M: Medium, P: Platform> Transaction<'v, M, P> {
    /// The volume.
    pub fn volume(&self) -> &'v Volume<M, P> {
        self.volume
    }

    /// Makes everything accepted since the beginning durable, all of it or nothing. After an error
    /// it is rolled back. One error is different: if the medium fails, the volume becomes read-only
    /// and shows the changes. Opened again, it has all of them or none.
    ///
    /// # Errors
    /// As [`Volume::transact`].
    pub fn commit(mut self) -> Result<()> {
        self.try_commit()
    }

    /// As [`commit`](Self::commit). After an error the transaction stays open, unless the volume
    /// became read-only. The caller can free space and try again, or roll back.
    ///
    /// # Errors
    /// As [`Volume::transact`]; `InvalidArgument` if the transaction has ended.
    pub fn try_commit(&mut self) -> Result<()> {
        self.check_not_ended()?;
        self.ending = true;
        let committed = self.volume.engine.commit_transaction();
        self.ending = false;
        self.open = committed.is_err() && self.volume.is_held();
        committed
    }

    /// Returns the volume to its state at the beginning and ends the transaction.
    ///
    /// # Errors
    /// As [`Volume::rollback`]; `InvalidArgument` if the transaction has ended. If nothing has
    /// changed, the transaction stays open and the caller can try again.
    pub fn roll_back(&mut self) -> Result<()> {
        self.check_not_ended()?;
        self.ending = true;
        let rolled_back = self.volume.rollback_held();
        self.ending = false;
        self.open = rolled_back.is_err() && self.volume.is_held();
        rolled_back
    }

    /// Leaves the transaction open without an owner, for [`Volume::resume`]: for programs that
    /// cannot keep a borrow of the volume between two calls.
    pub fn detach(mut self) {
        self.open = false;
    }

    fn check_not_ended(&self) -> Result<()> {
        if self.open { Ok(()) } else { Err(NO_TRANSACTION) }
    }
}

impl<M: Medium, P: Platform> Drop for Transaction<'_, M, P> {
    /// If the rollback is not possible, the volume becomes read-only: changes that no commit can
    /// follow would be lost later without an error.
    fn drop(&mut self) {
        if self.ending {
            return self.volume.engine.lifecycle.fail_transaction_after_panic();
        }
        let _ = self.roll_back();
        if self.open {
            self.volume.engine.lifecycle.give_up_transaction();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use steadfast_media::{Geometry, MediumError, MemoryMedium};

    use super::*;
    use crate::error::Error;
    use crate::fs::{Caller, NewNode};
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;
    use crate::types::InodeNumber;

    type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

    fn open(medium: &Arc<MemoryMedium>) -> TestVolume {
        Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
    }

    fn volume() -> (Arc<MemoryMedium>, TestVolume) {
        let medium = Arc::new(MemoryMedium::new(1 << 20, 512).unwrap());
        let options = FormatOptions { mask: TransactionMask::ALL, ..FormatOptions::default() };
        TestVolume::format(&medium, &options, &TestPlatform::new()).unwrap();
        let volume = open(&medium);
        (medium, volume)
    }

    fn make(volume: &TestVolume, name: &[u8]) {
        let caller = Caller::default();
        volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller).unwrap();
    }

    fn names(volume: &TestVolume) -> Vec<Vec<u8>> {
        let entries = volume.read_directory(InodeNumber::ROOT, 0, 100).unwrap();
        let names = entries.into_iter().map(|entry| entry.name);
        names.filter(|name| !name.starts_with(b".")).collect()
    }

    #[test]
    fn dropped_it_rolls_back_and_committed_it_stays() {
        let (medium, volume) = volume();
        let transaction = volume.begin().unwrap();
        make(&volume, b"dropped");
        assert_eq!(volume.begin().map(drop), Err(Error::Held));
        assert_eq!(volume.rollback(), Err(Error::Held));
        drop(transaction);
        assert!(names(&volume).is_empty() && !volume.is_held());
        let transaction = volume.begin().unwrap();
        make(transaction.volume(), b"kept");
        assert!(names(&open(&medium)).is_empty(), "not durable before the commit");
        transaction.commit().unwrap();
        assert_eq!(names(&volume), [b"kept".to_vec()]);
        assert_eq!(names(&open(&medium)), [b"kept".to_vec()]);
    }

    /// A medium that panics at the next write, once `armed`.
    struct Panics {
        medium: MemoryMedium,
        armed: AtomicBool,
        /// Reads until the one that panics.
        reads_left: AtomicUsize,
    }

    impl Medium for Panics {
        fn geometry(&self) -> Geometry {
            self.medium.geometry()
        }

        fn read(&self, offset: u64, buffer: &mut [u8]) -> core::result::Result<(), MediumError> {
            let left = self.reads_left.load(Ordering::Relaxed);
            assert!(left > 0, "planted");
            self.reads_left.store(left - 1, Ordering::Relaxed);
            self.medium.read(offset, buffer)
        }

        fn write(&self, offset: u64, data: &[u8]) -> core::result::Result<(), MediumError> {
            assert!(!self.armed.swap(false, Ordering::Relaxed), "planted");
            self.medium.write(offset, data)
        }

        fn flush(&self) -> core::result::Result<(), MediumError> {
            self.medium.flush()
        }
    }

    #[test]
    fn a_panic_in_a_commit_publishes_nothing() {
        let medium = MemoryMedium::new(1 << 20, 512).unwrap();
        let options = FormatOptions { mask: TransactionMask::ALL, ..FormatOptions::default() };
        Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
        let reads_left = AtomicUsize::new(usize::MAX);
        let medium = Panics { medium, armed: AtomicBool::new(false), reads_left };
        let volume = Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).unwrap();
        let transaction = volume.begin().unwrap();
        let (root, caller) = (InodeNumber::ROOT, Caller::default());
        volume.create(root, b"open", NewNode::Regular, 0o644, &caller).unwrap();
        medium.armed.store(true, Ordering::Relaxed);
        let commit = std::panic::AssertUnwindSafe(|| transaction.commit());
        assert!(std::panic::catch_unwind(commit).is_err());
        assert!(volume.info().poisoned.is_some_and(|why| why.contains("internal error")));
        let before = medium.medium.to_bytes();
        assert!(matches!(volume.transact(), Err(Error::Poisoned(_) | Error::Held)));
        assert!(!matches!(volume.background(), Ok(true)));
        volume.close().unwrap();
        assert!(before == medium.medium.to_bytes(), "something was written");
    }

    #[test]
    fn readers_do_not_wait_for_a_rollback_that_panicked() {
        let mut panics = 0;
        for reads in 0..40 {
            let medium = MemoryMedium::new(1 << 20, 512).unwrap();
            let options =
                FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
            Volume::format(&medium, &options, &TestPlatform::new()).unwrap();
            let reads_left = AtomicUsize::new(usize::MAX);
            let medium = Panics { medium, armed: AtomicBool::new(false), reads_left };
            let volume =
                Volume::open(&medium, OpenOptions::default(), TestPlatform::new()).unwrap();
            let (root, caller) = (InodeNumber::ROOT, Caller::default());
            volume.create(root, b"committed", NewNode::Regular, 0o644, &caller).unwrap();
            volume.transact().unwrap();
            let mut transaction = volume.begin().unwrap();
            volume.create(root, b"open", NewNode::Regular, 0o644, &caller).unwrap();
            medium.reads_left.store(reads, Ordering::Relaxed);
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _ = transaction.roll_back();
                drop(transaction);
            }))
            .is_err();
            medium.reads_left.store(usize::MAX, Ordering::Relaxed);
            panics += usize::from(panicked);
            assert!(!volume.engine.lifecycle.is_rolling_back(), "{reads} reads");
            let found = volume.lookup(root, b"committed");
            assert!(panicked || found.is_ok(), "{reads} reads");
        }
        assert!((3..40).contains(&panics), "{panics} rollbacks panicked");
    }

    #[test]
    fn one_that_has_ended_does_not_touch_the_next() {
        let (_, volume) = volume();
        let ended = Err(NO_TRANSACTION);
        let mut first = volume.begin().unwrap();
        first.try_commit().unwrap();
        let mut second = volume.begin().unwrap();
        make(&volume, b"second");
        assert_eq!((first.try_commit(), first.roll_back()), (ended, ended));
        drop(first);
        assert_eq!(names(&volume), [b"second".to_vec()]);
        second.roll_back().unwrap();
        assert_eq!(second.roll_back(), ended);
        assert!(names(&volume).is_empty());
        assert_eq!(volume.resume().map(drop), ended, "none is open");
    }

    #[test]
    fn closing_drops_what_is_not_committed() {
        let (medium, volume) = volume();
        let transaction = volume.begin().unwrap();
        make(&volume, b"open");
        volume.close().unwrap();
        drop(transaction);
        assert_eq!(volume.info().poisoned, None);
        assert!(names(&open(&medium)).is_empty());
    }
}
