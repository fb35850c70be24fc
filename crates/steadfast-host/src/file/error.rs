//! Reasons why a file or device cannot be a medium, and the meaning of errors of single requests.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use steadfast_media::{ErrorClass, MediumError, MediumOperation};

/// The process that holds the lock of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// Process name, if it can be read.
    pub name: Option<String>,
}

/// Reason why a file or device was not opened or created, as a one-line message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    #[error("{}: no such file or device", .0.display())]
    NotFound(PathBuf),
    /// The file already exists.
    #[error("{}: exists already; choose another name or remove it", .0.display())]
    AlreadyExists(PathBuf),
    /// Permission denied.
    #[error("{}: permission denied; it must be readable{}", path.display(), if *writing { " and writable" } else { "" })]
    PermissionDenied {
        /// The file.
        path: PathBuf,
        /// Whether it was opened for writing.
        writing: bool,
    },
    /// The file or device is write-protected.
    #[error("{}: is write-protected; open it read-only", .0.display())]
    WriteProtected(PathBuf),
    /// Another process uses the file.
    #[error("{}: in use by another process{}", path.display(), describe(owner.as_ref()))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process, if known.
        owner: Option<Owner>,
    },
    /// The block device is mounted, part of another device, or open elsewhere.
    #[error("{}: in use by a mount, another device or another process", .0.display())]
    DeviceInUse(PathBuf),
    /// The file or device below the block device is in use under its own name.
    #[error("{}: {}, which it shows, is in use by another process{}", path.display(), below.display(), describe(owner.as_ref()))]
    InUseBelow {
        /// The device.
        path: PathBuf,
        /// The file or device below it.
        below: PathBuf,
        /// The process, if known.
        owner: Option<Owner>,
    },
    /// The part of it that was asked for is none.
    #[error("{}: {what}", path.display())]
    Window {
        /// The file or device.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is a {what}; a regular file or a block device is needed", path.display())]
    NotAMedium {
        /// The file.
        path: PathBuf,
        /// Its actual type.
        what: &'static str,
    },
    /// The file system does not support O_DIRECT.
    #[error("{}: does not support direct I/O; open it without", .0.display())]
    DirectUnsupported(PathBuf),
    /// The requested atomic unit is not possible here.
    #[error("{}: atomic unit of {unit} bytes is not a power of two from {min} to {max}", path.display())]
    AtomicUnit {
        /// The file.
        path: PathBuf,
        /// The requested unit, in bytes.
        unit: u32,
        /// The smallest possible unit, in bytes.
        min: u32,
        /// The largest unit that can be guaranteed, in bytes.
        max: u32,
    },
    /// No file of this size can exist here.
    #[error("{}: cannot make a file of {size} bytes here: {source}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The requested size, in bytes.
        size: u64,
        /// The system's error.
        source: io::Error,
    },
    /// Any other error of the system.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action: "open", "lock", …
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn describe(owner: Option<&Owner>) -> String {
    match owner {
        Some(Owner { pid, name: Some(name) }) => format!(" (pid {pid}, {name})"),
        Some(Owner { pid, name: None }) => format!(" (pid {pid})"),
        None => String::new(),
    }
}

/// Whether the same request may succeed later.
pub(super) fn class(errno: Errno) -> ErrorClass {
    match errno {
        // Overload is temporary.
        Errno::AGAIN
        | Errno::INTR
        | Errno::TIMEDOUT
        | Errno::NOMEM
        | Errno::NOBUFS
        | Errno::BUSY => ErrorClass::Transient,
        Errno::NOSPC | Errno::DQUOT => ErrorClass::Full,
        Errno::NODEV
        | Errno::NXIO
        | Errno::NOMEDIUM
        | Errno::SHUTDOWN
        | Errno::NOTCONN
        | Errno::NOLINK
        | Errno::STALE
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH => ErrorClass::Gone,
        _ => ErrorClass::Permanent,
    }
}

/// Converts an errno to the error of one request.
pub(super) fn medium_error(
    operation: MediumOperation,
    offset: u64,
    length: u64,
    errno: Errno,
) -> MediumError {
    MediumError { operation, offset, length, class: class(errno), os_error: errno.raw_os_error() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_one_clear_line() {
        let path = PathBuf::from("a.img");
        let owner = Some(Owner { pid: 7, name: Some("steadfast".into()) });
        let in_use = OpenError::InUse { path: path.clone(), owner };
        assert_eq!(in_use.to_string(), "a.img: in use by another process (pid 7, steadfast)");
        let unknown = OpenError::InUse { path: path.clone(), owner: None };
        assert_eq!(unknown.to_string(), "a.img: in use by another process");
        let denied = OpenError::PermissionDenied { path, writing: true };
        assert_eq!(
            denied.to_string(),
            "a.img: permission denied; it must be readable and writable"
        );
    }

    #[test]
    fn errno_has_a_class() {
        assert_eq!(class(Errno::IO), ErrorClass::Permanent);
        assert_eq!(class(Errno::NOSPC), ErrorClass::Full);
        assert_eq!(class(Errno::NODEV), ErrorClass::Gone);
    }
}
