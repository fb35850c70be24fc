//! Mounts whose daemon has ended.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::failure::{Exit, Failure};

/// Whether a call on a mount returns this error because the daemon has ended. A request that the
/// daemon had received over io_uring gets ECANCELED.
pub fn is_daemon_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
    )
}

/// The failure of an access to `path`, with advice of its own for "Transport endpoint is not
/// connected".
pub fn stale_or_host(error: &io::Error, path: &Path) -> Failure {
    if is_daemon_gone(error) {
        return Failure::new(
            Exit::CannotMount,
            "the daemon of this mount is gone",
            path.display(),
            format!("clear it with 'steadfast umount {}', then mount again", path.display()),
        );
    }
    Failure::host(error, "open", path)
}
