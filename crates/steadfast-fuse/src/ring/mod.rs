//! FUSE over io_uring: a queue of requests for each processor, answered by threads that stay on it.
//!
//! The kernel puts a request into the queue of the processor on which its caller runs, and into the
//! entry of that queue that was free last. Each entry belongs to one thread with an io_uring of its
//! own, so whoever serves a request is the one who fetches the next: nothing goes between threads,
//! and the caller is woken on its own processor. A request that takes long (an fsync) occupies its
//! thread, and the others of the queue serve what comes meanwhile.
//!
//! Negotiation: the rings are made before INIT is answered, so that a host that refuses them is
//! served over the device from the beginning; the kernel itself goes back to the device when it
//! refuses an entry. What the kernel does not wait for (FORGET), and notifications, use the device
//! in any case.
//!
//! Invariant: *each queue has a thread that does not wait for the control thread*, for the control
//! thread may wait for the kernel, which waits for writes in any queue. The last thread that does
//! not wait answers EAGAIN instead ([`Seat::step_out`]). Threads cannot be added when they are
//! needed: the kernel hands out what waits in a queue when an answer comes in, but not when an
//! entry does.
//!
//! The rings let the kernel do its part of the work when it likes (no `DEFER_TASKRUN`): where that
//! waits for a call of the thread, a daemon that is killed can leave requests behind that no abort
//! ends (seen on Linux 6.18).

mod cpu;
mod entry;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Builder, JoinHandle};

use crate::buffer::{AnswerBuffer, DATA_MAX, PAGE, Pages};
use crate::device::Device;
use crate::errno::Errno;
use crate::log::{log_error, log_info, log_warning};
use crate::request::Request;
use crate::service::{Answer, Return, Service};
use crate::workers::be_an_io_thread;

use entry::{Entry, Next};

/// Threads of all queues together, about; each has a descriptor.
const THREADS: usize = 128;
/// Threads of one queue at least and at most.
const CREW_MIN: usize = 4;
const CREW_MAX: usize = 16;
/// More processors than this are served over the device.
const QUEUES_MAX: usize = THREADS;

/// What a mount needs to be served over rings, made before the kernel hears of it.
pub(crate) struct Rings {
    /// Those of each queue.
    entries: Vec<Vec<Entry>>,
    /// The mount is not to be served over the device.
    required: bool,
}

impl Rings {
    /// # Errors
    /// The host has no io_uring, or refuses it; it may have too many processors.
    pub(crate) fn new(device: &Device, required: bool) -> io::Result<Rings> {
        let queues = cpu::possible()
            .filter(|queues| (1..=QUEUES_MAX).contains(&usize::from(*queues)))
            .ok_or_else(|| {
                io::Error::other(format!("not 1 to {QUEUES_MAX} possible processors"))
            })?;
        let crew = (THREADS / usize::from(queues)).clamp(CREW_MIN, CREW_MAX);
        let entries = |queue| (0..crew).map(|_| Entry::new(device, queue)).collect();
        Ok(Rings { entries: (0..queues).map(entries).collect::<io::Result<_>>()?, required })
    }

    /// Threads that will be there.
    pub(crate) fn threads(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }
}

/// What the threads of one queue share.
struct Queue<S> {
    service: Arc<S>,
    number: u16,
    /// Threads that do not wait for the control thread.
    free: AtomicUsize,
}

/// The threads, to be waited for when the mount ends.
pub(crate) type Threads = Vec<JoinHandle<io::Result<()>>>;

/// Starts the threads, and gives their entries to the kernel. `false`: it has refused some, and may
/// use the device.
///
/// # Errors
/// No thread, no memory; where the rings are required, any refusal.
pub(crate) fn start<S: Service>(
    rings: Rings,
    service: &Arc<S>,
    name: &str,
    threads: &mut Threads,
) -> io::Result<bool> {
    let (count, required) = (rings.threads(), rings.required);
    let (report, reports) = mpsc::channel();
    for (number, entries) in (0..).zip(rings.entries) {
        let free = AtomicUsize::new(entries.len());
        let queue = Arc::new(Queue { service: service.clone(), number, free });
        for (index, entry) in entries.into_iter().enumerate() {
            let spare = Pages::new(DATA_MAX / PAGE)?;
            let (queue, report) = (queue.clone(), report.clone());
            let run = move || queue.run(entry, spare, report);
            threads.push(Builder::new().name(format!("{name}-{number}/{index}")).spawn(run)?);
        }
    }
    drop(report);
    match reports.into_iter().fold(Ok(()), io::Result::and) {
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

impl<S: Service> Queue<S> {
    /// Serves until the mount ends.
    fn run(
        &self,
        mut entry: Entry,
        mut spare: Pages,
        report: Sender<io::Result<()>>,
    ) -> io::Result<()> {
        cpu::stay_on(self.number);
        be_an_io_thread();
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

/// One thread's place at a queue.
struct Seat<'a, S> {
    queue: &'a Queue<S>,
    /// Where the answer of another thread will come.
    late: Cell<Option<Late>>,
}

impl<S: Service> Seat<'_, S> {
    /// Executes the request in the entry and puts the answer there: bytes of the payload.
    fn serve(&self, entry: &mut Entry, spare: &mut Pages) -> Result<usize, Errno> {
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

    /// This thread is going to wait for another one's answer, unless nobody is left then.
    fn step_out(&self) -> Result<Return, Errno> {
        let another = |free: usize| free.checked_sub(1).filter(|left| *left > 0);
        self.queue
            .free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, another)
            .map_err(|_| Errno(libc::EAGAIN))?;
        let (send, receive) = mpsc::channel();
        self.late.set(Some(receive));
        Ok(Return::Worker(send))
    }

    /// Waits for the answer where there is one to come, and is back.
    fn wait(&self, late: &Late, outcome: Result<Answer, Errno>) -> Result<Vec<u8>, Errno> {
        let answer = match outcome {
            // Whoever was to answer has dropped the request: the session ends.
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
