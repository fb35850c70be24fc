//! The control file, and the lease of the volume that an open descriptor of it holds.
//!
//! A program opens [`CONTROL_FILE`](crate::ioctl::CONTROL_FILE) in the root directory and begins
//! with [`ATOMIC_BEGIN`]. From then on only this program decides about the next transaction point,
//! until it commits or aborts.
//!
//! The kernel always reports the end of a descriptor (RELEASE), even if the holder is killed. So
//! the daemon rolls back a lease whose descriptor is closed. If the daemon or the power fails
//! first, the next mount finds the state at the beginning of the lease.
//!
//! A descriptor that child processes inherited keeps the lease until the last of them has ended. So
//! no process of the holder writes after the rollback.
//!
//! The file is not part of the volume. Its node id is one that no inode of the volume has. Requests
//! about it bypass the gate, because they touch nothing that a rollback changes.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast::{Platform, Transaction};
use steadfast_media::Medium;
use zerocopy::IntoBytes;

use super::{Answer, Filesystem, Outcome, ready};
use crate::abi::flags::write as write_flag;
use crate::abi::input::{IoctlIn, ReleaseIn, WriteIn};
use crate::abi::opcode;
use crate::abi::output::{Attr, AttrOut, EntryOut, IoctlOut, OpenOut, Statx, StatxOut};
use crate::buffer::AnswerBuffer;
use crate::errno::Errno;
use crate::ioctl::{ATOMIC_ABORT, ATOMIC_BEGIN, ATOMIC_COMMIT, AtomicArgument, atomic_flag};
use crate::jobs::{Job, LeaseJob, Ticket};
use crate::log::{log_error, log_info, log_warning};
use crate::request::Request;
use crate::service::Later;

/// Inode number of the control file: files never get numbers below 16, and this number has no other
/// use.
const CONTROL_INODE: u64 = 2;
/// The node id of the control file, with a tag of its own.
const CONTROL_ID: u64 = 0xffff << 48 | CONTROL_INODE;
/// Reads and writes go to the daemon, not to the page cache; a close needs no FLUSH.
const OPEN_FLAGS: u32 = 1 | crate::abi::flags::fopen::NOFLUSH;

/// The transaction of the present holder. The control thread owns it.
pub(crate) type OpenTransaction<'v, M, P> = Option<Transaction<'v, M, P>>;

/// The holder of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    handle: u64,
    process: u32,
}

/// The lease of the volume. Only the control thread grants and ends it.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    handles: AtomicU64,
    holder: Mutex<Option<Holder>>,
    /// A program received ENOSPC during the lease.
    no_space: AtomicBool,
    /// The error of cached pages that could not be written during the lease; 0: none. A program
    /// that ignores the result of close(2) does not notice such an error.
    lost: AtomicI32,
}

impl Lease {
    fn holder(&self) -> MutexGuard<'_, Option<Holder>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_held_by(&self, handle: u64) -> bool {
        self.holder().is_some_and(|holder| holder.handle == handle)
    }

    /// The state of the lease, for status requests.
    pub(crate) fn status(&self) -> AtomicArgument {
        let holder = *self.holder();
        let mut flags = 0;
        if holder.is_some() {
            flags |= atomic_flag::ACTIVE;
        }
        if self.no_space.load(Ordering::Acquire) {
            flags |= atomic_flag::NO_SPACE;
        }
        AtomicArgument { flags, process: holder.map_or(0, |holder| holder.process) }
    }

    /// Called when a request is answered with this error.
    pub(crate) fn note_error(&self, request: &Request<'_>, errno: Errno) {
        if request.header.opcode == opcode::WRITE && self.holder().is_some() {
            let cached = request.arguments().take::<WriteIn>();
            if cached.is_ok_and(|wanted| wanted.write_flags & write_flag::CACHE != 0) {
                self.lost.store(errno.0, Ordering::Release);
            }
        }
        self.note_no_space(errno);
    }

    /// Called when a program receives this error.
    pub(crate) fn note_no_space(&self, errno: Errno) {
        if errno.0 == libc::ENOSPC
            && !self.no_space.load(Ordering::Relaxed)
            && self.holder().is_some()
            && !self.no_space.swap(true, Ordering::AcqRel)
        {
            log_warning!(
                "no space left inside an atomic command: what it removes is given back when it commits"
            );
        }
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(super) fn is_control_file(&self, request: &Request<'_>) -> bool {
        request.header.nodeid == CONTROL_ID
    }

    /// LOOKUP of the control file. The kernel must not cache the name, because a file of the volume
    /// may take it.
    pub(super) fn lookup_control_file(&self, out: &mut AnswerBuffer) -> Outcome {
        ready(out.put(&EntryOut {
            nodeid: CONTROL_ID,
            attr: self.control_attr(),
            ..EntryOut::default()
        }))
    }

    fn control_attr(&self) -> Attr {
        Attr {
            ino: CONTROL_INODE,
            mode: libc::S_IFREG | 0o600,
            nlink: 1,
            uid: self.owner,
            blksize: 4096,
            ..Attr::default()
        }
    }

    /// Serves a request about the control file.
    pub(super) fn serve_control_file(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        match request.header.opcode {
            // Some programs truncate at open and set times at close; neither has an effect here.
            opcode::GETATTR | opcode::SETATTR => {
                ready(out.put(&AttrOut { attr: self.control_attr(), ..AttrOut::default() }))
            }
            opcode::STATX => {
                let attr = self.control_attr();
                let stat = Statx {
                    mask: 0x7ff,
                    mode: attr.mode as u16,
                    nlink: attr.nlink,
                    uid: attr.uid,
                    ino: attr.ino,
                    blksize: attr.blksize,
                    ..Statx::default()
                };
                ready(out.put(&StatxOut { stat, ..StatxOut::default() }))
            }
            opcode::OPEN => {
                let fh = self.kernels.lease.handles.fetch_add(1, Ordering::Relaxed);
                self.controls().insert(fh);
                ready(out.put(&OpenOut { fh, open_flags: OPEN_FLAGS, backing_id: 0 }))
            }
            opcode::IOCTL => self.lease_command(later, request),
            opcode::RELEASE => {
                let handle = request.arguments().take::<ReleaseIn>()?.fh;
                self.controls().remove(&handle);
                // Correct even if the lease is not granted yet, because jobs run in order.
                self.send(Job::Lease { ticket: None, job: LeaseJob::Lost { handle } });
                Ok(Answer::Ready)
            }
            opcode::READ | opcode::FLUSH | opcode::FSYNC => Ok(Answer::Ready),
            // Not ENOSYS, which would make the kernel stop sending the request for all files.
            _ => Err(Errno(libc::EPERM)),
        }
    }

    fn lease_command(&self, later: Later<'_>, request: &Request<'_>) -> Outcome {
        let wanted = request.arguments().take::<IoctlIn>()?;
        let handle = wanted.fh;
        let job = match wanted.cmd {
            ATOMIC_BEGIN => {
                self.check_owner(request)?;
                LeaseJob::Begin { handle, process: request.header.pid }
            }
            ATOMIC_COMMIT => LeaseJob::Commit { handle },
            ATOMIC_ABORT => LeaseJob::Abort { handle },
            _ => return Err(Errno(libc::ENOTTY)),
        };
        self.defer(Job::Lease { ticket: Some(self.ticket(later, request)?), job })
    }

    /// On the control thread: executes a change of the lease.
    pub(crate) fn execute_lease<'v>(
        &'v self,
        ticket: Option<Ticket>,
        job: LeaseJob,
        transaction: &mut OpenTransaction<'v, M, P>,
    ) {
        let result = match job {
            LeaseJob::Begin { handle, process } => self.begin(handle, process, transaction),
            LeaseJob::Commit { handle } => {
                self.if_holder(handle).and_then(|()| self.commit_lease(transaction))
            }
            LeaseJob::Abort { handle } => {
                self.if_holder(handle).and_then(|()| self.abort_lease(transaction))
            }
            LeaseJob::Lost { handle } if self.kernels.lease.is_held_by(handle) => {
                log_warning!("an atomic command has ended without an answer: rolling back");
                self.abort_lease(transaction)
            }
            LeaseJob::Lost { .. } => Ok(()),
        };
        if let Some(ticket) = ticket {
            let out = IoctlOut::default();
            ticket.answer(result.map(|()| out.as_bytes()));
        }
    }

    fn if_holder(&self, handle: u64) -> Result<(), Errno> {
        if self.kernels.lease.is_held_by(handle) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    fn begin<'v>(
        &'v self,
        handle: u64,
        process: u32,
        transaction: &mut OpenTransaction<'v, M, P>,
    ) -> Result<(), Errno> {
        if self.volume.is_held() {
            return Err(Errno(libc::EALREADY));
        }
        // Earlier writes belong to the state that a rollback returns to.
        self.pull_all()?;
        // One that a panic has left behind: it must not end the new one.
        if let Some(ended) = transaction.take() {
            ended.detach();
        }
        *transaction = Some(self.volume.begin()?);
        self.kernels.lease.no_space.store(false, Ordering::Release);
        self.kernels.lease.lost.store(0, Ordering::Release);
        *self.kernels.lease.holder() = Some(Holder { handle, process });
        log_info!("an atomic command begins (process {process})");
        Ok(())
    }

    /// If an error occurs before the commit, the lease stays and the holder must abort.
    fn commit_lease(&self, transaction: &mut OpenTransaction<'_, M, P>) -> Result<(), Errno> {
        let Some(open) = transaction else { return Err(Errno(libc::EINVAL)) };
        self.pull_all()?;
        match self.kernels.lease.lost.load(Ordering::Acquire) {
            0 => {}
            // Part of the written data is missing, so a commit would not be atomic.
            errno => return Err(Errno(errno)),
        }
        let result = open.try_commit();
        if result.is_err() && self.volume.is_held() {
            return Ok(result?);
        }
        *transaction = None;
        *self.kernels.lease.holder() = None;
        log_info!(
            "an atomic command has ended: {}",
            if result.is_ok() { "committed" } else { "not committed" }
        );
        Ok(result?)
    }

    fn abort_lease(&self, transaction: &mut OpenTransaction<'_, M, P>) -> Result<(), Errno> {
        let Some(open) = transaction else { return Err(Errno(libc::EINVAL)) };
        let result = self.roll_back(true, || Ok(open.roll_back()?));
        if self.volume.is_held() {
            log_error!(
                "an atomic command could not be rolled back now. Nothing is committed until the volume is mounted again, which rolls it back"
            );
        } else {
            *transaction = None;
        }
        *self.kernels.lease.holder() = None;
        result
    }
}
