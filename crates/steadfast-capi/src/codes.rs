//! Error numbers. They are those of Linux on every system, so a program does not depend on the
//! system that it was built for.

use core::ffi::{CStr, c_char, c_int};

use engine::Error;
use steadfast_media::ErrorClass;

/// Not allowed on this object.
pub const SF_EPERM: c_int = 1;
/// No such file or directory.
pub const SF_ENOENT: c_int = 2;
/// The medium failed, or data does not match its checksum.
pub const SF_EIO: c_int = 5;
/// No data, or no file, at or after this offset.
pub const SF_ENXIO: c_int = 6;
/// A value is too long, or a structure is newer than the library.
pub const SF_E2BIG: c_int = 7;
/// The file is not open for this operation.
pub const SF_EBADF: c_int = 9;
/// Temporary failure: try again.
pub const SF_EAGAIN: c_int = 11;
/// Memory could not be allocated.
pub const SF_ENOMEM: c_int = 12;
/// No permission for an image file or device.
pub const SF_EACCES: c_int = 13;
/// A pointer that must not be NULL is NULL.
pub const SF_EFAULT: c_int = 14;
/// In use: files are open, or another process has locked the image.
pub const SF_EBUSY: c_int = 16;
/// The name exists already.
pub const SF_EEXIST: c_int = 17;
/// The files are on different volumes.
pub const SF_EXDEV: c_int = 18;
/// The device has been removed.
pub const SF_ENODEV: c_int = 19;
/// The path must lead to a directory.
pub const SF_ENOTDIR: c_int = 20;
/// The operation does not work on directories.
pub const SF_EISDIR: c_int = 21;
/// An argument is out of range.
pub const SF_EINVAL: c_int = 22;
/// The file would be too large.
pub const SF_EFBIG: c_int = 27;
/// No space left. Delete files, or commit, or roll back.
pub const SF_ENOSPC: c_int = 28;
/// The volume is read-only, or became read-only after a failure.
pub const SF_EROFS: c_int = 30;
/// Too many hard links.
pub const SF_EMLINK: c_int = 31;
/// The buffer is too small for the value.
pub const SF_ERANGE: c_int = 34;
/// A function that the library has called calls the library (without an operating system).
pub const SF_EDEADLK: c_int = 35;
/// A name is too long.
pub const SF_ENAMETOOLONG: c_int = 36;
/// The directory is not empty, or newer snapshots exist.
pub const SF_ENOTEMPTY: c_int = 39;
/// Too many symbolic links on a path.
pub const SF_ELOOP: c_int = 40;
/// No such extended attribute.
pub const SF_ENODATA: c_int = 61;
/// The medium is smaller than its description says, or than the volume on it.
pub const SF_EOVERFLOW: c_int = 75;
/// Not supported by this build, or the volume has a newer format.
pub const SF_EOPNOTSUPP: c_int = 95;
/// The arena is too small to make or open this volume (without an operating system).
pub const SF_ENOBUFS: c_int = 105;
/// The file does not exist any more: it was deleted, or a rollback went back to before its
/// creation.
pub const SF_ESTALE: c_int = 116;
/// Metadata is damaged.
pub const SF_EUCLEAN: c_int = 117;
/// Not a Steadfast volume.
pub const SF_EMEDIUMTYPE: c_int = 124;
/// An internal error of the library. The volume can only be closed. Acknowledged data is safe on
/// the medium.
pub const SF_ENOTRECOVERABLE: c_int = 131;

/// Every code with its text.
const TEXTS: &[(c_int, &CStr)] = &[
    (0, c"success"),
    (SF_EPERM, c"operation not permitted"),
    (SF_ENOENT, c"no such file or directory"),
    (SF_EIO, c"input/output error or damaged data"),
    (SF_ENXIO, c"nothing at this offset"),
    (SF_E2BIG, c"value too long"),
    (SF_EBADF, c"file not open for this"),
    (SF_EAGAIN, c"try again"),
    (SF_ENOMEM, c"out of memory"),
    (SF_EACCES, c"permission denied"),
    (SF_EFAULT, c"a pointer is NULL"),
    (SF_EBUSY, c"in use"),
    (SF_EEXIST, c"exists already"),
    (SF_EXDEV, c"different volumes"),
    (SF_ENODEV, c"the medium has gone"),
    (SF_ENOTDIR, c"not a directory"),
    (SF_EISDIR, c"is a directory"),
    (SF_EINVAL, c"invalid argument"),
    (SF_EFBIG, c"file too large"),
    (SF_ENOSPC, c"no space left on the volume"),
    (SF_EROFS, c"read-only volume"),
    (SF_EMLINK, c"too many links"),
    (SF_ERANGE, c"buffer too small"),
    (SF_EDEADLK, c"called from a function that the library has called"),
    (SF_ENAMETOOLONG, c"name too long"),
    (SF_ENOTEMPTY, c"not empty"),
    (SF_ELOOP, c"too many levels of symbolic links"),
    (SF_ENODATA, c"no such extended attribute"),
    (SF_EOVERFLOW, c"the medium is too small"),
    (SF_EOPNOTSUPP, c"not supported"),
    (SF_ENOBUFS, c"the arena is too small"),
    (SF_ESTALE, c"the file is gone"),
    (SF_EUCLEAN, c"damaged metadata"),
    (SF_EMEDIUMTYPE, c"not a Steadfast volume"),
    (SF_ENOTRECOVERABLE, c"internal error"),
];

/// The positive error number for an error of the core.
pub fn of(error: &Error) -> c_int {
    use Error::*;
    match error {
        NotFound => SF_ENOENT,
        AlreadyExists => SF_EEXIST,
        NotADirectory => SF_ENOTDIR,
        IsADirectory => SF_EISDIR,
        DirectoryNotEmpty | NewerSnapshots => SF_ENOTEMPTY,
        NotARegularFile | InvalidName | InvalidArgument(_) | MoveIntoSelf | BadBlockSize(_) => {
            SF_EINVAL
        }
        NameTooLong => SF_ENAMETOOLONG,
        ValueTooLong => SF_E2BIG,
        FileTooLarge => SF_EFBIG,
        TooManyLinks => SF_EMLINK,
        SymlinkLoop => SF_ELOOP,
        NoAttribute => SF_ENODATA,
        BufferTooSmall => SF_ERANGE,
        NoSuchOffset => SF_ENXIO,
        Stale(_) => SF_ESTALE,
        NotPermitted => SF_EPERM,
        Unsupported(_)
        | UnsupportedVersion(_)
        | UnsupportedFeatures(_)
        | ReadOnlyFeatures(_)
        | UnsupportedParameter(_) => SF_EOPNOTSUPP,
        NoSpace | DirectoryFull | VolumeTooSmall { .. } => SF_ENOSPC,
        ReadOnly | Poisoned(_) => SF_EROFS,
        Busy | Held => SF_EBUSY,
        OutOfMemory => SF_ENOMEM,
        // However the medium names it: no room below, or a quota.
        Medium(error) if error.class == ErrorClass::Full => SF_ENOSPC,
        // The error number from the caller's callback is more precise than a mapped one.
        Medium(error) if error.os_error > 0 => error.os_error,
        CorruptMetadata { .. }
        | CorruptLog { .. }
        | SuperblockDamaged
        | NoMetaroot
        | NewerStateLost(_) => SF_EUCLEAN,
        Truncated { .. } => SF_EOVERFLOW,
        NotSteadfast => SF_EMEDIUMTYPE,
        _ => SF_EIO,
    }
}

/// Returns the meaning of an error number, which may be negative (as functions return it) or
/// positive. Never NULL; do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn sf_strerror(code: c_int) -> *const c_char {
    let number = code.checked_abs().unwrap_or(c_int::MAX);
    let known = TEXTS.iter().find(|(known, _)| *known == number);
    known.map_or(c"unknown error", |(_, text)| *text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_media::{MediumError, MediumOperation};

    /// Each cause that more room removes has one number.
    #[test]
    fn no_room_is_one_number() {
        let below = |class, os_error| {
            let (operation, offset, length) = (MediumOperation::Write, 0, 4096);
            Error::Medium(MediumError { operation, offset, length, class, os_error })
        };
        for error in [
            Error::NoSpace,
            Error::DirectoryFull,
            Error::VolumeTooSmall { size: 1, needed: 2 },
            below(ErrorClass::Full, 0),
            below(ErrorClass::Full, SF_ENOSPC),
            // EDQUOT, which is no number of this interface.
            below(ErrorClass::Full, 122),
        ] {
            assert_eq!(of(&error), SF_ENOSPC, "{error}");
        }
        assert_eq!(of(&below(ErrorClass::Permanent, 0)), SF_EIO);
        assert_eq!(of(&below(ErrorClass::Gone, SF_ENODEV)), SF_ENODEV);
    }
}
