//! Group commit: the leader of a transaction point briefly waits for more committers.
//!
//! Take several threads that write and sync in turn. The threads that one point served are still on
//! their way back when the next point begins with the few that came meanwhile. So the threads fall
//! into two halves that wait for each other's flushes, and each flush serves half of them.
//!
//! The leader of the next point therefore waits until as many committers are present as at the end
//! of the last point. It waits no longer than half of what that point took. A host may wait less
//! (Linux: at most 1 ms). A lone thread never waits; a thread that others have left waits once.
//! Other stores do the same by a setting (PostgreSQL's `commit_delay`) or by the time that a commit
//! takes (ext4's journal).
//!
//! The wait decides when a point is set, never what is in it.

use steadfast_media::sync::atomic::{AtomicU32, Ordering};

use crate::engine::state::{CommitState, LastPoint};
use crate::error::Result;
use crate::platform::Platform;

/// The committers that are asking for a transaction point.
#[derive(Debug, Default)]
pub(crate) struct Committers {
    present: AtomicU32,
}

/// One committer, counted while this exists.
pub(crate) struct Present<'a>(&'a Committers);

impl Committers {
    pub(super) fn join(&self) -> Present<'_> {
        self.announce();
        Present(self)
    }

    /// Announces a committer that the caller serves later: a point that is set meanwhile waits
    /// briefly for it. The caller takes this back with [`withdraw`](Self::withdraw) when that
    /// committer is served.
    pub fn announce(&self) {
        self.present.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one [`announce`](Self::announce) back.
    pub fn withdraw(&self) {
        self.present.fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self) -> u32 {
        self.present.load(Ordering::Relaxed)
    }

    /// Runs `set_point`, which sets a transaction point, after waiting for more committers if more
    /// are expected.
    pub(super) fn lead(
        &self,
        platform: &impl Platform,
        commit: &mut CommitState,
        set_point: impl FnOnce(&mut CommitState) -> Result<()>,
    ) -> Result<()> {
        let LastPoint { present, duration } = commit.last_point;
        if self.count() < present {
            platform.wait_for(&|| self.count() >= present, duration / 2);
        }
        let begun = platform.monotonic_us();
        let result = set_point(commit);
        let duration = platform.monotonic_us().saturating_sub(begun);
        commit.last_point = LastPoint { present: self.count(), duration };
        result
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;
    use std::sync::Arc;

    use steadfast_media::MemoryMedium;

    use super::*;
    use crate::fs::{Caller, NewNode};
    use crate::mask::TransactionMask;
    use crate::options::{FormatOptions, OpenOptions};
    use crate::types::{InodeNumber, Timestamp};
    use crate::volume::Volume;

    /// A clock that advances at every reading, and a wait that ends without a new committer.
    #[derive(Default)]
    struct Waiting {
        microseconds: AtomicU64,
        waits: Arc<AtomicU64>,
    }

    impl Platform for Waiting {
        type Mutex = parking_lot::RawMutex;
        type RwLock = parking_lot::RawRwLock;

        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic_ms(&self) -> u64 {
            0
        }

        fn monotonic_us(&self) -> u64 {
            self.microseconds.fetch_add(200, Ordering::Relaxed)
        }

        fn wait_for(&self, ready: &dyn Fn() -> bool, microseconds: u64) {
            assert!(!ready());
            assert_eq!(microseconds, 100, "half of what the last point took");
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_those_who_were_there_last_time_are_waited_for_and_once() {
        let medium = MemoryMedium::new(16 << 20, 512).unwrap();
        let options = FormatOptions { mask: TransactionMask::MANUAL, ..FormatOptions::default() };
        Volume::format(&medium, &options, &Waiting::default()).unwrap();
        let waits = Arc::new(AtomicU64::new(0));
        let platform = Waiting { waits: waits.clone(), ..Waiting::default() };
        let volume = Volume::open(medium, OpenOptions::default(), platform).unwrap();
        let mut number = 0;
        let mut waits_of_a_point = || {
            number += 1;
            let name = alloc::format!("{number}");
            volume
                .create(
                    InodeNumber::ROOT,
                    name.as_bytes(),
                    NewNode::Regular,
                    0o644,
                    &Caller::default(),
                )
                .unwrap();
            let before = waits.load(Ordering::Relaxed);
            volume.transact().unwrap();
            waits.load(Ordering::Relaxed) - before
        };
        assert_eq!((waits_of_a_point(), waits_of_a_point()), (0, 0), "alone");
        volume.announce_committer();
        assert_eq!((waits_of_a_point(), waits_of_a_point()), (0, 0), "all are there");
        volume.withdraw_committer();
        assert_eq!((waits_of_a_point(), waits_of_a_point()), (1, 0), "one has gone");
        // Nothing to make durable, so no wait.
        volume.announce_committer();
        assert_eq!(waits_of_a_point(), 0);
        volume.withdraw_committer();
        volume.transact().unwrap();
        assert_eq!(waits.load(Ordering::Relaxed), 1);
    }
}
