//! The message and the exit code of a failed command. The message is one line, `steadfast: WHAT:
//! WHERE: WHAT TO DO`. Scripts may rely on the exit code.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use steadfast::{Error, SECOND_WRITER, STORAGE_FULL};
use steadfast_media::ErrorClass;

/// Exit codes. The numbers are an interface: they never change their meaning. 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The operation failed for a reason that has no code of its own (no such file, medium error,
    /// …).
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Not a Steadfast volume, or one that this program cannot read.
    NotAVolume = 3,
    /// The volume or the requested object is damaged; `check` found damage.
    Damaged = 4,
    /// The image, the mount point or a file on the volume is in use.
    Busy = 5,
    /// No space: the volume is full, or the medium is too small for a volume.
    NoSpace = 6,
    /// The operating system refused access.
    NoPermission = 7,
    /// The host cannot mount: no /dev/fuse, no fusermount3, mount point missing.
    CannotMount = 8,
    /// `check`: nothing is lost, but an object that needs two copies has only one.
    Degraded = 9,
}

/// A failure, with all that its message tells the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What went wrong.
    pub what: String,
    /// Where: an image, a path, a mount point.
    pub place: String,
    /// What to do about it.
    pub advice: String,
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure from its parts.
    pub fn new(
        exit: Exit,
        what: impl Into<String>,
        place: impl fmt::Display,
        advice: impl Into<String>,
    ) -> Failure {
        Failure { exit, what: what.into(), place: place.to_string(), advice: advice.into() }
    }

    /// The failure for an error of the core on `place`, which is an image or `image:path`.
    pub fn core(error: Error, place: impl fmt::Display) -> Failure {
        let (exit, advice) = advice_core(&error);
        Failure::new(exit, error.to_string(), place, advice)
    }

    /// The failure for an error of the operating system on a host path.
    pub fn host(error: &io::Error, doing: &str, path: &Path) -> Failure {
        let (exit, advice) = match Errno::from_io_error(error) {
            Some(Errno::ACCESS | Errno::PERM) => (Exit::NoPermission, advice_permission()),
            Some(Errno::NOENT) => (Exit::Failed, "check the path"),
            Some(Errno::ISDIR) => (Exit::Failed, "give a file, not a directory"),
            Some(Errno::NOTDIR) => {
                (Exit::Failed, "a part of the path is not a directory: check the path")
            }
            Some(Errno::NOSPC | Errno::DQUOT) => {
                (Exit::NoSpace, "make room on the host's file system")
            }
            Some(Errno::BUSY) => (Exit::Busy, "end what uses it and try again"),
            Some(Errno::ROFS) => {
                (Exit::Failed, "the host's file system is read-only: use another place")
            }
            Some(Errno::NAMETOOLONG) => (Exit::Failed, "use a shorter name"),
            Some(Errno::FBIG) => (
                Exit::NoSpace,
                "the host's file system cannot hold a file of this size: ask for less",
            ),
            Some(Errno::NOTCONN | Errno::CANCELED) => (
                Exit::CannotMount,
                "the daemon of this mount is gone: clear it with 'steadfast umount DIR'",
            ),
            Some(Errno::IO) => {
                (Exit::Failed, "the host's storage reports errors: see the kernel log")
            }
            _ => (Exit::Failed, "see the message"),
        };
        Failure::new(exit, format!("cannot {doing}: {}", text_os(error)), path.display(), advice)
    }

    /// Returns the same failure with `known_as` in place of the temporary name `name`.
    pub fn called(self, name: &Path, known_as: &Path) -> Failure {
        let place =
            self.place.replace(&name.display().to_string(), &known_as.display().to_string());
        Failure { place, ..self }
    }

    /// The message line for the user.
    pub fn line(&self) -> String {
        // Control characters in a path must not break the line.
        let text = format!("{}: {}: {}", self.what, self.place, self.advice);
        format!("steadfast: {}", text.replace(|c: char| c.is_control(), "?"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// What to do without permission.
pub fn advice_permission() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "the host refuses this even to root: use another place",
        false => "check who owns it, or run the command as that user or as root",
    }
}

/// The message of an operating-system error without Rust's `(os error N)`.
pub fn text_os(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((message, _)) => message.to_lowercase(),
        None => text,
    }
}

/// Exit code and advice for each cause.
fn advice_core(error: &Error) -> (Exit, String) {
    use Exit::*;
    let (exit, advice) = match error {
        Error::NotFound => (Failed, "check the path with 'steadfast ls'"),
        Error::AlreadyExists => (Failed, "remove it first or choose another name"),
        Error::NotADirectory => (Failed, "a directory is needed here: check the path"),
        Error::IsADirectory => (Failed, "give a file; get, put and rm take directories with -r"),
        Error::DirectoryNotEmpty => (Failed, "use -r to remove what is in it as well"),
        Error::NotARegularFile => (Failed, "only regular files have contents: check the path"),
        Error::NameTooLong => {
            (Failed, "use a shorter name; 'steadfast df --json' says how long names may be")
        }
        Error::InvalidName => (Failed, "use a name that is not empty, '.' or '..'"),
        Error::ValueTooLong => (Failed, "make the link target or attribute shorter"),
        Error::InvalidArgument(_) => return (Usage, crate::program::help_advice()),
        Error::FileTooLarge => (Failed, "files hold up to 2^63 - 1 bytes"),
        Error::TooManyLinks => (Failed, "use a copy or a symbolic link instead"),
        Error::MoveIntoSelf => (Failed, "choose a target outside the directory"),
        Error::NoAttribute | Error::BufferTooSmall | Error::NoSuchOffset => {
            (Failed, "check the arguments")
        }
        Error::DirectoryFull => (Failed, "use another name or another directory"),
        Error::Stale(_) => (Failed, "it was deleted or rolled back: look again"),
        Error::NotPermitted => (NoPermission, "this object does not allow it"),
        Error::Unsupported(_) => (Failed, "this operation is not available"),
        Error::NoSpace => (NoSpace, "delete something, or use a larger volume"),
        Error::ReadOnly => (Failed, "mount or open it read-write"),
        Error::Poisoned(STORAGE_FULL) => {
            (NoSpace, "make room there, unmount, then mount again: what was acknowledged is safe")
        }
        Error::Poisoned(SECOND_WRITER) => (
            Busy,
            "find it and end it, then unmount, run 'steadfast check' and mount again: the changes of one of the two are lost",
        ),
        Error::Poisoned(_) => (
            Failed,
            "what was acknowledged is safe: unmount, run 'steadfast check', then mount again",
        ),
        Error::Busy => (
            Busy,
            "close the files that are open for writing, or use --force to drop their changes",
        ),
        Error::NewerSnapshots => (Failed, "use --force to destroy them, or delete them first"),
        Error::Held => (Busy, "wait until it has ended, or end it"),
        Error::OutOfMemory => (Failed, "give it more memory, or a smaller --cache"),
        // ENOSPC and EDQUOT come from the host file system below a sparse image.
        Error::Medium(medium)
            if [Errno::NOSPC, Errno::DQUOT]
                .iter()
                .any(|errno| errno.raw_os_error() == medium.os_error) =>
        {
            (NoSpace, "make room on the host's file system")
        }
        Error::Medium(medium) => match medium.class {
            ErrorClass::Transient => (Failed, "try again; see the kernel log if it stays"),
            ErrorClass::Permanent => {
                (Failed, "the storage below reports errors: see the kernel log")
            }
            ErrorClass::Full => {
                (NoSpace, "make room on the storage below it: its file system or device is full")
            }
            ErrorClass::Gone => (Failed, "the storage below has gone: reconnect it"),
        },
        Error::CorruptMetadata { .. } => {
            (Damaged, "the rest of the volume works: run 'steadfast check' to see what is lost")
        }
        Error::CorruptLog { .. } => (
            Damaged,
            "the state of the log cannot be restored: copy what is there with 'steadfast check --salvage DIR'",
        ),
        Error::CorruptData { .. } => (
            Damaged,
            "the bytes at this place are lost, nothing wrong was returned: restore the file from a copy",
        ),
        Error::NotSteadfast => {
            (NotAVolume, "check the path, or create a volume with 'steadfast mkfs'")
        }
        Error::SuperblockDamaged => {
            (Damaged, "the volume cannot be opened: restore the image from a copy")
        }
        Error::UnsupportedVersion(_)
        | Error::UnsupportedFeatures(_)
        | Error::UnsupportedParameter(_) => {
            (NotAVolume, "use a steadfast that knows it; nothing was changed")
        }
        Error::ReadOnlyFeatures(_) => (NotAVolume, "mount it with -o ro, or use a newer steadfast"),
        Error::Truncated { .. } => (Damaged, "restore the whole image; nothing was changed"),
        Error::NewerStateLost(_) => (
            Damaged,
            "save what is there (mount -o ro, get); to go on in the older state: mount -o recover, or --recover",
        ),
        Error::NoMetaroot => {
            (Damaged, "the volume cannot be opened: restore the image from a copy")
        }
        Error::VolumeTooSmall { .. } => (NoSpace, "use a larger --size, or smaller blocks"),
        Error::BadBlockSize(_) => (Usage, "choose a --block-size such as 4K"),
        _ => (Failed, "see the message"),
    };
    (exit, advice.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_three_parts_and_stay_one_line() {
        let failure = Failure::core(Error::NotSteadfast, "a\nb.img");
        assert_eq!(
            failure.line(),
            "steadfast: not a Steadfast volume: a?b.img: check the path, or create a volume with 'steadfast mkfs'"
        );
        assert_eq!(failure.exit, Exit::NotAVolume);
    }

    #[test]
    fn host_errors_lose_their_number() {
        let error = io::Error::from_raw_os_error(2);
        let failure = Failure::host(&error, "open", Path::new("/x"));
        assert_eq!(
            failure.line(),
            "steadfast: cannot open: no such file or directory: /x: check the path"
        );
    }
}
