//! Commands to a mount from inside its own process, which must not wait for its own system calls.

use std::io;
use std::sync::mpsc;

use crate::control::{Command, Job};
use crate::session::UnmountHandle;

/// Gives commands to a [`Session`](crate::Session). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Commands(pub(crate) UnmountHandle);

impl Commands {
    /// As [`ioctl::snapshot_create`](crate::ioctl::snapshot_create).
    ///
    /// # Errors
    /// As there; ENOTCONN where the mount has ended.
    pub fn snapshot_create(&self, name: &str) -> io::Result<()> {
        self.give(Command::SnapshotCreate { name: name.to_owned() })
    }

    /// As [`ioctl::snapshot_delete`](crate::ioctl::snapshot_delete).
    ///
    /// # Errors
    /// As there; ENOTCONN where the mount has ended.
    pub fn snapshot_delete(&self, name: &str) -> io::Result<()> {
        self.give(Command::SnapshotDelete { name: name.to_owned() })
    }

    fn give(&self, command: Command) -> io::Result<()> {
        let (done, answer) = mpsc::channel();
        self.0.0.send(Job::Own { command, done });
        // The control thread ends with the mount, and drops what it has not executed.
        let result = answer.recv().map_err(|_| io::Error::from_raw_os_error(libc::ENOTCONN))?;
        result.map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }
}
