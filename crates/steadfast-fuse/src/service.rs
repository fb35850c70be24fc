//! The interface between a transport and the service that answers requests, and the return path of
//! later answers.
//!
//! A transport ([`crate::device`] or [`crate::ring`]) receives a request into its own buffer. It
//! passes the request to the service with an [`AnswerBuffer`], and then sends the contents of that
//! buffer. If another thread will answer ([`Answer::Later`]), the service first requests a
//! [`Return`] from the transport, which that thread then uses.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::buffer::AnswerBuffer;
use crate::device::FuseDevice;
use crate::errno::Errno;
use crate::request::Request;

/// When the kernel gets the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Now: the answer is in the buffer.
    Ready,
    /// Never: the request has no answer.
    Silent,
    /// Later, from another thread.
    Later,
}

/// Result of a request.
pub(crate) type Outcome = Result<Answer, Errno>;

/// Requests from the transport the return path for an answer that another thread will give. EAGAIN:
/// too many threads wait already.
pub(crate) type Later<'a> = &'a dyn Fn() -> Result<Return, Errno>;

/// Answers requests, from several threads.
pub(crate) trait Service: Send + Sync + 'static {
    /// Executes a request. The answer goes into the buffer, which is empty at first.
    fn serve(&self, later: Later<'_>, request: &Request<'_>, out: &mut AnswerBuffer) -> Outcome;
}

/// The return path of one answer.
#[derive(Debug, Clone)]
pub(crate) enum Return {
    /// To the device from which the request came.
    Device(FuseDevice),
    /// To the worker whose ring entry has the request; it waits for this.
    Worker(Sender<Result<Vec<u8>, Errno>>),
    /// Over the network, to the kernel of another node.
    Peer(Arc<dyn Answering>),
    /// Like the inner one, once the function has returned; it is dropped if that returns `false`.
    Checked(Check, Box<Return>),
}

/// Waits until an answer may be given; whether it may.
#[derive(Clone)]
pub(crate) struct Check(pub(crate) Arc<dyn Fn() -> bool + Send + Sync>);

/// Sends the answer of one request.
pub(crate) trait Answering: Send + Sync {
    fn answer(&self, result: Result<&[u8], Errno>);
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

impl fmt::Debug for dyn Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}

impl Return {
    /// Answers the request `unique`.
    ///
    /// # Errors
    /// Those of writing to the device. A worker or caller that has ended is no error.
    pub(crate) fn answer(&self, unique: u64, result: Result<&[u8], Errno>) -> io::Result<()> {
        match self {
            Return::Device(device) => device.answer(unique, result),
            Return::Worker(worker) => {
                let _ = worker.send(result.map(<[u8]>::to_vec));
                Ok(())
            }
            Return::Peer(peer) => {
                peer.answer(result);
                Ok(())
            }
            Return::Checked(check, back) => {
                if check.0() {
                    back.answer(unique, result)
                } else {
                    Ok(())
                }
            }
        }
    }
}
