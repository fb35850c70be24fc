//! FUSE over io_uring: one request queue for each processor, served by threads bound to it.
//!
//! The kernel puts a request into the queue of its caller's processor, and into the entry of that
//! queue that became free last. Each entry belongs to one thread with its own io_uring. The thread
//! that serves a request also fetches the next one. So nothing moves between threads, and the
//! caller wakes up on its own processor. A long request (an fsync) occupies its thread, and the
//! other threads of the queue serve the requests that follow.
//!
//! Negotiation: the rings are created before INIT is answered, so a host that refuses them is
//! served over the device from the start. If the kernel refuses an entry, the kernel itself goes
//! back to the device. Requests that the kernel does not wait for (FORGET) and notifications always
//! use the device.
//!
//! Invariant: *each queue has a thread that does not wait for the control thread*. The control
//! thread may wait for the kernel, which may wait for writes in any queue. The last thread that
//! does not wait answers EAGAIN instead ([`Seat::step_out`]). Threads cannot be added on demand:
//! the kernel dispatches a queue's waiting requests when an answer arrives, but not when an entry
//! does.
//!
//! That matters at the start, too. The kernel sends requests as soon as each queue has one entry. A
//! request that arrives before the other entries do may wait in the queue beside free entries until
//! some answer comes. So the last queue begins when all others are complete. It has *started* once
//! a request of this process through it is answered, because requests are dispatched in order.
//! Before that its threads do not wait for the control thread.
//!
//! The rings let the kernel do its part of the work at any time (no `DEFER_TASKRUN`). With
//! `DEFER_TASKRUN` that work waits for a call of the thread. A killed daemon can then leave
//! requests behind that no abort ends (seen on Linux 6.18).

mod cpu;
mod entry;

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::device::FuseDevice;
use crate::errno::Errno;
use crate::io_flusher::set_io_flusher;
use crate::log::{log_error, log_info, log_warning};
use crate::request::Request;
use crate::service::{Answer, Return, Service};

use entry::{Next, RingEntry};

/// Approximate number of threads of all queues together; each has a descriptor.
const THREADS: usize = 128;
/// Smallest and largest number of threads of one queue.
const CREW_MIN: usize = 4;
const CREW_MAX: usize = 16;
/// With more processors than this, requests use the device.
const QUEUES_MAX: usize = THREADS;

/// The rings of a mount, created before the kernel knows of them.
pub(crate) struct Rings {
    /// The entries of each queue.
    entries: Vec<Vec<RingEntry>>,
    /// The mount must not fall back to the device.
    required: bool,
}

impl Rings {
    /// # Errors
    /// The host has no io_uring, refuses it, or has too many processors.
    pub(crate) fn new(device: &FuseDevice, required: bool) -> io::Result<Rings> {
        let queues = cpu::possible()
            .filter(|queues| (1..=QUEUES_MAX).contains(&usize::from(*queues)))
            .ok_or_else(|| {
                io::Error::other(format!("not 1 to {QUEUES_MAX} possible processors"))
            })?;
        let crew = (THREADS / usize::from(queues)).clamp(CREW_MIN, CREW_MAX);
        let entries = |queue| (0..crew).map(|_| RingEntry::new(device, queue)).collect();
        Ok(Rings { entries: (0..queues).map(entries).collect::<io::Result<_>>()?, required })
    }

    /// The number of threads that will run.
    pub(crate) fn threads(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }
}

/// The state that the threads of one queue share.
struct RingQueue<S> {
    service: Arc<S>,
    number: u16,
    /// Threads that do not wait for the control thread.
    free: AtomicUsize,
    /// No request waits in the kernel beside free entries.
    started: AtomicBool,
}

/// The threads, for joining them when the mount ends.
pub(crate) type Threads = Vec<JoinHandle<io::Result<()>>>;

/// Starts the threads and registers their entries with the kernel. `directory` is the mount point.
/// `false`: the kernel has refused some entries and may use the device.
///
/// # Errors
/// No thread or memory is available; if the rings are required, also any refusal.
pub(crate) fn start<S: Service>(
    rings: Rings,
    service: &Arc<S>,
    name: &str,
    directory: &Path,
    threads: &mut Threads,
) -> io::Result<bool> {
    let (count, required) = (rings.threads(), rings.required);
    let mut registered = Ok(());
    let last = rings.entries.len().saturating_sub(1);
    for (index, entries) in rings.entries.into_iter().enumerate() {
        let (report, reports) = mpsc::channel();
        let queue = Arc::new(RingQueue {
            service: service.clone(),
            number: index as u16,
            free: AtomicUsize::new(entries.len()),
            started: AtomicBool::new(index < last),
        });
        for (index, entry) in entries.into_iter().enumerate() {
            let spare = Pages::new(DATA_MAX / PAGE)?;
            let (queue, report) = (queue.clone(), report.clone());
            let name = format!("{name}-{}/{index}", queue.number);
            let run = move || queue.run(entry, spare, report);
            threads.push(Builder::new().name(name).spawn(run)?);
        }
        drop(report);
        registered = reports.into_iter().fold(registered, io::Result::and);
        if index == last && registered.is_ok() {
            wait_for_start(queue.number, directory);
        }
        queue.started.store(true, Ordering::Release);
    }
    match registered {
        Ok(()) => log_info!("requests come over io_uring, to {count} threads"),
        Err(error) if required => {
            return Err(io::Error::other(format!("the kernel has refused io_uring: {error}")));
        }
        Err(error) => {
            log_warning!("the kernel has refused io_uring ({error}); requests come over /dev/fuse");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits for the answer to a request through this queue. Without the mount point or a thread there
/// is none, and the queue starts with the next request of any process.
fn wait_for_start(queue: u16, directory: &Path) {
    std::thread::scope(|scope| {
        let ask = || {
            cpu::stay_on(queue);
            let flags = AtFlags::STATX_FORCE_SYNC;
            let _ = rustix::fs::statx(CWD, directory, flags, StatxFlags::BASIC_STATS);
        };
        if let Err(error) = Builder::new().spawn_scoped(scope, ask) {
            log_warning!("no thread to start a queue: {error}");
        }
    });
}

impl<S: Service> RingQueue<S> {
    /// Serves requests until the mount ends.
    fn run(
        &self,
        mut entry: RingEntry,
        mut spare: Pages,
        report: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        cpu::stay_on(self.number);
        set_io_flusher();
        let registered = entry.register();
        let serves = matches!(registered, Ok(true));
        if !serves {
            self.free.fetch_sub(1, Ordering::AcqRel);
        }
        let _ = report.send(registered.map(drop));
        drop(report);
        if !serves {
            return Ok(());
        }
        let seat = Seat { queue: self, late: Cell::new(None) };
        let broken = loop {
            match entry.next() {
                Ok(Next::Request) => {}
                Ok(Next::Unmounted) => return Ok(()),
                Err(error) => break error,
            }
            let result = seat.serve(&mut entry, &mut spare);
            if let Err(error) = entry.answer(result) {
                break error;
            }
        };
        log_error!("the connection to the kernel broke: {broken}");
        Err(broken)
    }
}

type Late = Receiver<Result<Vec<u8>, Errno>>;

/// The place of one thread in a queue.
struct Seat<'a, S> {
    queue: &'a RingQueue<S>,
    /// The channel for the answer of another thread.
    late: Cell<Option<Late>>,
}

impl<S: Service> Seat<'_, S> {
    /// Executes the request in the entry and stores the answer there. Returns its length in the
    /// payload.
    fn serve(&self, entry: &mut RingEntry, spare: &mut Pages) -> Result<usize, Errno> {
        let Some((bytes, payload)) = entry.request() else { return Err(nonsense()) };
        let in_place = payload.is_some();
        let Some(request) = Request::parse(bytes) else { return Err(nonsense()) };
        let mut out = AnswerBuffer::new(payload.unwrap_or(spare.bytes()));
        let outcome = self.queue.service.serve(&|| self.step_out(), &request, &mut out);
        let length = out.len();
        let late = self.late.take().map(|late| self.wait(&late, outcome));
        match outcome? {
            Answer::Ready if in_place => Ok(length),
            Answer::Ready => {
                entry.payload()[..length].copy_from_slice(&spare.bytes()[..length]);
                Ok(length)
            }
            Answer::Silent => Ok(0),
            Answer::Later => {
                let data = late.unwrap_or(Err(Errno(libc::EIO)))?;
                let payload = entry.payload().get_mut(..data.len()).ok_or(Errno(libc::EIO))?;
                payload.copy_from_slice(&data);
                Ok(data.len())
            }
        }
    }

    /// Lets this thread wait for another thread's answer, unless no free thread would be left, or
    /// the queue has not started.
    fn step_out(&self) -> Result<Return, Errno> {
        if !self.queue.started.load(Ordering::Acquire) {
            return Err(Errno(libc::EAGAIN));
        }
        let another = |free: usize| free.checked_sub(1).filter(|left| *left > 0);
        self.queue
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, another)
            .map_err(|_| Errno(libc::EAGAIN))?;
        let (send, receive) = mpsc::channel();
        self.late.set(Some(receive));
        Ok(Return::Worker(send))
    }

    /// Waits for the answer if one will come, then counts this thread as free again.
    fn wait(&self, late: &Late, outcome: Result<Answer, Errno>) -> Result<Vec<u8>, Errno> {
        let answer = match outcome {
            // The other thread has dropped the request, because the session ends.
            Ok(Answer::Later) => late.recv().unwrap_or(Err(Errno(libc::EIO))),
            _ => Err(Errno(libc::EIO)),
        };
        self.queue.free.fetch_add(1, Ordering::AcqRel);
        answer
    }
}

fn nonsense() -> Errno {
    log_warning!("a request makes no sense; answered EIO");
    Errno(libc::EIO)
}
