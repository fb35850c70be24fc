//! The kernels that use one volume, and what they share.
//!
//! A mount of one machine has one kernel. A volume of a cluster has one for each node: that of the
//! owner, and those of its peers, whose requests arrive over the network. Each kernel has a
//! [`Filesystem`] of its own, with the tables of what that kernel knows: node ids, open files,
//! parked requests. The gate, the lease, file locks, views of snapshots and the scrubber belong to the
//! volume.
//!
//! Invariant: with several kernels none of them caches anything
//! ([`super::uncached`]), so no kernel has to be told of another one's changes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use steadfast::{Platform, Volume};
use steadfast_media::Medium;

use super::lease::Lease;
use super::{Filesystem, Phase};
use crate::errno::Errno;
use crate::jobs::{Job, LeaseJob};
use crate::locks::Locks;
use crate::scrub::Scrubber;
use crate::snapshots::Snapshots;

/// See the module.
pub(crate) struct Kernels<M: Medium + 'static, P: Platform + Clone + 'static> {
    /// Whether there can be more than one.
    pub(crate) several: bool,
    pub(crate) gate: RwLock<Phase>,
    pub(crate) lease: Lease,
    pub(crate) snapshots: Snapshots<M, P>,
    pub(crate) locks: Locks,
    pub(crate) scrubber: Scrubber,
    /// Held for writing by a write that goes to the end of a file, wherever that is, and for
    /// reading by the other ones. Used only with several kernels: a single one has its own lock.
    pub(super) appends: RwLock<()>,
    /// The last number of an open file.
    handles: AtomicU64,
    attached: Mutex<Vec<Weak<Filesystem<M, P>>>>,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Kernels<M, P> {
    /// `first`: the number of the first slot of snapshots, see [`Snapshots::new`].
    pub(crate) fn new(volume: &Arc<Volume<M, P>>, several: bool, first: u16) -> Arc<Kernels<M, P>> {
        Arc::new(Kernels {
            several,
            snapshots: Snapshots::new(Arc::clone(volume), first),
            gate: RwLock::new(Phase::Running),
            lease: Lease::default(),
            locks: Locks::default(),
            scrubber: Scrubber::new(),
            appends: RwLock::new(()),
            handles: AtomicU64::new(0),
            attached: Mutex::default(),
        })
    }

    /// Adds a kernel.
    pub(crate) fn attach(&self, kernel: &Arc<Filesystem<M, P>>) {
        self.attached().push(Arc::downgrade(kernel));
    }

    /// All kernels.
    pub(crate) fn all(&self) -> Vec<Arc<Filesystem<M, P>>> {
        let mut attached = self.attached();
        attached.retain(|kernel| kernel.strong_count() > 0);
        attached.iter().filter_map(Weak::upgrade).collect()
    }

    /// The number of a new open file; 0 with one kernel.
    pub(super) fn handle(&self) -> u64 {
        if self.several { self.handles.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 }
    }

    fn attached(&self) -> MutexGuard<'_, Vec<Weak<Filesystem<M, P>>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// The kernel is gone: everything that it held is given back. Its node ids are used no more.
    pub(crate) fn depart(&self) {
        self.kernels.locks.leave(self.id);
        let controls = std::mem::take(&mut *self.controls());
        for handle in controls {
            self.send(Job::Lease { ticket: None, job: LeaseJob::Lost { handle } });
        }
        // Not during a rollback, which empties the same tables.
        let _gate = self.kernels.gate.read().unwrap_or_else(PoisonError::into_inner);
        for (nodeid, handles) in self.files.take() {
            for _ in 0..handles {
                self.volume.release(crate::node::inode(nodeid));
            }
        }
        self.let_all_go();
    }

    /// The open descriptors of the control file.
    pub(super) fn controls(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what this machine's kernel caches of an inode, see
    /// [`Device::invalidate_inode`](crate::device::Device::invalidate_inode). The kernels of peers
    /// cache nothing.
    pub(crate) fn invalidate_inode(&self, nodeid: u64, offset: i64) -> std::io::Result<()> {
        self.device.as_ref().map_or(Ok(()), |device| device.invalidate_inode(nodeid, offset))
    }

    /// Whether the volume has several kernels.
    pub(crate) fn is_shared(&self) -> bool {
        self.kernels.several
    }

    /// The size at which an appending write begins.
    pub(super) fn end_of(&self, inode: steadfast::InodeNumber) -> Result<u64, Errno> {
        Ok(self.volume.attributes(inode)?.size)
    }
}
