//! Error numbers: only this module converts an error of the core to an errno.

use steadfast::Error;
use steadfast_media::ErrorClass;

/// A positive error number of the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(errno(&error))
    }
}

/// The error number that a system call returns for `error`.
pub fn errno(error: &Error) -> i32 {
    use Error::*;
    match error {
        NotFound => libc::ENOENT,
        AlreadyExists => libc::EEXIST,
        NotADirectory => libc::ENOTDIR,
        IsADirectory => libc::EISDIR,
        DirectoryNotEmpty | NewerSnapshots => libc::ENOTEMPTY,
        NotARegularFile | InvalidName | InvalidArgument(_) | MoveIntoSelf => libc::EINVAL,
        NameTooLong => libc::ENAMETOOLONG,
        // An attribute value. The caller of this function handles a symbolic link that is too long
        // (ENAMETOOLONG).
        ValueTooLong => libc::E2BIG,
        FileTooLarge => libc::EFBIG,
        TooManyLinks => libc::EMLINK,
        NoAttribute => libc::ENODATA,
        BufferTooSmall => libc::ERANGE,
        NoSuchOffset => libc::ENXIO,
        DirectoryFull => libc::ENOSPC,
        Stale(_) => libc::ESTALE,
        NotPermitted => libc::EPERM,
        Unsupported(_) => libc::EOPNOTSUPP,
        NoSpace => libc::ENOSPC,
        ReadOnly | Poisoned(_) => libc::EROFS,
        Medium(error) if error.class == ErrorClass::Full => libc::ENOSPC,
        Busy => libc::EBUSY,
        Held => libc::EALREADY,
        OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}
