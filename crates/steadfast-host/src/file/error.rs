//! Why a file or device can not be used as a medium, and what the errors of single requests mean.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use steadfast_media::{ErrorClass, MediumError, MediumOperation};

/// The process that has a file locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Its name, where it can be read.
    pub name: Option<String>,
}

/// Why a file or device was not opened or created. One line for people each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing has this name.
    #[error("{}: no such file or device", .0.display())]
    NotFound(PathBuf),
    /// A file of this name exists already.
    #[error("{}: exists already; choose another name or remove it", .0.display())]
    AlreadyExists(PathBuf),
    /// Not permitted.
    #[error("{}: permission denied; it must be readable{}", path.display(), if *writing { " and writable" } else { "" })]
    PermissionDenied {
        /// The file.
        path: PathBuf,
        /// Whether it was to be opened for writing.
        writing: bool,
    },
    /// The file or device can not be written to.
    #[error("{}: is write-protected; open it read-only", .0.display())]
    WriteProtected(PathBuf),
    /// Another process uses it.
    #[error("{}: in use by another process{}", path.display(), describe(owner.as_ref()))]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who, where it is known.
        owner: Option<Owner>,
    },
    /// The block device is mounted, part of another device or open elsewhere.
    #[error("{}: in use by a mount, another device or another process", .0.display())]
    DeviceInUse(PathBuf),
    /// What the block device shows is in use under its own name.
    #[error("{}: {}, which it shows, is in use by another process{}", path.display(), below.display(), describe(owner.as_ref()))]
    InUseBelow {
        /// The device.
        path: PathBuf,
        /// The file or device below it.
        below: PathBuf,
        /// Who, where it is known.
        owner: Option<Owner>,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is a {what}; a regular file or a block device is needed", path.display())]
    NotAMedium {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file system below does not know O_DIRECT.
    #[error("{}: does not support direct I/O; open it without", .0.display())]
    DirectUnsupported(PathBuf),
    /// The atomic unit that was asked for is not possible here.
    #[error("{}: atomic unit of {unit} bytes is not a power of two from {min} to {max}", path.display())]
    AtomicUnit {
        /// The file.
        path: PathBuf,
        /// What was asked for, bytes.
        unit: u32,
        /// The smallest possible, bytes.
        min: u32,
        /// The largest that can be promised, bytes.
        max: u32,
    },
    /// No file can have this size here.
    #[error("{}: cannot make a file of {size} bytes here: {source}", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// What was asked for, bytes.
        size: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else that the system says.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "open", "lock", …
        action: &'static str,
        /// What the system said.
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
        // Overloads pass.
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

/// The error of one request.
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
