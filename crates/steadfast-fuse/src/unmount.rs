//! The end of a mount: by umount(2), and at once for open files at the second request.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::jobs::Job;
use crate::log::log_warning;
use crate::mount::Mount;
use crate::pull::Connection;

/// How long an unmount waits for the pages of open files.
const RESCUE_TIME: Duration = Duration::from_secs(30);

/// Ends a [`Session`](crate::Session) from another thread. Cheap to clone. Has no effect after the
/// session has ended.
#[derive(Debug, Clone)]
pub struct UnmountHandle(pub(crate) Arc<End>);

#[derive(Debug)]
pub(crate) struct End {
    mount: Mount,
    connection: Connection,
    jobs: Mutex<Sender<Job>>,
    detached: AtomicBool,
    /// Open files were cut off, so the kernel could not send their last state.
    cut: AtomicBool,
    over: AtomicBool,
}

impl UnmountHandle {
    pub(crate) fn new(mount: Mount, connection: Connection, jobs: Sender<Job>) -> UnmountHandle {
        UnmountHandle(Arc::new(End {
            mount,
            connection,
            jobs: Mutex::new(jobs),
            detached: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }))
    }

    /// Unmounts. While files are open, the mount only leaves the directory tree, and is served
    /// until they are closed. A second call then ends it immediately, after the kernel has sent the
    /// written data of those files.
    ///
    /// # Errors
    /// Those of umount(2).
    pub fn unmount(&self) -> io::Result<()> {
        let end = &*self.0;
        if end.is_over() {
            return Ok(());
        }
        if end.is_detached() {
            end.cut_off();
            return Ok(());
        }
        match end.mount.detach(false) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                end.mount.detach(true)?;
                end.detached.store(true, Ordering::Release);
                log_warning!("files are open; unmounting for good when they are closed");
                Ok(())
            }
            other => other,
        }
    }

    /// Ends the mount at once: the kernel answers everything with an error from now on, and what it
    /// has not sent is lost. For a volume that this process may not change any more.
    pub fn abandon(&self) {
        let end = &*self.0;
        if end.is_over() {
            return;
        }
        end.cut.store(true, Ordering::Release);
        // First, so that nothing waits for requests that will not be answered.
        if !end.connection.abort() {
            log_warning!("cannot cut the mount off from open files; it ends when they are closed");
        }
        if let Err(error) = end.mount.detach(true) {
            log_warning!("cannot take the mount out of the directory tree: {error}");
        }
    }
}

impl End {
    /// The workers have ended. Returns whether open files were cut off.
    pub(crate) fn is_over_now(&self) -> bool {
        self.over.store(true, Ordering::Release);
        self.cut.load(Ordering::Acquire)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, job: Job) {
        // Fails only if the control thread has ended; then the job is not needed.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }

    /// Jobs go there from now on.
    pub(crate) fn set_jobs(&self, jobs: Sender<Job>) {
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = jobs;
    }

    /// The workers have ended: nothing must wait for an answer any more.
    pub(crate) fn end_connection(&self) {
        self.connection.abort();
    }

    fn cut_off(&self) {
        self.cut.store(true, Ordering::Release);
        let (done, rescued) = mpsc::channel();
        self.send(Job::Rescue { done });
        let _ = rescued.recv_timeout(RESCUE_TIME);
        if !self.connection.abort() {
            log_warning!("cannot cut the mount off from open files; it ends when they are closed");
        }
    }
}
