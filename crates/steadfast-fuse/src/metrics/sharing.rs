//! Counters of a volume that several kernels use, see [`crate::cluster`].

use std::sync::atomic::{AtomicU64, Ordering};

/// What nodes do with one volume, since this node owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharing {
    /// Number of the owner's term.
    pub epoch: u64,
    /// Nodes that use the volume, without the owner.
    pub peers: u64,
    /// Requests that peers have forwarded.
    pub forwarded: u64,
    /// Answers with names or attributes that a kernel may keep.
    pub delegated: u64,
    /// Times that a kernel was told to drop some of them.
    pub recalls: u64,
    /// Of those, the ones that were not confirmed in time.
    pub silent: u64,
    /// Bytes that peers were to read from the medium themselves.
    pub direct_bytes: u64,
}

/// See [`Sharing`].
#[derive(Debug, Default)]
pub(crate) struct SharingCounters {
    pub(crate) epoch: u64,
    pub(crate) peers: AtomicU64,
    pub(crate) forwarded: AtomicU64,
    pub(crate) delegated: AtomicU64,
    pub(crate) recalls: AtomicU64,
    pub(crate) silent: AtomicU64,
    pub(crate) direct_bytes: AtomicU64,
}

impl SharingCounters {
    pub(crate) fn read(&self) -> Sharing {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sharing {
            epoch: self.epoch,
            peers: of(&self.peers),
            forwarded: of(&self.forwarded),
            delegated: of(&self.delegated),
            recalls: of(&self.recalls),
            silent: of(&self.silent),
            direct_bytes: of(&self.direct_bytes),
        }
    }
}
