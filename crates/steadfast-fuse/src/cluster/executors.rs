//! [`Executors`]: threads of the owner that read the requests of one peer and execute them.
//!
//! One thread at a time reads a connection. A thread that has read a request executes it itself,
//! and another thread that has nothing to do reads on. So a request does not wait for a second
//! thread to wake up. The pattern is *leader and followers* (Schmidt, Stal, Rohnert, Buschmann:
//! Pattern-Oriented Software Architecture, volume 2).
//!
//! Invariants:
//! - A thread that reads does not execute: an executed request may wait for a confirmation that has
//!   to be read. Without another thread that could read, the request is queued.
//! - Only the newest connection is read on.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::frame::RequestFrame;

/// Requests that may wait for a thread. Beyond them the connection is not read.
pub(super) const QUEUE: usize = 64;

/// Where requests come from.
pub(super) struct Source {
    /// Number of the connection.
    pub(super) connection: u64,
    pub(super) reader: Box<dyn Read + Send>,
}

/// What is to be done with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Execute(RequestFrame),
    /// It is done already.
    Done,
    /// The connection must end.
    Refused,
}

#[derive(Default)]
struct ExecutorState {
    /// The connection that no thread reads.
    source: Option<Source>,
    /// Number of the newest connection.
    newest: u64,
    queue: VecDeque<RequestFrame>,
    /// Threads that have nothing to do.
    idle: usize,
    over: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Executors {
    state: Mutex<ExecutorState>,
    /// There is something to do for an idle thread.
    wake: Condvar,
    /// The queue has become shorter.
    shorter: Condvar,
}

impl Executors {
    /// A new connection, which is read from now on. Returns whether the session goes on.
    pub(super) fn read_from(&self, source: Source) -> bool {
        let mut state = self.state();
        if source.connection > state.newest && !state.over {
            state.newest = source.connection;
            state.source = Some(source);
            self.wake.notify_one();
        }
        !state.over
    }

    /// The next request that the calling thread has to execute. `receive` says what a frame is, and
    /// `broken` is told of a connection that has ended. `None`: the session is over.
    pub(super) fn next(
        &self,
        receive: impl Fn(u64, RequestFrame) -> Incoming,
        broken: impl Fn(u64),
    ) -> Option<RequestFrame> {
        let mut state = self.state();
        loop {
            if state.over {
                return None;
            }
            // Reading first: what is queued may wait for a confirmation.
            if let Some(source) = state.source.take() {
                drop(state);
                let connection = source.connection;
                match self.read(source, &receive) {
                    Some(frame) => return Some(frame),
                    None => broken(connection),
                }
                state = self.state();
                continue;
            }
            if let Some(frame) = state.queue.pop_front() {
                self.shorter.notify_one();
                return Some(frame);
            }
            state.idle += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Reads a connection until the calling thread has a request to execute. `None`: it has ended.
    fn read(
        &self,
        mut source: Source,
        receive: impl Fn(u64, RequestFrame) -> Incoming,
    ) -> Option<RequestFrame> {
        loop {
            let frame =
                match receive(source.connection, RequestFrame::read(&mut *source.reader).ok()?) {
                    Incoming::Execute(frame) => frame,
                    Incoming::Done => continue,
                    Incoming::Refused => return None,
                };
            let mut state = self.state();
            while state.idle == 0 && state.queue.len() >= QUEUE && !state.over {
                state = self.shorter.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.over {
                return None;
            }
            if state.idle == 0 {
                state.queue.push_back(frame);
                continue;
            }
            if source.connection == state.newest {
                state.source = Some(source);
                self.wake.notify_one();
            }
            return Some(frame);
        }
    }

    /// Ends: no thread waits any more, and nothing is executed but what is being executed.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        state.source = None;
        state.queue.clear();
        self.wake.notify_all();
        self.shorter.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, ExecutorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
