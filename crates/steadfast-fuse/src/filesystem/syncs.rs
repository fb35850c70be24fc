//! One worker executes fsync for many callers.
//!
//! Each flush of the medium takes from 0.1 ms to many ms, and there are as few workers as
//! processors. If each worker waited for the flush of its own caller, no worker would be left for
//! other requests. So the worker that receives an FSYNC while there is no leader becomes the
//! leader. It answers its own FSYNC and those that the other workers queue in the meantime, while
//! these workers continue.
//!
//! All queued callers share one transaction point ([`Volume::fsync`](steadfast::Volume::fsync) has
//! nothing left to do for the later ones). The volume is told of each caller as it arrives, so that
//! it can wait for more committers.
//!
//! Invariant: while requests wait, a worker leads. A dropped request gets EIO ([`Ticket`]).
//!
//! Over io_uring each request has its own waiting thread, so each calls the volume directly.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::{InodeNumber, Platform, TransactionMask};
use steadfast_media::Medium;

use super::{Answer, Filesystem, Outcome};
use crate::abi::input::FsyncIn;
use crate::abi::opcode;
use crate::errno::Errno;
use crate::jobs::Ticket;
use crate::open::Handle;
use crate::request::Request;
use crate::service::Later;

/// Arguments of FSYNC and FSYNCDIR.
#[derive(Debug, Clone, Copy)]
struct FsyncRequest {
    nodeid: u64,
    inode: InodeNumber,
    is_file: bool,
    handle: Handle,
}

#[derive(Default)]
struct SyncQueue {
    waiting: VecDeque<(FsyncRequest, Ticket)>,
    led: bool,
}

/// The requests that wait for the leader.
#[derive(Default)]
pub(super) struct Syncs(Mutex<SyncQueue>);

impl Syncs {
    fn queue(&self) -> MutexGuard<'_, SyncQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns whether the caller has to lead.
    fn add(&self, sync: FsyncRequest, ticket: Ticket) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back((sync, ticket));
        !std::mem::replace(&mut queue.led, true)
    }

    /// The next request for the leader. `None` ends the lead.
    fn next(&self) -> Option<(FsyncRequest, Ticket)> {
        let mut queue = self.queue();
        let next = queue.waiting.pop_front();
        queue.led = next.is_some();
        next
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// FSYNC and FSYNCDIR.
    pub(super) fn fsync(&self, later: Later<'_>, request: &Request<'_>) -> Outcome {
        let wanted = request.arguments().take::<FsyncIn>()?;
        let sync = FsyncRequest {
            nodeid: request.header.nodeid,
            inode: self.node(request)?,
            is_file: request.header.opcode == opcode::FSYNC,
            handle: Handle(wanted.fh),
        };
        if self.agreement.over_io_uring() {
            return self.sync(sync).map(|()| Answer::Ready);
        }
        let ticket = self.ticket(later, request)?;
        self.volume.announce_committer();
        if self.syncs.add(sync, ticket) {
            self.lead();
        }
        Ok(Answer::Later)
    }

    fn lead(&self) {
        while let Some((sync, ticket)) = self.syncs.next() {
            // A panic fails only the request of its own operation.
            let result = self.guarded(opcode::FSYNC, || self.sync(sync));
            ticket.answer(result.map(|()| &[][..]));
            self.volume.withdraw_committer();
        }
    }

    fn sync(&self, sync: FsyncRequest) -> Result<(), Errno> {
        self.settle_times(sync.nodeid);
        // The kernel turns a write to an O_SYNC handle into cached writes and an fsync.
        if sync.is_file
            && sync.handle.is_sync()
            && self.volume.mask().contains(TransactionMask::SYNC_WRITE)
        {
            self.volume.synchronous_write()?;
        } else {
            self.volume.fsync()?;
        }
        if let Some(errno) = self.lost.end(sync.nodeid) {
            return Err(errno);
        }
        if sync.is_file && self.agreement.write_back() {
            // Write-back does not tell the kernel that the file now has more blocks.
            let allocated = self.volume.attributes(sync.inode)?.allocated;
            if self.files.allocation_changed(sync.nodeid, allocated) {
                let _ = self.invalidate_inode(sync.nodeid, -1);
            }
        }
        Ok(())
    }
}
