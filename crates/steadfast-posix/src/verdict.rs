//! How a check says what it found: nothing more to say (passed), or why it stopped.

use std::fmt::Debug;
use std::panic::Location;

use rustix::io::Errno;

/// What a check returns.
pub type Verdict = Result<(), Stop>;

/// Why a check ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The file system did not do what was expected; the text says where in the suite, what was
    /// expected and what came.
    Failed(String),
    /// The check cannot be made here (not root, or the system lacks something that is no fault of
    /// the file system).
    Skipped(String),
    /// The file system says that it does not support an optional operation; a failure when all is
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

    /// Not possible here.
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

/// The call must fail with one of these errors: where POSIX leaves a choice.
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

/// Turns "this file system does not have that" into a stop of its own kind, any other error into a
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

/// Debug form, cut where it would fill a screen.
fn brief(value: &impl Debug) -> String {
    let mut text = format!("{value:?}");
    if text.len() > 160 {
        let cut = (0..=160).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// The name of an error as manuals write it.
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
