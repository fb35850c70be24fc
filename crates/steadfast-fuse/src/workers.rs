//! The threads that receive and answer requests, over either transport.
//!
//! Over the device, the requested number of workers listens, each with its own queue. Others stand
//! by for workers that wait for the medium ([`crate::listeners`]). Over rings ([`crate::ring`]) one
//! device worker remains, because requests that the kernel does not wait for (FORGET) always arrive
//! over the device.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::buffer::{AnswerBuffer, WorkerBuffers};
use crate::device::{FuseDevice, Received};
use crate::io_flusher::set_io_flusher;
use crate::listeners::Listeners;
use crate::log::{log_error, log_warning};
use crate::request::Request;
use crate::ring::{self, Rings};
use crate::service::{Answer, Return, Service};

/// Smallest number of device workers: one may be busy while another serves what the first waits
/// for.
pub(crate) const THREADS_MIN: usize = 2;
/// Number of workers that stand by: a device gains little from more than sixteen concurrent reads.
const STAND_BY: usize = 14;

/// The threads of one mount.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Workers {
    /// Starts the workers of a mount, given by its device and its directory. On an error those
    /// already started end with the mount, see [`join`](Self::join). If workers stand by, returns
    /// the function that a worker must call before it waits for the medium. The number of such
    /// workers is as large as the machine allows.
    ///
    /// # Errors
    /// No thread or memory is available for the listening workers.
    pub(crate) fn start<S: Service>(
        &mut self,
        service: &Arc<S>,
        name: &str,
        mount: (&FuseDevice, &Path),
        threads: usize,
        rings: Option<Rings>,
        stand_by: bool,
    ) -> io::Result<Option<Arc<Listeners>>> {
        let (device, directory) = mount;
        let (mut threads, mut others) =
            (threads.max(THREADS_MIN), if stand_by { STAND_BY } else { 0 });
        if let Some(rings) = rings
            && ring::start(rings, service, name, directory, &mut self.threads)?
        {
            (threads, others) = (1, 0);
        }
        let listeners = Arc::new(Listeners::new(threads));
        let mut standing_by = 0;
        for number in 0..threads + others {
            let queue = if number == 0 { device.clone() } else { another_queue(device) };
            let buffers =
                if number < threads { WorkerBuffers::huge() } else { WorkerBuffers::small() };
            match buffers.and_then(|buffers| {
                spawn(service, &listeners, format!("{name}-{number}"), queue, buffers)
            }) {
                Ok(thread) => {
                    self.threads.push(thread);
                    standing_by += usize::from(number >= threads);
                }
                Err(error) if number < threads => return Err(error),
                Err(error) => {
                    log_warning!("{standing_by} of {others} workers stand by: {error}");
                    break;
                }
            }
        }
        Ok((standing_by > 0).then_some(listeners))
    }

    /// Whether no worker was started, or all have ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Waits until all workers have ended, which they do at the end of the mount.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub(crate) fn join(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for worker in self.threads.drain(..) {
            result = result.and(ended(worker));
        }
        result
    }
}

fn spawn<S: Service>(
    service: &Arc<S>,
    listeners: &Arc<Listeners>,
    name: String,
    queue: FuseDevice,
    buffers: WorkerBuffers,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let (service, listeners) = (service.clone(), listeners.clone());
    Builder::new().name(name).spawn(move || {
        let result = work(&*service, &queue, &listeners, buffers);
        listeners.end();
        result
    })
}

fn ended(worker: JoinHandle<io::Result<()>>) -> io::Result<()> {
    worker.join().unwrap_or_else(|_| Err(io::Error::other("a worker thread panicked")))
}

fn another_queue(device: &FuseDevice) -> FuseDevice {
    device.clone_queue().unwrap_or_else(|error| {
        log_warning!("no queue of its own for a worker ({error}); it shares one");
        device.clone()
    })
}

fn work(
    service: &impl Service,
    queue: &FuseDevice,
    listeners: &Listeners,
    mut buffers: WorkerBuffers,
) -> io::Result<()> {
    set_io_flusher();
    let (bytes, answer) = buffers.split();
    while listeners.listen() {
        let received = queue.receive(&mut *bytes);
        listeners.heard();
        let length = match received {
            Ok(Received::Request(length)) => length,
            Ok(Received::Unmounted) => return Ok(()),
            Err(error) => {
                log_error!("the connection to the kernel broke: {error}");
                return Err(error);
            }
        };
        let Some(request) = Request::parse(&bytes[..length]) else {
            log_warning!("a request of {length} bytes makes no sense; ignored");
            continue;
        };
        let mut out = AnswerBuffer::new(&mut *answer);
        let result = match service.serve(&|| Ok(Return::Device(queue.clone())), &request, &mut out)
        {
            Ok(Answer::Ready) => Ok(out.filled()),
            Ok(Answer::Silent | Answer::Later) => continue,
            Err(errno) => Err(errno),
        };
        if let Err(error) = queue.answer(request.header.unique, result) {
            log_error!("cannot answer request {}: {error}", request.header.opcode);
        }
    }
    Ok(())
}
