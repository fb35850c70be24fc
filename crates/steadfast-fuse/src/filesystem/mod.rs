//! Converts requests to operations of the volume.
//!
//! Every worker calls [`Service::serve`] with each request that it has received. Handlers put their
//! answer into the worker's buffer and return how to continue ([`Answer`]). A handler that panics
//! answers EIO.
//!
//! The *gate* is a lock that every operation holds for reading. A rollback takes it for writing,
//! which waits for running operations, and holds it until the volume has rolled back. It then sets
//! the phase in which no request reaches the volume (see [`rolling`]).

mod admitting;
pub(crate) mod affected;
mod again;
pub(crate) mod attributes;
mod closing;
pub(crate) mod commands;
pub(crate) mod delegations;
pub(crate) mod directories;
mod files;
pub(crate) mod flags;
pub(crate) mod kernels;
pub(crate) mod lease;
pub(crate) mod locking;
mod lost;
mod names;
pub(crate) mod page_holders;
pub(crate) mod recall;
mod removed;
mod rolling;
mod snapshots;
mod syncs;
mod times;
mod xattrs;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use steadfast::fs::Caller;
use steadfast::{InodeNumber, Platform, Volume};
use steadfast_media::Medium;

use crate::abi::input::{BatchForgetIn, ForgetIn, ForgetOne, WriteIn};
use crate::abi::{opcode, output};
use crate::admission::{Admission, Surroundings};
use crate::buffer::AnswerBuffer;
use crate::device::FuseDevice;
use crate::errno::Errno;
use crate::executing;
use crate::init::Agreement;
use crate::jobs::{Job, Ticket};
use crate::log::log_error;
use crate::metrics::{Kind, Metrics, Timing};
use crate::mount::CacheLimits;
use crate::node::Nodes;
use crate::open::OpenFiles;
use crate::pull::{Pass, Puller};
use crate::request::Request;
pub(crate) use crate::service::{Answer, Outcome};
use crate::service::{Later, Service};
use crate::snapshots::is_snapshot;

use closing::Closing;
use kernels::Kernels;
pub(crate) use lease::OpenTransaction;
use lost::Lost;
use recall::Recaller;
use removed::Removed;
pub(crate) use rolling::Parked;
use syncs::Syncs;

/// How long the kernel may keep names and attributes. They change only through the kernel, except
/// at a rollback, which makes all of them expire.
pub(crate) const VALID_SECONDS: u64 = 24 * 3600;
/// The same for names, if the kernel cannot expire all of them at once. A rollback waits for this
/// time.
pub(crate) const VALID_SECONDS_WITHOUT_EPOCHS: u64 = 1;

/// Whether operations reach the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    RollingBack,
}

/// What a [`Filesystem`] is told of its kernel.
pub(crate) struct Kernel {
    /// Distinguishes the kernels of one volume.
    pub(crate) id: u64,
    /// For notifications; none for the kernel of a peer.
    pub(crate) device: Option<FuseDevice>,
    pub(crate) agreement: Agreement,
    /// The mounting user.
    pub(crate) owner: u32,
    /// First tag of node ids, see [`crate::node`].
    pub(crate) tag: u16,
}

/// The state that all workers share.
pub(crate) struct Filesystem<M: Medium + 'static, P: Platform + Clone + 'static> {
    pub(crate) volume: Arc<Volume<M, P>>,
    pub(crate) nodes: Nodes,
    pub(crate) files: OpenFiles,
    removed: Removed,
    syncs: Syncs,
    /// Distinguishes the kernels of one volume.
    pub(crate) id: u64,
    pub(crate) kernels: Arc<Kernels<M, P>>,
    /// Open descriptors of the control file.
    controls: Mutex<HashSet<u64>>,
    closing: Closing,
    pub(crate) admission: Admission,
    cache_limits: OnceLock<CacheLimits>,
    pub(crate) lost: Lost,
    /// The device for notifications; none for the kernel of a peer.
    pub(crate) device: Option<FuseDevice>,
    pub(crate) recaller: OnceLock<Arc<dyn Recaller>>,
    pub(crate) agreement: Agreement,
    pub(crate) parked: Mutex<Vec<Parked>>,
    pub(crate) puller: OnceLock<Puller>,
    /// The mounting user. It may use the commands that change or discard other users' data.
    pub(crate) owner: u32,
    jobs: Sender<Job>,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether the volume updates access times, as far as the daemon knows.
    access_times: AtomicBool,
    /// Kinds of requests that have panicked.
    panicked: AtomicU64,
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Service for Filesystem<M, P> {
    fn serve(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        self.execute(later, request, out)
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    pub(crate) fn new(
        volume: Arc<Volume<M, P>>,
        kernels: Arc<Kernels<M, P>>,
        kernel: Kernel,
        jobs: Sender<Job>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let Kernel { id, device, agreement, owner, tag } = kernel;
        let admission = Admission::new(agreement.write_back(), volume.info().size);
        Filesystem {
            volume,
            nodes: Nodes::starting_at(tag),
            files: OpenFiles::default(),
            removed: Removed::default(),
            syncs: Syncs::default(),
            id,
            kernels,
            controls: Mutex::default(),
            closing: Closing::default(),
            admission,
            cache_limits: OnceLock::new(),
            lost: Lost::default(),
            device,
            recaller: OnceLock::new(),
            agreement,
            parked: Mutex::default(),
            puller: OnceLock::new(),
            owner,
            jobs,
            metrics,
            access_times: AtomicBool::new(true),
            panicked: AtomicU64::new(0),
        }
    }

    /// Executes one request.
    pub(crate) fn execute(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let start = Instant::now();
        if self.device.is_none() {
            self.metrics.share(|sharing| &sharing.forwarded, 1);
        }
        let timed = Kind::of(request).map(|kind| (kind, start));
        let (mut change, mut rewrite, mut began) = (None, None, start);
        let mut changing = None;
        let outcome = self.guarded(request.header.opcode, || {
            change = self.begin_change(request);
            if self.is_shared() {
                rewrite = self.begin_rewrite(request);
                changing = rewrite.map(|rewrite| self.changing(rewrite));
            }
            began = Instant::now();
            self.enter(later, request, out)
        });
        if self.is_shared() {
            executing::ended(request, outcome, out.filled());
            let rewrite = rewrite.or_else(|| self.rewritten(request, out.filled()));
            let recall = rewrite.map(|rewrite| self.begin_recall(rewrite));
            drop(changing);
            recall.into_iter().for_each(|recall| self.wait_for_pages(recall));
            if outcome == Ok(Answer::Ready) {
                self.wait_for_changes(request, out.filled());
                self.delegate(request, began, out.filled_mut());
            }
        }
        drop(change);
        if let Err(errno) = outcome {
            self.kernels.lease.note_error(request, errno);
            if self.lost.note(request, errno) {
                // The next write must report the error.
                self.have_ask(request.header.nodeid);
            }
        }
        // For a later answer, the thread that answers ends the timing.
        if let Some((kind, start)) =
            timed.filter(|_| !matches!(outcome, Ok(Answer::Silent | Answer::Later)))
        {
            self.metrics.add(kind, start.elapsed(), outcome.err());
            if outcome.is_ok() {
                self.count_bytes(kind, request, out);
            }
        }
        outcome
    }

    fn count_bytes(&self, kind: Kind, request: &Request<'_>, out: &AnswerBuffer) {
        match kind {
            Kind::Read => self.metrics.add_bytes(kind, out.planned().unwrap_or(out.len())),
            Kind::Write => {
                self.metrics
                    .add_bytes(kind, request.body.len().saturating_sub(size_of::<WriteIn>()));
            }
            _ => {}
        }
    }

    fn ticket(&self, later: Later<'_>, request: &Request<'_>) -> Result<Ticket, Errno> {
        let timing = Kind::of(request).map(|kind| Timing::start(&self.metrics, kind));
        Ok(Ticket::new(later()?, request.header.unique, timing))
    }

    /// Turns a panic into EIO. Logs one line for each kind of request, because the same request may
    /// panic a million times.
    fn guarded<T>(
        &self,
        opcode: u32,
        operation: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        catch_unwind(AssertUnwindSafe(operation)).unwrap_or_else(|_| {
            let kind = 1 << (opcode % 64);
            if self.panicked.fetch_or(kind, Ordering::Relaxed) & kind == 0 {
                log_error!("internal error in request {opcode}; answered EIO, the mount goes on");
            }
            Err(Errno(libc::EIO))
        })
    }

    fn enter(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        // These requests touch only the tables, and the kernel does not wait for them.
        match request.header.opcode {
            opcode::FORGET => return self.forget(request),
            opcode::BATCH_FORGET => return self.batch_forget(request),
            opcode::INTERRUPT => return self.interrupt(request),
            // Without a handle the kernel would cache the entries.
            opcode::OPENDIR if self.is_shared() => return self.open_directory(request, out),
            _ => {}
        }
        if self.is_control_file(request) {
            return self.serve_control_file(later, request, out);
        }
        let gate = self.kernels.gate.read().unwrap_or_else(PoisonError::into_inner);
        match *gate {
            Phase::Running => self.dispatch(later, request, out),
            Phase::RollingBack => self.while_rolling_back(later, request, out),
        }
    }

    fn dispatch(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        if is_snapshot(request.header.nodeid) {
            return self.in_snapshots(request, out);
        }
        match request.header.opcode {
            opcode::LOOKUP => self.lookup(request, out),
            opcode::GETATTR => self.getattr(later, request, out),
            opcode::SETATTR => self.setattr(request, out),
            opcode::READLINK => self.readlink(request, out),
            opcode::SYMLINK => self.symlink(request, out),
            opcode::MKNOD => self.mknod(request, out),
            opcode::MKDIR => self.mkdir(request, out),
            opcode::UNLINK => self.unlink(request),
            opcode::RMDIR => self.rmdir(request),
            opcode::RENAME => self.rename(request),
            opcode::RENAME2 => self.rename2(request),
            opcode::LINK => self.link(request, out),
            opcode::OPEN => self.open(request, out),
            opcode::READ => self.read(request, out),
            opcode::WRITE => self.write(request, out),
            opcode::STATFS => self.statfs(out),
            opcode::RELEASE => self.release(request),
            opcode::FSYNC | opcode::FSYNCDIR => self.fsync(later, request),
            opcode::SETXATTR => self.setxattr(request),
            opcode::GETXATTR => self.getxattr(request, out),
            opcode::LISTXATTR => self.listxattr(request, out),
            opcode::REMOVEXATTR => self.removexattr(request),
            opcode::FLUSH => self.flush(request),
            opcode::GETLK | opcode::SETLK | opcode::SETLKW => self.lock(later, request, out),
            opcode::READDIR => self.readdir(request, out),
            opcode::READDIRPLUS => self.readdirplus(request, out),
            opcode::CREATE => self.create(request, out),
            opcode::TMPFILE => self.tmpfile(request, out),
            opcode::IOCTL => self.ioctl(later, request, out),
            opcode::FALLOCATE => self.fallocate(request),
            opcode::LSEEK => self.lseek(later, request, out),
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                self.copy_file_range(request, out)
            }
            opcode::SYNCFS => self.volume.sync().map(|()| Answer::Ready).map_err(Errno::from),
            opcode::STATX => self.statx(request, out),
            opcode::RELEASEDIR | opcode::DESTROY => Ok(Answer::Ready),
            // ENOSYS makes the kernel stop sending these requests. ACCESS: the kernel checks
            // permissions itself. OPENDIR: directories need no handle. Polling: the kernel handles
            // it locally. BMAP: not supported.
            _ => Err(Errno(libc::ENOSYS)),
        }
    }

    fn open_directory(&self, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome {
        if !is_snapshot(request.header.nodeid) {
            self.node(request)?;
        }
        ready(out.put(&output::OpenOut::default()))
    }

    fn forget(&self, request: &Request<'_>) -> Outcome {
        if let Ok(forget) = request.arguments().take::<ForgetIn>() {
            self.forget_node(request.header.nodeid, forget.lookups);
        }
        Ok(Answer::Silent)
    }

    fn batch_forget(&self, request: &Request<'_>) -> Outcome {
        let mut arguments = request.arguments();
        if let Ok(batch) = arguments.take::<BatchForgetIn>() {
            for _ in 0..batch.count {
                let Ok(one) = arguments.take::<ForgetOne>() else { break };
                self.forget_node(one.nodeid, one.lookups);
            }
        }
        Ok(Answer::Silent)
    }

    fn forget_node(&self, nodeid: u64, lookups: u64) {
        self.nodes.forget(nodeid, lookups);
        self.let_go(nodeid);
    }

    /// The inode that a request is about.
    fn node(&self, request: &Request<'_>) -> Result<InodeNumber, Errno> {
        self.nodes.resolve(request.header.nodeid)
    }

    /// Hands a request to the control thread, which answers it.
    fn defer(&self, job: Job) -> Outcome {
        self.send(job);
        Ok(Answer::Later)
    }

    fn send(&self, job: Job) {
        // Sending fails while the session ends; the ticket in the job then answers EIO.
        let _ = self.jobs.send(job);
    }

    fn pass(&self) -> Option<Pass> {
        self.puller.get().map(Puller::pass)
    }

    fn name_validity(&self) -> u64 {
        match self.agreement.epochs() || self.agreement.root {
            true => VALID_SECONDS,
            false => VALID_SECONDS_WITHOUT_EPOCHS,
        }
    }
}

fn caller(request: &Request<'_>, umask: u32) -> Caller {
    Caller { uid: request.header.uid, gid: request.header.gid, umask }
}

/// The answer is in the buffer if it fitted. Answers other than data are far smaller than the
/// buffer.
fn ready(fitted: bool) -> Outcome {
    if fitted { Ok(Answer::Ready) } else { Err(Errno(libc::EIO)) }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    fn statfs(&self, out: &mut AnswerBuffer) -> Outcome {
        let statistics = self.volume.statistics()?;
        // Inodes have no table of their own: the free blocks limit their number.
        let available = statistics
            .blocks_available
            .saturating_sub(self.admission.kept() / u64::from(statistics.block_size));
        let inodes_free = statistics.blocks_available;
        ready(out.put(&output::StatfsOut {
            blocks: statistics.blocks,
            bfree: statistics.blocks_free,
            bavail: available,
            files: statistics.inodes.saturating_add(inodes_free),
            ffree: inodes_free,
            bsize: statistics.block_size,
            namelen: statistics.name_max,
            frsize: statistics.block_size,
            ..Default::default()
        }))
    }
}
