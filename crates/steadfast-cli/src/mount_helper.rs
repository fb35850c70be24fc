//! Being called by mount(8).
//!
//! For `mount -t fuse.steadfast` and fstab, mount(8) runs `mount.fuse3`, which runs
//! `steadfast SOURCE DIR -o OPTIONS`. Where this program is linked as `/sbin/mount.steadfast` or
//! `/sbin/mount.fuse.steadfast`, mount(8) runs it itself with `SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::commands::mount::Request;
use crate::failure::{Exit, Failure};

/// Exit code that mount(8) documents for a failed mount.
pub const EXIT_MOUNT_FAILED: u8 = 32;
/// Exit code that mount(8) documents for a wrong call.
pub const EXIT_WRONG_CALL: u8 = 1;

/// What mount(8) asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Call {
    /// Mount this.
    Mount(Request),
    /// Check the command line, mount nothing (`-f` of mount(8)).
    Fake,
}

/// Whether this process was called as a mount helper: by its name, or as `steadfast SOURCE DIR …`.
pub fn is_called(arguments: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    if by_name(arguments) {
        return true;
    }
    match arguments.get(1) {
        Some(first) if is_command(first) || first.as_bytes().starts_with(b"-") => false,
        // A mistyped command is no image: it must look like what mount.fuse3 passes.
        Some(first) => arguments.len() > 2 && (Path::new(first).exists() || first.as_bytes().contains(&b'/')),
        None => false,
    }
}

/// Whether the program's name is that of a mount helper.
fn by_name(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    matches!(name.map(OsStr::as_bytes), Some(b"mount.steadfast" | b"mount.fuse.steadfast"))
}

/// Understands the arguments of mount(8).
///
/// # Errors
/// A failure that says what is wrong with them.
pub fn parse(arguments: &[OsString]) -> Result<Call, Failure> {
    let wrong = |what: String| {
        Failure::new(Exit::Usage, what, "mount helper", "call it as: steadfast IMAGE DIR [-o OPTIONS]")
    };
    let text = |option: &OsStr| {
        option.to_str().map(str::to_owned).ok_or_else(|| wrong("a mount option is not UTF-8".into()))
    };
    let by_name = by_name(arguments);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut options = Vec::new();
    let (mut fake, mut foreground) = (false, false);
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        let mut next = || rest.next().ok_or_else(|| wrong(format!("{} needs a value", argument.display())));
        match argument.as_bytes() {
            b"-o" => options.push(text(next()?)?),
            [b'-', b'o', list @ ..] => options.push(text(OsStr::from_bytes(list))?),
            b"-t" | b"-N" => {
                next()?;
            }
            [b'-', letters @ ..] if !letters.is_empty() && letters.iter().all(|l| b"fsnvwr".contains(l)) => {
                if letters.contains(&b'r') {
                    options.push("ro".into());
                }
                // A mount helper's -f means fake; a FUSE program's means foreground.
                fake |= by_name && letters.contains(&b'f');
                foreground |= !by_name && letters.contains(&b'f');
            }
            [b'-', ..] => return Err(wrong(format!("unknown option {}", argument.display()))),
            _ => paths.push(argument.into()),
        }
    }
    match <[PathBuf; 2]>::try_from(paths) {
        Ok(_) if fake => Ok(Call::Fake),
        Ok([image, directory]) => {
            Ok(Call::Mount(Request { image, directory, foreground, options, cache: None, log: None }))
        }
        Err(_) => Err(wrong("an image and a mount point are needed".into())),
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
        let Ok(Call::Mount(request)) = parse(&words("steadfast /x.img /mnt -o rw,dev,suid -s -oro")) else {
            panic!("refused");
        };
        assert_eq!((request.image, request.directory), ("/x.img".into(), "/mnt".into()));
        assert_eq!(request.options, ["rw,dev,suid", "ro"]);
        assert!(!request.foreground);
        assert_eq!(parse(&words("mount.steadfast /x.img /mnt -sf -t fuse.steadfast")), Ok(Call::Fake));
        assert!(parse(&words("mount.steadfast /x.img")).is_err());
        assert!(parse(&words("steadfast a b -o")).is_err());
        assert!(parse(&words("steadfast a b --bogus")).is_err());
    }
}
