//! What a transport needs of whatever answers requests, and the way back of answers that come
//! later.
//!
//! A transport ([`crate::device`] or [`crate::ring`]) receives a request into a buffer of its own,
//! hands it to the service together with an [`AnswerBuffer`], and sends what is in there
//! afterwards. Where another thread is to answer ([`Answer::Later`]), the service has asked the
//! transport for a [`Return`] before, and that thread uses it.

use std::io;
use std::sync::mpsc::Sender;

use crate::buffer::AnswerBuffer;
use crate::device::Device;
use crate::errno::Errno;
use crate::request::Request;

/// How the kernel gets its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Now: it is in the buffer.
    Ready,
    /// Not at all: the request wants none.
    Silent,
    /// Later, from another thread.
    Later,
}

/// Result of a request.
pub(crate) type Outcome = Result<Answer, Errno>;

/// Asks the transport for the way back of an answer that another thread will give. EAGAIN: too many
/// wait already.
pub(crate) type Later<'a> = &'a dyn Fn() -> Result<Return, Errno>;

/// Answers requests, from several threads.
pub(crate) trait Service: Send + Sync + 'static {
    /// Executes a request; the answer goes into the buffer, which is empty.
    fn serve(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome;
}

/// The way back of one answer.
#[derive(Debug, Clone)]
pub(crate) enum Return {
    /// To the device that the request came from.
    Device(Device),
    /// To the worker whose ring entry the request has; it waits for this.
    Worker(Sender<Result<Vec<u8>, Errno>>),
}

impl Return {
    /// Answers the request `unique`.
    ///
    /// # Errors
    /// Those of writing to the device. A worker or a caller that has gone away is none.
    pub(crate) fn answer(&self, unique: u64, result: Result<&[u8], Errno>) -> io::Result<()> {
        match self {
            Return::Device(device) => device.answer(unique, result),
            Return::Worker(worker) => {
                let _ = worker.send(result.map(<[u8]>::to_vec));
                Ok(())
            }
        }
    }
}
