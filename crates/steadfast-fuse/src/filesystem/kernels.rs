//! The kernels that use one volume, and what they share.
//!
//! A mount of one machine has one kernel. A volume of a cluster has one for each node: that of the
//! owner, and those of its peers, whose requests arrive over the network. Each kernel has a
//! [`Filesystem`] of its own, with the tables of what that kernel knows: node ids, open files,
//! parked requests. The gate, the lease, file locks, views of snapshots and the scrubber belong to
//! the volume.
//!
//! Invariant: with several kernels each keeps only what is delegated to it
//! ([`super::delegations`]), and pages that are recalled ([`super::page_holders`]).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use steadfast::{InodeNumber, Platform, Volume};
use steadfast_media::Medium;

use super::affected::changes_names;
use super::attributes::{attr_out, generation};
use super::delegations::{Change, Delegations, Lasting, Stop, What};
use super::lease::Lease;
use super::page_holders::PageHolders;
use super::recall::{Done, Recalled, RecalledNode, Recaller};
use super::{Filesystem, Phase};
use crate::abi::opcode;
use crate::abi::output::AttrOut;
use crate::errno::Errno;
use crate::jobs::{Job, LeaseJob};
use crate::locks::{Lock, Locks};
use crate::metrics::Metrics;
use crate::open::Handle;
use crate::request::Request;
use crate::scrub::Scrubber;
use crate::snapshots::{Snapshots, is_snapshot};
use crate::validity;

/// See the module.
pub(crate) struct Kernels<M: Medium + 'static, P: Platform + Clone + 'static> {
    /// Whether there can be more than one.
    several: bool,
    /// What they may keep; none: nothing.
    pub(super) delegations: Option<Delegations>,
    pub(super) page_holders: PageHolders,
    pub(crate) gate: RwLock<Phase>,
    pub(crate) lease: Lease,
    pub(crate) snapshots: Snapshots<M, P>,
    pub(crate) locks: Locks,
    pub(crate) scrubber: Scrubber,
    /// Held for writing by a write that goes to the end of a file, wherever that is, and for
    /// reading by the other ones. Used only with several kernels: a single one has its own lock.
    pub(super) appends: RwLock<()>,
    /// Has another worker listen to the owner's kernel, where it has one.
    before_waits: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The last number of an open file.
    handles: AtomicU64,
    attached: Mutex<Vec<Weak<Filesystem<M, P>>>>,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Kernels<M, P> {
    /// `several`: whether there can be more than one. `lasting`: if they may keep anything.
    /// `first`: the number of the first slot of snapshots, see [`Snapshots::new`].
    pub(crate) fn new(
        volume: &Arc<Volume<M, P>>,
        several: bool,
        lasting: Option<Lasting>,
        metrics: &Arc<Metrics>,
        first: u16,
    ) -> Arc<Kernels<M, P>> {
        Arc::new(Kernels {
            several,
            delegations: lasting.map(|lasting| Delegations::new(lasting, Arc::clone(metrics))),
            page_holders: PageHolders::default(),
            snapshots: Snapshots::new(Arc::clone(volume), first),
            gate: RwLock::new(Phase::Running),
            lease: Lease::default(),
            locks: Locks::default(),
            scrubber: Scrubber::new(),
            appends: RwLock::new(()),
            before_waits: OnceLock::new(),
            handles: AtomicU64::new(0),
            attached: Mutex::default(),
        })
    }

    /// Adds a kernel.
    pub(crate) fn attach(&self, kernel: &Arc<Filesystem<M, P>>) {
        if kernel.device.is_none() {
            kernel.metrics.share(|sharing| &sharing.peers, 1);
        }
        self.attached().push(Arc::downgrade(kernel));
    }

    /// All kernels.
    pub(crate) fn all(&self) -> Vec<Arc<Filesystem<M, P>>> {
        let mut attached = self.attached();
        attached.retain(|kernel| kernel.strong_count() > 0);
        attached.iter().filter_map(Weak::upgrade).collect()
    }

    /// What a worker calls before it waits for kernels.
    pub(crate) fn before_waits(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.before_waits.set(call);
    }

    /// The number of a new open file; 0 with one kernel.
    pub(super) fn handle(&self) -> u64 {
        if self.several { self.handles.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 }
    }

    /// Has a kernel drop what it keeps. The caller may wait for that.
    pub(super) fn recall(&self, id: u64, inodes: &[InodeNumber], what: Recalled, done: Done) {
        let kernel = self.all().into_iter().find(|kernel| kernel.id == id);
        match kernel.as_ref().and_then(|kernel| Some((kernel, kernel.recaller.get()?))) {
            Some((kernel, recaller)) => {
                let node = |inode: &InodeNumber| kernel.recalled(kernel.nodes.known(*inode));
                let nodes: Vec<RecalledNode> = inodes.iter().map(node).collect();
                recaller.recall(&nodes, what, done);
            }
            None => done.never(),
        }
        // A kernel may need an answer first that no other worker waits for.
        self.about_to_wait();
    }

    /// The calling worker may wait.
    pub(super) fn about_to_wait(&self) {
        self.before_waits.get().into_iter().for_each(|call| call());
    }

    /// Recalls everything that kernels keep. They keep nothing until the result is dropped.
    pub(crate) fn stop_delegations(&self) -> Option<Stop<'_>> {
        self.delegations.as_ref().map(|delegations| {
            delegations.stop(&|id, inodes, what, done| self.recall(id, inodes, what, done))
        })
    }

    fn attached(&self) -> MutexGuard<'_, Vec<Weak<Filesystem<M, P>>>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// The kernel is gone: everything that it held is given back. Its node ids are used no more.
    pub(crate) fn depart(&self) {
        if let Some(sharing) = &self.metrics.sharing {
            sharing.peers.fetch_sub(1, Ordering::Relaxed);
        }
        self.kernels.locks.leave(self.id);
        self.kernels.page_holders.leave(self.id);
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

    /// Takes what the kernel had at an earlier owner: node ids with the handles of open files, and
    /// locks with node ids. What is stale stays so. Called before any kernel is served.
    pub(crate) fn restore(
        &self,
        files: impl Iterator<Item = (u64, u64)>,
        locks: impl Iterator<Item = (u64, Lock)>,
    ) {
        for (nodeid, handle) in files {
            let Ok(inode) = self.nodes.resolve(nodeid) else { continue };
            if self.volume.acquire(inode).is_ok() {
                self.files.opened(nodeid, Handle(handle));
                self.kernels.handles.fetch_max(Handle(handle).number(), Ordering::Relaxed);
                // It may have pages of the file. They are recalled before the file changes.
                self.kernels.page_holders.reads(self.id, inode);
            }
        }
        for (nodeid, held) in locks {
            if let Ok(inode) = self.nodes.resolve(nodeid) {
                let owner = self.lock_owner(held.owner.number);
                self.kernels.locks.restore(inode.0, Lock { owner, ..held });
            }
        }
    }

    /// The open descriptors of the control file.
    pub(super) fn controls(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what the kernel caches of an inode, see
    /// [`FuseDevice::invalidate_inode`](crate::device::FuseDevice::invalidate_inode). Pages of
    /// peers stay: the callers that mean them recall them.
    pub(crate) fn invalidate_inode(&self, nodeid: u64, offset: i64) -> std::io::Result<()> {
        match (&self.device, &self.kernels.delegations) {
            // Without pages only what is delegated is kept.
            (_, Some(delegations)) if offset < 0 => {
                let reach =
                    |id, inodes: &_, what, done| self.kernels.recall(id, inodes, what, done);
                delegations.take_back(self.id, crate::node::inode(nodeid), &reach);
                Ok(())
            }
            (Some(device), _) => device.invalidate_inode(nodeid, offset),
            (None, _) => Ok(()),
        }
    }

    /// A node that is recalled now.
    pub(crate) fn recalled(&self, nodeid: u64) -> RecalledNode {
        match self.volume.attributes(crate::node::inode(nodeid)) {
            Ok(found) => RecalledNode { nodeid, generation: generation(&found), size: found.size },
            Err(_) => RecalledNode::stale(nodeid),
        }
    }

    /// Tells how the kernel is reached. Until then nothing is delegated to it.
    pub(crate) fn reached_by(&self, recaller: Arc<dyn Recaller>) {
        let _ = self.recaller.set(recaller);
    }

    /// Begins what the request changes, see [`Delegations::change`].
    pub(super) fn begin_change(&self, request: &Request<'_>) -> Option<Change<'_>> {
        let delegations = self.kernels.delegations.as_ref()?;
        let reach = |id, inodes: &_, what, done| self.kernels.recall(id, inodes, what, done);
        let mut change: Option<Change<'_>> = None;
        loop {
            // A request that makes no sense changes nothing.
            let mut affected = self.affected(request).ok()?;
            // While it waits for other kernels, a name may be given to another inode.
            affected
                .inodes
                .retain(|inode| change.as_ref().is_none_or(|so_far| !so_far.has(*inode)));
            if affected.inodes.is_empty() {
                return change;
            }
            let more = delegations.change(self.id, affected, &reach);
            change = Some(match change {
                Some(so_far) => so_far.and(more),
                None => more,
            });
        }
    }

    /// Makes an answer one of which the kernel keeps only what is delegated to it. `asked`: when
    /// the operation began.
    pub(super) fn delegate(&self, request: &Request<'_>, asked: Instant, answer: &mut [u8]) {
        let grant = |nodeid, what| {
            let delegations = self.kernels.delegations.as_ref()?;
            (self.recaller.get().is_some() && !is_snapshot(nodeid))
                .then(|| delegations.grant(self.id, crate::node::inode(nodeid), asked, what))?
        };
        let names = |_| match self.agreement.epochs() {
            true => grant(request.header.nodeid, What::Names).unwrap_or_default(),
            false => Duration::ZERO,
        };
        // Those of other answers the kernel must not keep, see `crate::cluster::keeper`. The node
        // of a peer may, for a moment (`crate::cluster::spares`).
        let attributes = |told: validity::Delegated| match request.header.opcode {
            opcode::LOOKUP if told.is_directory => Duration::ZERO,
            opcode::GETATTR | opcode::STATX | opcode::LOOKUP => {
                grant(told.nodeid, What::Attributes).unwrap_or_default()
            }
            opcode::CREATE if self.device.is_none() => {
                grant(told.nodeid, What::Attributes).unwrap_or_default()
            }
            _ => Duration::ZERO,
        };
        let may_cache = |flags| self.may_cache(request.header.nodeid, flags, asked);
        validity::limit(request, answer, names, attributes, may_cache);
        self.delegate_close(request, asked, answer);
    }

    /// The attributes of the directory in which a request has changed a name, for as long as they
    /// are delegated to the kernel. `None`: they are not.
    pub(crate) fn changed_directory(&self, request: &Request<'_>) -> Option<AttrOut> {
        let nodeid = request.header.nodeid;
        if !changes_names(request.header.opcode) || is_snapshot(nodeid) {
            return None;
        }
        let delegations = self.kernels.delegations.as_ref()?;
        // The change is over, so they are from after it. Another one since then refuses them.
        let asked = Instant::now();
        let told = self.guarded(request.header.opcode, || {
            let inode = self.nodes.resolve(nodeid)?;
            let mut told = attr_out(&self.volume.attributes(inode)?);
            let valid = delegations.grant(self.id, inode, asked, What::Attributes);
            Ok(valid.map(|valid| {
                (told.attr_valid, told.attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
                told
            }))
        });
        told.ok().flatten()
    }

    /// Whether an open file is read through the kernel's pages: reads look at the attributes first,
    /// which other kernels do not change all the time. Writes go without pages, because a kernel
    /// that writes keeps pages locked that another one's change recalls.
    fn may_cache(&self, nodeid: u64, flags: u32, asked: Instant) -> bool {
        let reads = flags as i32 & (libc::O_ACCMODE | libc::O_TRUNC) == libc::O_RDONLY;
        reads
            && self.agreement.looks_before_reads()
            && !is_snapshot(nodeid)
            && self.kernels.delegations.as_ref().is_some_and(|delegations| {
                delegations.is_quiet(self.id, crate::node::inode(nodeid), asked)
            })
    }

    /// Whether the volume has several kernels.
    pub(crate) fn is_shared(&self) -> bool {
        self.kernels.several
    }

    /// The size at which an appending write begins.
    pub(super) fn end_of(&self, inode: InodeNumber) -> Result<u64, Errno> {
        Ok(self.volume.attributes(inode)?.size)
    }
}
