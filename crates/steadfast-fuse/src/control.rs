//! The control thread. It does all work that has to wait for the kernel, which workers must never
//! do.
//!
//! Jobs run one after the other. Dirty pages that a job pulls arrive at the workers as WRITE
//! requests, while the workers continue to serve all requests. Only a rollback keeps requests from
//! the volume.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};

use steadfast::Platform;
use steadfast::fs::FileKind;
use steadfast_media::{Medium, MediumError};
use zerocopy::IntoBytes;

use crate::abi::output::{IoctlOut, LseekOut};
use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::cluster::HELD_FOR;
use crate::errno::Errno;
use crate::filesystem::page_holders::WAIT;
use crate::filesystem::recall::{NODES_MAX, Recall, Recalled, RecalledNode};
use crate::filesystem::{Filesystem, OpenTransaction, Parked, Phase, VALID_SECONDS_WITHOUT_EPOCHS};
use crate::ioctl::SnapshotArgument;
use crate::jobs::{Command, Job};
use crate::log::{log_error, log_info, log_warning};
use crate::node;
use crate::request::Request;
use crate::service::Answer;

/// The kernel reports a close a moment after close(2) has returned. A file that was closed this
/// recently does not count as busy.
const CLOSING_TIME: Duration = Duration::from_millis(300);

/// Runs jobs until [`Job::Stop`].
pub(crate) fn run<M: Medium + 'static, P: Platform + Clone + 'static>(
    filesystem: &Filesystem<M, P>,
    jobs: &Receiver<Job>,
) {
    let mut waiting = VecDeque::new();
    // The workers have ended when the loop ends, and a transaction that is still open rolls back.
    let mut transaction = None;
    loop {
        if waiting.is_empty() {
            waiting.extend(jobs.recv().ok());
        }
        waiting.extend(jobs.try_iter());
        let Some(mut job) = waiting.pop_front() else { return };
        if matches!(job, Job::Stop) {
            return;
        }
        // One transaction point serves all callers that have asked by now.
        while let Job::Command { tickets, command: Command::Transact } = &mut job
            && let Some(Job::Command { tickets: more, command: Command::Transact }) =
                waiting.front_mut()
        {
            tickets.append(more);
            waiting.pop_front();
        }
        match catch_unwind(AssertUnwindSafe(|| filesystem.execute_job(job, &mut transaction))) {
            Ok(next) => waiting.extend(next),
            Err(_) => {
                log_error!("internal error in a command; answered EIO, the mount goes on");
                // Reopens the gate even after a panic.
                filesystem.resume();
            }
        }
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Filesystem<M, P> {
    /// Executes a job; returns the job that goes on with it later.
    fn execute_job<'v>(
        &'v self,
        job: Job,
        transaction: &mut OpenTransaction<'v, M, P>,
    ) -> Option<Job> {
        match job {
            Job::Command { tickets, command } => {
                let mut out = IoctlOut::default().as_bytes().to_vec();
                let result = self.command(command, &mut out);
                for ticket in tickets {
                    ticket.answer(result.map(|()| &out[..]));
                }
            }
            Job::Own { command, done } => {
                let _ = done.send(self.command(command, &mut Vec::new()));
            }
            Job::Seek { ticket, nodeid, offset, to } => {
                let result = self.pull_file(nodeid).and_then(|()| {
                    let inode = self.nodes.resolve(nodeid)?;
                    Ok(LseekOut { offset: self.volume.seek(inode, offset, to)? })
                });
                ticket.answer(result.as_ref().map(|out| out.as_bytes()).map_err(|errno| *errno));
            }
            Job::Admit { ticket, nodeid, handle } => self.execute_admission(ticket, nodeid, handle),
            Job::Room => self.admission.look(self),
            Job::Lease { ticket, job } => self.execute_lease(ticket, job, transaction),
            Job::Trim { ticket, trim } => return self.execute_trim(ticket, trim),
            Job::Rescue { done } => {
                if let Err(errno) = self.pull_all() {
                    let error = std::io::Error::from_raw_os_error(errno.0);
                    log_error!("files that are still open have lost writes: {error}");
                }
                let _ = done.send(());
            }
            Job::Stop => {}
        }
        None
    }

    /// Executes a command; its output follows the header of the answer.
    fn command(&self, command: Command, out: &mut Vec<u8>) -> Result<(), Errno> {
        if self.volume.is_held() {
            // While the volume is held, only the holder decides.
            return Err(Errno(libc::EALREADY));
        }
        match command {
            Command::Grow { size } => self.grow(size),
            Command::Transact => self.pull_all().and_then(|()| Ok(self.volume.transact()?)),
            Command::Checkpoint => self.pull_all().and_then(|()| Ok(self.volume.checkpoint()?)),
            Command::Rollback { force } => {
                self.roll_back(force, || Ok(self.volume.rollback()?))?;
                log_info!("rolled back to the last transaction point");
                Ok(())
            }
            Command::SnapshotCreate { name } => {
                self.pull_all()?;
                let snapshot = self.volume.snapshot_create(&name);
                self.admission.shared();
                let snapshot = snapshot?;
                out.extend_from_slice(SnapshotArgument::from(&snapshot).as_bytes());
                Ok(())
            }
            Command::SnapshotDelete { name } => self.kernels.snapshots.delete(&name),
            Command::SnapshotRollback { name, force, destroy_newer } => {
                let done = self.roll_back(force, || {
                    Ok(self.volume.snapshot_rollback(&name, destroy_newer)?)
                });
                self.admission.shared();
                done?;
                log_info!("rolled back to the snapshot {name}");
                let left = self.volume.snapshots()?;
                self.kernels
                    .snapshots
                    .forget(|known| left.iter().any(|one| one.generation == known.generation));
                Ok(())
            }
        }
    }

    /// Grows the medium first, because the volume must not exceed it.
    fn grow(&self, size: u64) -> Result<(), Errno> {
        let medium = self.volume.medium();
        let before = medium.geometry().size;
        if size > before {
            let errno = |error: MediumError| {
                Errno(if error.os_error == 0 { libc::EINVAL } else { error.os_error })
            };
            medium.set_size(size).map_err(errno)?;
        }
        let grown = self.volume.grow(size).map_err(Errno::from);
        if grown.is_err()
            && self.volume.info().size <= before
            && self.volume.info().poisoned.is_none()
        {
            // The added space stays unused, so it is removed again.
            let _ = medium.set_size(before);
        }
        if grown.is_ok() {
            log_info!("the volume has {size} bytes now");
        }
        grown
    }

    /// Makes the kernel write back all dirty pages. Only files that are open for writing can have
    /// dirty pages: the last close and the last unmapping write them back.
    pub(crate) fn pull_all(&self) -> Result<(), Errno> {
        if self.is_shared() {
            // The kernel holds back only what programs have stored into mappings.
            return Ok(());
        }
        let mut first_error = Ok(());
        for nodeid in self.files.written() {
            first_error = first_error.and(self.pull_file(nodeid));
        }
        first_error
    }

    pub(crate) fn pull_file(&self, nodeid: u64) -> Result<(), Errno> {
        let Some(puller) = self.puller.get() else { return Err(Errno(libc::EIO)) };
        puller.pull(nodeid).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Rolls back by `roll_back`, and makes the kernel forget its cached state.
    pub(crate) fn roll_back(
        &self,
        force: bool,
        roll_back: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // What the kernel could not be made to forget it would show as it was before.
        if self.agreement.root && !self.agreement.epochs() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // Names and attributes may be other ones after it.
        let _stopped = self.kernels.stop_delegations();
        let start = Instant::now();
        let mut phase = loop {
            if let Some(phase) = self.stop_requests(force) {
                break phase;
            }
            if start.elapsed() >= CLOSING_TIME {
                return Err(Errno(libc::EBUSY));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let before = self.volume.info().incarnation;
        let result = roll_back();
        // A return to a snapshot that fails late has dropped changes, too.
        if result.is_err() && self.volume.info().incarnation == before {
            return result;
        }
        *phase = Phase::RollingBack;
        drop(phase);
        self.forget_before_rollback();
        self.resume();
        result
    }

    /// Closes the gate, unless files are open for writing and `force` is not set. Requests wait at
    /// the closed gate until the rollback has succeeded or is refused. A refused one must not drop
    /// a write that the kernel has taken for stored.
    fn stop_requests(&self, force: bool) -> Option<RwLockWriteGuard<'_, Phase>> {
        // Waits for running operations.
        let phase = self.kernels.gate.write().unwrap_or_else(PoisonError::into_inner);
        let written = || self.kernels.all().iter().any(|kernel| !kernel.files.written().is_empty());
        (force || !written()).then_some(phase)
    }

    /// Drops what kernels have cached: the volume is already at its last durable point.
    fn forget_before_rollback(&self) {
        self.kernels.locks.drop_all();
        // A node learns from each frame that its files are stale. One that has not, and still may
        // bring them to a next owner, is waited for.
        let told = Arc::new(Recall::default());
        let kernels = self.kernels.all();
        // All of them before anything waits.
        let directories: Vec<_> = kernels.iter().map(|kernel| kernel.become_stale(&told)).collect();
        // No node has a later sign with its node ids of before.
        let begun = Instant::now();
        for (kernel, directories) in kernels.iter().zip(directories) {
            kernel.forget_cached(directories);
        }
        told.wait(begun + HELD_FOR);
    }

    /// Makes node ids stale, and tells the node of the kernel. Returns the directories that are not
    /// stale.
    fn become_stale(&self, told: &Arc<Recall>) -> Vec<u64> {
        let directories = self.nodes.roll_back(|inode| {
            self.volume
                .attributes(inode)
                .is_ok_and(|attributes| attributes.kind == FileKind::Directory)
        });
        if let Some(peer) = self.recaller.get().filter(|_| self.device.is_none()) {
            peer.recall(&[], Recalled::Attributes, told.begin());
        }
        directories
    }

    fn forget_cached(&self, directories: Vec<u64>) {
        let open = self.files.take();
        self.lost.forget_all();
        self.let_all_go();
        let report = |what: &str, result: std::io::Result<()>| {
            if let Err(error) = result {
                log_warning!("rollback: the kernel keeps {what} for a while: {error}");
            }
        };
        // The kernel first sends dirty pages as writes, which this phase drops.
        let recall = Arc::new(Recall::default());
        match self.recaller.get().filter(|_| self.device.is_none()) {
            Some(peer) => {
                let stale: Vec<_> =
                    open.iter().map(|(nodeid, _)| RecalledNode::stale(*nodeid)).collect();
                for nodes in stale.chunks(NODES_MAX) {
                    peer.recall(nodes, Recalled::Pages, recall.begin());
                }
            }
            None => {
                for (nodeid, _) in &open {
                    report("pages of an open file", self.invalidate_inode(*nodeid, 0));
                }
            }
        }
        // Stale handles keep no inode alive; the kernel's RELEASE does not find them.
        for (nodeid, handles) in open {
            for _ in 0..handles {
                self.volume.release(node::inode(nodeid));
            }
        }
        recall.wait(Instant::now() + WAIT);
        for nodeid in directories {
            report("a directory", self.invalidate_inode(nodeid, 0));
        }
        if self.is_shared() {
            // Nothing is delegated now.
        } else if let Some(device) = self.device.as_ref().filter(|_| self.agreement.epochs()) {
            report("names", device.expire_entries());
        } else {
            // Names expire by timeout; no new names are given out during this time.
            std::thread::sleep(
                Duration::from_secs(VALID_SECONDS_WITHOUT_EPOCHS) + Duration::from_millis(50),
            );
        }
    }

    /// Opens the gate and executes the parked requests.
    fn resume(&self) {
        *self.kernels.gate.write().unwrap_or_else(PoisonError::into_inner) = Phase::Running;
        for kernel in self.kernels.all() {
            kernel.execute_parked();
        }
    }

    fn execute_parked(&self) {
        let parked =
            std::mem::take(&mut *self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        if parked.is_empty() {
            return;
        }
        let mut memory = Pages::new(DATA_MAX / PAGE);
        for Parked { back, bytes, execution } in parked {
            let Some(request) = Request::parse(&bytes) else { continue };
            // Without memory no answer fits, so the result is EIO.
            let mut out = AnswerBuffer::new(memory.as_mut().map_or(&mut [], Pages::bytes));
            let mut execute = || self.execute(&|| Ok(back.clone()), &request, &mut out);
            let outcome = match execution {
                Some(execution) => execution.during(execute),
                None => execute(),
            };
            let result = match outcome {
                Ok(Answer::Ready) => Ok(out.filled()),
                Ok(Answer::Silent | Answer::Later) => continue,
                Err(errno) => Err(errno),
            };
            if let Err(error) = back.answer(request.header.unique, result) {
                log_error!("cannot answer request {}: {error}", request.header.opcode);
            }
        }
    }
}
