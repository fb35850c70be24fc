//! Recalls: having kernels drop what they keep, and waiting until they have.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use steadfast::InodeNumber;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most nodes in one recall.
pub(crate) const NODES_MAX: usize = 4096;

/// What a kernel has to drop of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recalled {
    Attributes,
    /// Attributes of the nodes, and all names.
    Names,
    /// Attributes and pages. That takes as long as requests for these pages are under way.
    Pages,
}

/// A node as a kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RecalledNode {
    pub(crate) nodeid: u64,
    /// 0 of a node that is stale.
    pub(crate) generation: u64,
    /// The size of the file when the recall began.
    pub(crate) size: u64,
}

impl RecalledNode {
    /// A node that the kernel is not asked about.
    pub(crate) fn stale(nodeid: u64) -> RecalledNode {
        RecalledNode { nodeid, generation: 0, size: 0 }
    }
}

/// Has a kernel drop what it keeps.
pub(crate) trait Recaller: Send + Sync {
    /// `done` is dropped when that is done.
    fn recall(&self, nodes: &[RecalledNode], what: Recalled, done: Done);
}

/// Has the kernel with a number drop what it keeps of inodes.
pub(crate) type Reach<'a> = &'a dyn Fn(u64, &[InodeNumber], Recalled, Done);

/// Is dropped when a recall is done.
pub(crate) struct Done(Option<Arc<Recall>>);

/// A recall from several kernels.
#[derive(Default)]
pub(crate) struct Recall {
    pending: Mutex<usize>,
    done: Condvar,
}

impl Recall {
    /// What one more kernel confirms.
    pub(crate) fn begin(self: &Arc<Self>) -> Done {
        *self.pending() += 1;
        Done(Some(Arc::clone(self)))
    }

    /// Waits for all confirmations. Returns how many are missing in the end.
    pub(crate) fn wait(&self, until: Instant) -> usize {
        let mut pending = self.pending();
        while *pending > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.done.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *pending
    }

    fn pending(&self) -> MutexGuard<'_, usize> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Done {
    /// The kernel is not reached: what it has kept ends with its time.
    pub(crate) fn never(mut self) {
        self.0 = None;
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        let Some(recall) = &self.0 else { return };
        let mut pending = recall.pending();
        *pending -= 1;
        if *pending == 0 {
            recall.done.notify_all();
        }
    }
}
