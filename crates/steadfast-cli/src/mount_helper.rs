//! The program called by mount(8) or umount(8).
//!
//! For `mount -t fuse.steadfast` and fstab, mount(8) runs `mount.fuse3`, which runs `steadfast
//! SOURCE DIR -o OPTIONS`.
//!
//! If this program is linked as `/sbin/mount.steadfast` or `/sbin/mount.fuse.steadfast`, mount(8)
//! runs it directly with `SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`.
//!
//! If it is linked as `/sbin/umount.steadfast` or `/sbin/umount.fuse.steadfast`, umount(8) runs it
//! with `DIR [-flnrv] [-t TYPE]`. So umount(8) does not return before the last transaction point is
//! made.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::commands::mount::Request;
use crate::failure::{Exit, Failure};
use crate::window;

/// Exit code that mount(8) documents for a failed mount.
pub const EXIT_MOUNT_FAILED: u8 = 32;
/// Exit code that mount(8) documents for a wrong call.
pub const EXIT_WRONG_CALL: u8 = 1;

/// What mount(8) requests.
#[derive(Debug, PartialEq, Eq)]
pub enum MountCall {
    /// Mount this.
    Mount(Request),
    /// Check the command line, mount nothing (`-f` of mount(8)).
    Fake,
    /// Unmount this.
    Unmount {
        /// The mount point, or the image.
        target: PathBuf,
        /// Unmount at once, even if files are in use.
        lazy: bool,
    },
}

/// Whether this process was called as a mount helper: by its name, or as `steadfast SOURCE DIR …`.
pub fn is_called(arguments: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    if by_name(arguments) || unmounts(arguments) {
        return true;
    }
    match arguments.get(1) {
        Some(first) if is_command(first) || first.as_bytes().starts_with(b"-") => false,
        // A mistyped command must not be taken for an image, so the arguments must look like those
        // of mount.fuse3.
        Some(first) => {
            arguments.len() > 2
                && (window::split(Path::new(first)).exists() || first.as_bytes().contains(&b'/'))
        }
        None => false,
    }
}

/// Whether the program's name is that of a mount helper.
fn by_name(arguments: &[OsString]) -> bool {
    matches!(name(arguments), Some(b"mount.steadfast" | b"mount.fuse.steadfast"))
}

/// Whether the program's name is that of a helper of umount(8).
fn unmounts(arguments: &[OsString]) -> bool {
    matches!(name(arguments), Some(b"umount.steadfast" | b"umount.fuse.steadfast"))
}

fn name(arguments: &[OsString]) -> Option<&[u8]> {
    arguments.first().map(Path::new).and_then(Path::file_name).map(OsStr::as_bytes)
}

/// Parses the arguments of mount(8) or umount(8).
///
/// # Errors
/// A failure that names the wrong argument.
pub fn parse(arguments: &[OsString]) -> Result<MountCall, Failure> {
    let wrong = |what: String| {
        Failure::new(
            Exit::Usage,
            what,
            "mount helper",
            "call it as: steadfast IMAGE DIR [-o OPTIONS]",
        )
    };
    let text = |option: &OsStr| {
        option
            .to_str()
            .map(str::to_owned)
            .ok_or_else(|| wrong("a mount option is not UTF-8".into()))
    };
    if unmounts(arguments) {
        return parse_unmount(arguments);
    }
    let by_name = by_name(arguments);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut options = Vec::new();
    let (mut fake, mut foreground) = (false, false);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let mut next =
            || rest.next().ok_or_else(|| wrong(format!("{} needs a value", argument.display())));
        match argument.as_bytes() {
            b"-o" => options.push(text(next()?)?),
            [b'-', b'o', list @ ..] => options.push(text(OsStr::from_bytes(list))?),
            b"-t" | b"-N" => {
                next()?;
            }
            [b'-', letters @ ..]
                if !letters.is_empty() && letters.iter().all(|l| b"fsnvwr".contains(l)) =>
            {
                if letters.contains(&b'r') {
                    options.push("ro".into());
                }
                // For a mount helper `-f` means fake; for a FUSE program it means foreground.
                fake |= by_name && letters.contains(&b'f');
                foreground |= !by_name && letters.contains(&b'f');
            }
            [b'-', ..] => return Err(wrong(format!("unknown option {}", argument.display()))),
            _ => paths.push(argument.into()),
        }
    }
    match <[PathBuf; 2]>::try_from(paths) {
        Ok(_) if fake => Ok(MountCall::Fake),
        Ok([image, directory]) => Ok(MountCall::Mount(Request {
            image,
            directory,
            foreground,
            options,
            cache: None,
            log: None,
        })),
        Err(_) => Err(wrong("an image and a mount point are needed".into())),
    }
}

/// Parses the arguments of umount(8).
fn parse_unmount(arguments: &[OsString]) -> Result<MountCall, Failure> {
    let wrong = |what: String| {
        Failure::new(Exit::Usage, what, "umount helper", "call it as: umount.steadfast DIR [-l]")
    };
    let (mut targets, mut lazy) = (Vec::new(), false);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-t" | b"-N" | b"-o" => drop(rest.next()),
            // `-f` and `-n` have no effect: there is no pending request to abort and no mtab to
            // leave alone.
            [b'-', letters @ ..]
                if !letters.is_empty() && letters.iter().all(|l| b"flnrvdi".contains(l)) =>
            {
                lazy |= letters.contains(&b'l');
            }
            [b'-', ..] => return Err(wrong(format!("unknown option {}", argument.display()))),
            _ => targets.push(PathBuf::from(argument)),
        }
    }
    match <[PathBuf; 1]>::try_from(targets) {
        Ok([target]) => Ok(MountCall::Unmount { target, lazy }),
        Err(_) => Err(wrong("one mount point is needed".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn is_command(word: &OsStr) -> bool {
        word == "mount" || word == "ls"
    }

    #[test]
    fn told_apart_from_commands() {
        assert!(is_called(&words("steadfast /x.img /mnt -o rw"), is_command));
        assert!(is_called(&words("/sbin/mount.steadfast a b"), is_command));
        assert!(is_called(&words("mount.fuse.steadfast a b"), is_command));
        assert!(is_called(&words("/sbin/umount.fuse.steadfast a"), is_command));
        for line in [
            "steadfast mount /x.img /mnt",
            "steadfast",
            "steadfast --help",
            "steadfast mont a b",
            "steadfast ls",
        ] {
            assert!(!is_called(&words(line), is_command), "{line}");
        }
    }

    #[test]
    fn arguments_of_mount() {
        let Ok(MountCall::Mount(request)) =
            parse(&words("steadfast /x.img /mnt -o rw,dev,suid -s -oro"))
        else {
            panic!("refused");
        };
        assert_eq!((request.image, request.directory), ("/x.img".into(), "/mnt".into()));
        assert_eq!(request.options, ["rw,dev,suid", "ro"]);
        assert!(!request.foreground);
        assert_eq!(
            parse(&words("mount.steadfast /x.img /mnt -sf -t fuse.steadfast")),
            Ok(MountCall::Fake)
        );
        assert!(parse(&words("mount.steadfast /x.img")).is_err());
        let unmount = |lazy| Ok(MountCall::Unmount { target: "/mnt".into(), lazy });
        assert_eq!(parse(&words("umount.fuse.steadfast /mnt -t fuse.steadfast")), unmount(false));
        assert_eq!(parse(&words("umount.steadfast -fl /mnt")), unmount(true));
        assert!(parse(&words("umount.steadfast")).is_err());
        assert!(parse(&words("umount.steadfast /mnt --bogus")).is_err());
        assert!(parse(&words("steadfast a b -o")).is_err());
        assert!(parse(&words("steadfast a b --bogus")).is_err());
    }
}
