//! The result of a check: passed, or the reason why it stopped.

use std::fmt::Debug;
use std::panic::Location;

use rustix::io::Errno;

/// The return value of a check.
pub type Verdict = Result<(), Stop>;

/// Why a check ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The file system violated an expectation. The text has the line in the suite, the expected
    /// and the actual result.
    Failed(String),
    /// The check cannot run here: not root, or the system lacks something that the file system is
    /// not responsible for.
    Skipped(String),
    /// The file system does not support an optional operation. A failure if all operations are
    /// required.
    Unsupported(String),
}

impl Stop {
    /// A failure at the caller's line.
    #[track_caller]
    pub fn failed(text: impl AsRef<str>) -> Stop {
        let place = Location::caller();
        let file = place.file().rsplit('/').next().unwrap_or_default();
        Stop::Failed(format!("{file}:{}: {}", place.line(), text.as_ref()))
    }

    /// The check cannot run here.
    pub fn skipped(text: impl Into<String>) -> Stop {
        Stop::Skipped(text.into())
    }
}

impl From<Errno> for Stop {
    #[track_caller]
    fn from(error: Errno) -> Stop {
        Stop::failed(format!("unexpected {}", name(error)))
    }
}

impl From<std::io::Error> for Stop {
    #[track_caller]
    fn from(error: std::io::Error) -> Stop {
        match error.raw_os_error() {
            Some(code) => Stop::from(Errno::from_raw_os_error(code)),
            None => Stop::failed(format!("unexpected error: {error}")),
        }
    }
}

/// The call must fail with exactly this error.
#[track_caller]
pub fn fails<T>(result: Result<T, Errno>, expected: Errno) -> Verdict {
    fails_with(result, &[expected])
}

/// The call must fail with one of these errors, as POSIX permits several.
#[track_caller]
pub fn fails_with<T>(result: Result<T, Errno>, expected: &[Errno]) -> Verdict {
    let wanted = || expected.iter().map(|&errno| name(errno)).collect::<Vec<_>>().join(" or ");
    match result {
        Err(error) if expected.contains(&error) => Ok(()),
        Err(error) => Err(Stop::failed(format!("expected {}, got {}", wanted(), name(error)))),
        Ok(_) => Err(Stop::failed(format!("expected {}, but the call succeeded", wanted()))),
    }
}

/// Both values must be equal.
#[track_caller]
pub fn same<T: PartialEq + Debug>(what: &str, got: T, expected: T) -> Verdict {
    if got == expected {
        return Ok(());
    }
    Err(Stop::failed(format!("{what}: expected {}, got {}", brief(&expected), brief(&got))))
}

/// The condition must hold.
#[track_caller]
pub fn holds(condition: bool, what: &str) -> Verdict {
    if condition { Ok(()) } else { Err(Stop::failed(format!("does not hold: {what}"))) }
}

/// Turns "not supported by this file system" into [`Stop::Unsupported`], and any other error into a
/// failure.
#[track_caller]
pub fn supported<T>(what: &str, result: Result<T, Errno>) -> Result<T, Stop> {
    match result {
        Ok(value) => Ok(value),
        Err(error) if error == Errno::OPNOTSUPP || error == Errno::NOSYS => {
            Err(Stop::Unsupported(format!("{what}: {}", name(error))))
        }
        Err(error) => Err(Stop::failed(format!("{what}: unexpected {}", name(error)))),
    }
}

/// Debug form, truncated to less than a screen.
fn brief(value: &impl Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 160 {
        let cut = (0..=160).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// The name of an error, as in the manuals.
pub fn name(error: Errno) -> String {
    let known = match error {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::TOOBIG => "E2BIG",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::FAULT => "EFAULT",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::XDEV => "EXDEV",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::NOTTY => "ENOTTY",
        Errno::TXTBSY => "ETXTBSY",
        Errno::FBIG => "EFBIG",
        Errno::NOSPC => "ENOSPC",
        Errno::SPIPE => "ESPIPE",
        Errno::ROFS => "EROFS",
        Errno::MLINK => "EMLINK",
        Errno::RANGE => "ERANGE",
        Errno::DEADLK => "EDEADLK",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::LOOP => "ELOOP",
        Errno::NODATA => "ENODATA",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::STALE => "ESTALE",
        Errno::NOTCONN => "ENOTCONN",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => return format!("errno {}", error.raw_os_error()),
    };
    known.to_owned()
}
