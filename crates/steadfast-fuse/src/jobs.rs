//! The jobs of the control thread, and the requests that wait for their answers.

use steadfast::fs::SeekTo;

use crate::errno::Errno;
use crate::ioctl::TrimArgument;
use crate::log::log_error;
use crate::metrics::Timing;
use crate::open::Handle;
use crate::service::Return;

/// A request that waits for its answer. A ticket that is dropped without an answer returns EIO, so
/// no caller hangs.
pub(crate) struct Ticket {
    back: Return,
    unique: u64,
    answered: bool,
    timing: Option<Timing>,
}

impl Ticket {
    pub(crate) fn new(back: Return, unique: u64, timing: Option<Timing>) -> Ticket {
        Ticket { back, unique, answered: false, timing }
    }

    pub(crate) fn answer(mut self, result: Result<&[u8], Errno>) {
        self.answered = true;
        if let Err(error) = self.back.answer(self.unique, result) {
            log_error!("cannot answer a command: {error}");
        }
        if let Some(timing) = self.timing.take() {
            timing.end(result.err());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.back.answer(self.unique, Err(Errno(libc::EIO)));
        }
    }
}

/// Commands that arrive by ioctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Transact,
    Checkpoint,
    Rollback { force: bool },
    SnapshotCreate { name: String },
    SnapshotDelete { name: String },
    SnapshotRollback { name: String, force: bool, destroy_newer: bool },
    Grow { size: u64 },
}

/// Changes of the lease of the volume, see [`crate::filesystem::lease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseJob {
    Begin {
        handle: u64,
        process: u32,
    },
    Commit {
        handle: u64,
    },
    Abort {
        handle: u64,
    },
    /// The descriptor is closed.
    Lost {
        handle: u64,
    },
}

/// Work for the control thread.
pub(crate) enum Job {
    Command {
        tickets: Vec<Ticket>,
        command: Command,
    },
    /// A command from this process.
    Own {
        command: Command,
        done: std::sync::mpsc::Sender<Result<(), Errno>>,
    },
    Seek {
        ticket: Ticket,
        nodeid: u64,
        offset: u64,
        to: SeekTo,
    },
    /// A write that waits for its admission, see [`crate::admission`].
    Admit {
        ticket: Ticket,
        nodeid: u64,
        handle: Handle,
    },
    /// The room of the volume has changed.
    Room,
    Lease {
        ticket: Option<Ticket>,
        job: LeaseJob,
    },
    /// One step of a trim; the next one comes after all other jobs.
    Trim {
        ticket: Ticket,
        trim: Trim,
    },
    /// The mount is about to be detached from open files: saves the data that they have written.
    Rescue {
        done: std::sync::mpsc::Sender<()>,
    },
    Stop,
}

/// A trim between two steps.
pub(crate) struct Trim {
    pub range: TrimArgument,
    /// Where the next step begins; `None` before the first one.
    pub next: Option<u64>,
    pub discarded: u64,
}

impl Trim {
    pub(crate) fn new(range: &TrimArgument) -> Trim {
        Trim { range: *range, next: None, discarded: 0 }
    }
}
