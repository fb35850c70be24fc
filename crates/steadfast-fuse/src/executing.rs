//! [`Execution`]: which batches the changes of one request are in, and how it has ended.
//!
//! The owner of a volume in a cluster may die before a node has an answer. The next owner opens the
//! volume in the state of some batch. It has to know whether a request without an answer is part of
//! that state.
//!
//! Invariant: the number of a batch is noted in the thread that makes it, before a delta has the
//! batch. So a request that has noted no batch up to that of a delta has changed nothing in it.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::FromBytes;

use crate::abi::input::OpenIn;
use crate::abi::opcode;
use crate::errno::Errno;
use crate::request::Request;
use crate::service::{Answer, Outcome};

/// How a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    /// 0, or an errno.
    pub(crate) error: i32,
    /// The node id of a new name, or how many bytes were written.
    pub(crate) detail: u64,
}

#[derive(Debug, Default)]
struct Noted {
    /// The first and the last batch that the request has made.
    batches: Option<(u64, u64)>,
    ending: Option<Ending>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Execution(Mutex<Noted>);

thread_local! {
    /// What the calling thread executes.
    static CURRENT: RefCell<Option<Arc<Execution>>> = const { RefCell::new(None) };
}

impl Execution {
    /// Runs `execute`, and notes what the calling thread does meanwhile.
    pub(crate) fn during<T>(self: &Arc<Self>, execute: impl FnOnce() -> T) -> T {
        /// Also where `execute` panics.
        struct Restore(Option<Arc<Execution>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(Arc::clone(self))));
        execute()
    }

    /// What a state that has all batches up to `sequence` has of this request. `None`: nothing.
    /// `Some(None)`: it is not known.
    #[expect(clippy::option_option, reason = "nothing, or something that may be known")]
    pub(crate) fn in_state(&self, sequence: u64) -> Option<Option<Ending>> {
        let noted = self.noted();
        let (first, last) = noted.batches?;
        (first <= sequence).then_some(noted.ending.filter(|_| last <= sequence))
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the calling thread executes, for another thread that does it later.
pub(crate) fn current() -> Option<Arc<Execution>> {
    CURRENT.with_borrow(Clone::clone)
}

/// The calling thread makes batch `sequence`.
pub(crate) fn batch(sequence: u64) {
    CURRENT.with_borrow(|current| {
        if let Some(execution) = current {
            let mut noted = execution.noted();
            let first = noted.batches.map_or(sequence, |(first, _)| first);
            noted.batches = Some((first, sequence));
        }
    });
}

/// The calling thread has made all changes of the request.
pub(crate) fn ended(request: &Request<'_>, outcome: Outcome, answer: &[u8]) {
    CURRENT.with_borrow(|current| {
        let Some(execution) = current else { return };
        let ending = match outcome {
            Ok(Answer::Ready) => Ending { error: 0, detail: detail(request, answer) },
            // Another thread executes it.
            Ok(Answer::Silent | Answer::Later) => return,
            Err(Errno(error)) => Ending { error, detail: 0 },
        };
        execution.noted().ending = Some(ending);
    });
}

fn detail(request: &Request<'_>, answer: &[u8]) -> u64 {
    let narrow = || u32::read_from_prefix(answer).map_or(0, |(length, _)| length.into());
    match request.header.opcode {
        opcode::WRITE | opcode::COPY_FILE_RANGE => narrow(),
        // An entry begins with the node id.
        _ => u64::read_from_prefix(answer).map_or(0, |(first, _)| first),
    }
}

/// Whether a request changes the volume, so that a second execution is not as good as the first.
pub(crate) fn is_change(request: &Request<'_>) -> bool {
    match request.header.opcode {
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::CREATE
        | opcode::WRITE
        | opcode::SETATTR
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64 => true,
        opcode::OPEN => truncates(request),
        _ => false,
    }
}

/// Whether a request opens a file and makes it empty.
fn truncates(request: &Request<'_>) -> bool {
    let wanted = request.arguments().take::<OpenIn>();
    wanted.is_ok_and(|open| open.flags as i32 & libc::O_TRUNC != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_in_a_state_with_all_its_batches() {
        let execution = Arc::new(Execution::default());
        batch(1);
        assert_eq!(execution.in_state(9), None, "that was none of its batches");
        execution.during(|| batch(4));
        assert_eq!((execution.in_state(3), execution.in_state(4)), (None, Some(None)));
        execution.during(|| batch(6));
        let ending = Ending { error: 0, detail: 7 };
        execution.noted().ending = Some(ending);
        assert_eq!(execution.in_state(5), Some(None), "half of it");
        assert_eq!(execution.in_state(6), Some(Some(ending)));
    }
}
