//! Failures of commands on snapshots: advice about snapshots in place of files.

use crate::failure::{Exit, Failure};

/// Gives advice about snapshots if the error's own advice is about files.
pub fn explain(mut failure: Failure, error: steadfast::Error) -> Failure {
    use steadfast::Error::*;
    let (what, advice) = match error {
        NotFound => ("there is no snapshot of this name", "see 'steadfast snapshot list'"),
        AlreadyExists => ("there is a snapshot of this name already", "choose another name"),
        InvalidName | NameTooLong => (
            "no name for a snapshot",
            "use 1 to 63 bytes of UTF-8 without '/', other than '.' and '..'",
        ),
        NoSpace => (
            "no room for a snapshot: removing files later needs some",
            "remove files or older snapshots, then try again",
        ),
        NewerSnapshots => {
            ("there are newer snapshots", "destroy them with --force, or delete them first")
        }
        _ => return failure,
    };
    failure.what = what.into();
    failure.advice = advice.into();
    failure
}

/// Explains a failure on a mounted volume by the error number of the ioctl.
pub fn explain_live(failure: Failure, error: &std::io::Error, place: &str) -> Failure {
    let known = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOENT) => steadfast::Error::NotFound,
        Some(rustix::io::Errno::EXIST) => steadfast::Error::AlreadyExists,
        Some(rustix::io::Errno::INVAL) => steadfast::Error::InvalidName,
        Some(rustix::io::Errno::NAMETOOLONG) => steadfast::Error::NameTooLong,
        Some(rustix::io::Errno::NOSPC) => steadfast::Error::NoSpace,
        Some(rustix::io::Errno::NOTEMPTY) => steadfast::Error::NewerSnapshots,
        Some(rustix::io::Errno::BUSY) => {
            return Failure::new(
                Exit::Busy,
                "files are open for writing",
                place,
                "close them, or drop what they hold with --force",
            );
        }
        _ => return failure,
    };
    explain(Failure::core(known, place), known)
}
