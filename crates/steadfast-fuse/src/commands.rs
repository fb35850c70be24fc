//! Commands to a mount from its own process, which must not wait for system calls on its own mount.

use std::io;
use std::sync::mpsc;

use crate::jobs::{Command, Job};
use crate::unmount::UnmountHandle;

/// Sends commands to a [`Session`](crate::Session). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Commands(pub(crate) UnmountHandle);

impl Commands {
    /// Like [`ioctl::snapshot_create`](crate::ioctl::snapshot_create).
    ///
    /// # Errors
    /// As for that function; ENOTCONN if the mount has ended.
    pub fn snapshot_create(&self, name: &str) -> io::Result<()> {
        self.give(Command::SnapshotCreate { name: name.to_owned() })
    }

    /// Like [`ioctl::snapshot_delete`](crate::ioctl::snapshot_delete).
    ///
    /// # Errors
    /// As for that function; ENOTCONN if the mount has ended.
    pub fn snapshot_delete(&self, name: &str) -> io::Result<()> {
        self.give(Command::SnapshotDelete { name: name.to_owned() })
    }

    fn give(&self, command: Command) -> io::Result<()> {
        let (done, answer) = mpsc::channel();
        self.0.0.send(Job::Own { command, done });
        // The control thread ends with the mount and drops jobs that it has not executed.
        let result = answer.recv().map_err(|_| io::Error::from_raw_os_error(libc::ENOTCONN))?;
        result.map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }
}
