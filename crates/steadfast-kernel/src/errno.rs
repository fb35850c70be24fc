//! Error numbers of Linux: only this module converts an error of the core to one.

use core::ffi::c_int;

use steadfast::Error;
use steadfast_media::ErrorClass;

pub(crate) const EPERM: c_int = 1;
pub(crate) const ENOENT: c_int = 2;
pub(crate) const EIO: c_int = 5;
pub(crate) const ENXIO: c_int = 6;
pub(crate) const E2BIG: c_int = 7;
pub(crate) const ENOMEM: c_int = 12;
pub(crate) const EBUSY: c_int = 16;
pub(crate) const EEXIST: c_int = 17;
pub(crate) const ENODEV: c_int = 19;
pub(crate) const ENOTDIR: c_int = 20;
pub(crate) const EISDIR: c_int = 21;
pub(crate) const EINVAL: c_int = 22;
pub(crate) const EFBIG: c_int = 27;
pub(crate) const ENOSPC: c_int = 28;
pub(crate) const EROFS: c_int = 30;
pub(crate) const EMLINK: c_int = 31;
pub(crate) const ERANGE: c_int = 34;
pub(crate) const ENAMETOOLONG: c_int = 36;
pub(crate) const ENOTEMPTY: c_int = 39;
pub(crate) const ENODATA: c_int = 61;
pub(crate) const EOPNOTSUPP: c_int = 95;
pub(crate) const EALREADY: c_int = 114;
pub(crate) const ESTALE: c_int = 116;

/// The error number that a system call returns for `error`, the same as on a FUSE mount.
pub fn errno(error: &Error) -> c_int {
    use Error::*;
    match error {
        NotFound => ENOENT,
        AlreadyExists => EEXIST,
        NotADirectory => ENOTDIR,
        IsADirectory => EISDIR,
        DirectoryNotEmpty | NewerSnapshots => ENOTEMPTY,
        NotARegularFile | InvalidName | InvalidArgument(_) | MoveIntoSelf => EINVAL,
        NameTooLong => ENAMETOOLONG,
        ValueTooLong => E2BIG,
        FileTooLarge => EFBIG,
        TooManyLinks => EMLINK,
        NoAttribute => ENODATA,
        BufferTooSmall => ERANGE,
        NoSuchOffset => ENXIO,
        DirectoryFull | NoSpace => ENOSPC,
        Stale(_) => ESTALE,
        NotPermitted => EPERM,
        Unsupported(_) => EOPNOTSUPP,
        ReadOnly | Poisoned(_) => EROFS,
        Medium(error) if error.class == ErrorClass::Full => ENOSPC,
        Busy => EBUSY,
        Held => EALREADY,
        OutOfMemory => ENOMEM,
        // Opening: another file system, or one that this module cannot mount.
        NotSteadfast
        | UnsupportedVersion(_)
        | UnsupportedFeatures(_)
        | UnsupportedParameter(_)
        | BadBlockSize(_)
        | Truncated { .. } => EINVAL,
        ReadOnlyFeatures(_) => EROFS,
        _ => EIO,
    }
}

/// 0, or the negative error number.
pub fn code(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => -errno(&error),
    }
}
