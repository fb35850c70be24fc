//! Transactions of the caller: one caller alone decides when the next transaction point is set.
//!
//! The volume is *held* from [`Engine::begin_transaction`] to the end of the transaction.
//!
//! Invariants:
//! - while a volume is held, only [`Engine::commit_transaction`] makes changes durable. Events of
//!   the mask set no transaction point, callers that ask for one get [`Error::Held`], and closing
//!   drops what is not committed;
//! - changes accepted before the beginning are durable when it returns, so a rollback (or a power
//!   cut) during the transaction drops nothing else;
//! - the hold is kept in memory only. The mask on the medium stays the user's, and a volume that
//!   lost power while it was held opens like any other.
//!
//! The state changes only under the commit lock. Every transaction point checks it under that lock.

use steadfast_media::Medium;

use crate::engine::Engine;
use crate::engine::lifecycle::Lifecycle;
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::sabotage::{Sabotage, planted};

/// The end of a transaction that has ended already, or never began.
pub(crate) const NO_TRANSACTION: Error = Error::InvalidArgument("no transaction is open");

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Sets a transaction point and holds the volume.
    pub(crate) fn begin_transaction(&self) -> Result<()> {
        self.ensure_writable()?;
        let mut commit = self.commit.lock();
        self.lifecycle.check_not_held()?;
        // The state is entered first. A caller that saw the mask without the hold was accepted
        // before, and its change is in the transaction point.
        if !planted(Sabotage::HoldAfterPoint) {
            self.lifecycle.enter(Lifecycle::Held);
        }
        let result = self.ensure_writable().and_then(|()| self.commit_locked(&mut commit));
        if planted(Sabotage::HoldAfterPoint) {
            self.lifecycle.enter(Lifecycle::Held);
        }
        if result.is_err() {
            self.lifecycle.enter(Lifecycle::Open);
        }
        result
    }

    /// Ends the hold and sets a transaction point: everything accepted since the beginning becomes
    /// durable, all of it or nothing. After an error the volume is still held, unless it failed.
    pub(crate) fn commit_transaction(&self) -> Result<()> {
        let mut commit = self.commit.lock();
        let was_held = self.lifecycle.is_held() && self.lifecycle.enter(Lifecycle::Open);
        self.ensure_writable()?;
        if !was_held {
            return Err(NO_TRANSACTION);
        }
        let committed = self.commit_locked(&mut commit);
        if committed.is_err() {
            // Changes that the holder may still roll back must not be committed by another caller.
            self.lifecycle.enter(Lifecycle::Held);
        }
        committed
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use steadfast_media::MemoryMedium;

    use super::*;
    use crate::fs::{Caller, NewNode};
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::testing::TestPlatform;
    use crate::types::InodeNumber;
    use crate::volume::Volume;

    type TestVolume = Volume<Arc<MemoryMedium>, TestPlatform>;

    fn open(medium: &Arc<MemoryMedium>) -> TestVolume {
        Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new()).unwrap()
    }

    fn volume(mask: TransactionMask) -> (Arc<MemoryMedium>, TestVolume) {
        let medium = Arc::new(MemoryMedium::new(1 << 20, 512).unwrap());
        let options = FormatOptions { mask, ..FormatOptions::default() };
        Volume::<Arc<MemoryMedium>, TestPlatform>::format(&medium, &options, &TestPlatform::new())
            .unwrap();
        let volume = open(&medium);
        (medium, volume)
    }

    fn make(volume: &TestVolume, name: &[u8]) -> InodeNumber {
        let caller = Caller::default();
        volume.create(InodeNumber::ROOT, name, NewNode::Regular, 0o644, &caller).unwrap().inode
    }

    fn names(volume: &TestVolume) -> alloc::vec::Vec<alloc::vec::Vec<u8>> {
        let entries = volume.read_directory(InodeNumber::ROOT, 0, 100).unwrap();
        let mut names: alloc::vec::Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.retain(|name| !name.starts_with(b"."));
        names.sort();
        names
    }

    #[test]
    fn no_event_sets_a_point_while_held_and_the_mask_stays() {
        let (medium, volume) = volume(TransactionMask::ALL);
        make(&volume, b"before");
        volume.engine.begin_transaction().unwrap();
        let points = volume.info().transaction_points;
        let inode = make(&volume, b"during");
        volume.write(inode, 0, &[7; 3000], true).unwrap();
        volume.fsync().unwrap();
        volume.closed().unwrap();
        volume.sync().unwrap();
        volume.platform().advance_ms(60_000);
        while volume.background().unwrap() {}
        assert_eq!(volume.info().transaction_points, points);
        for refused in [
            volume.transact(),
            volume.checkpoint(),
            volume.rollback(),
            volume.engine.begin_transaction(),
            volume.set_mask(TransactionMask::MANUAL),
            volume.set_timer_ms(7),
        ] {
            assert_eq!(refused, Err(Error::Held));
        }
        assert_eq!(volume.mask(), TransactionMask::ALL);
        // After a power cut the changes of the hold are gone, and the mask is the user's.
        let after = open(&medium);
        assert_eq!(names(&after), [b"before".to_vec()]);
        assert_eq!(after.mask(), TransactionMask::ALL);
        assert!(!after.is_held());
        // Closing drops them too, although the mask has `unmount`.
        volume.close().unwrap();
        assert_eq!(names(&open(&medium)), [b"before".to_vec()]);
    }

    #[test]
    fn snapshots_wait_for_the_end() {
        let (medium, volume) = volume(TransactionMask::ALL);
        let old = make(&volume, b"before");
        volume.write(old, 0, &[1; 9000], false).unwrap();
        volume.snapshot_create("one").unwrap();
        volume.snapshot_create("two").unwrap();
        volume.write(old, 0, &[2; 9000], false).unwrap();
        volume.snapshot_delete("one").unwrap();
        volume.engine.begin_transaction().unwrap();
        make(&volume, b"during");
        assert_eq!(volume.snapshot_create("three").map(drop), Err(Error::Held));
        assert_eq!(volume.snapshot_delete("two"), Err(Error::Held));
        assert_eq!(volume.snapshot_rollback("two", true), Err(Error::Held));
        // Deleting the first snapshot is background work, which commits.
        for _ in 0..100 {
            volume.background().unwrap();
        }
        assert_eq!(names(&open(&medium)), [b"before".to_vec()]);
        volume.engine.commit_transaction().unwrap();
        assert_eq!(names(&open(&medium)).len(), 2);
        for _ in 0..100 {
            volume.background().unwrap();
        }
        volume.snapshot_rollback("two", false).unwrap();
        assert_eq!(names(&volume), [b"before".to_vec()]);
    }

    #[test]
    fn commit_and_rollback_end_the_hold() {
        let (medium, volume) = volume(TransactionMask::MANUAL);
        make(&volume, b"before");
        volume.engine.begin_transaction().unwrap();
        make(&volume, b"dropped");
        volume.rollback_held().unwrap();
        assert_eq!(names(&volume), [b"before".to_vec()], "what came before the hold stays");
        volume.engine.begin_transaction().unwrap();
        make(&volume, b"kept");
        volume.engine.commit_transaction().unwrap();
        assert!(!volume.is_held());
        make(&volume, b"later");
        assert_eq!(names(&open(&medium)), [b"before".to_vec(), b"kept".to_vec()]);
        volume.transact().unwrap();
        assert_eq!(names(&open(&medium)).len(), 3);
    }

    #[test]
    fn a_full_volume_says_so_and_still_commits_or_rolls_back() {
        let (medium, volume) = volume(TransactionMask::ALL);
        let old = make(&volume, b"old");
        volume.write(old, 0, &alloc::vec![1; 300 << 10], false).unwrap();
        volume.engine.begin_transaction().unwrap();
        // Space that the hold frees cannot be reused, because a rollback needs it.
        volume.unlink(InodeNumber::ROOT, b"old").unwrap();
        while volume.background().unwrap() {}
        let new = make(&volume, b"new");
        let mut written = 0;
        let full = loop {
            match volume.write(new, written, &[2; 8192], false) {
                Ok(()) => written += 8192,
                Err(error) => break error,
            }
        };
        assert_eq!(full, Error::NoSpace);
        volume.rollback_held().unwrap();
        assert_eq!(names(&volume), [b"old".to_vec()]);
        let mut byte = [0];
        volume.read(old, 299 << 10, &mut byte).unwrap();
        assert_eq!(byte, [1]);
        assert_eq!(names(&open(&medium)), [b"old".to_vec()]);
    }
}
