//! The mounts of Steadfast volumes on this machine, from `/proc/self/mountinfo`.
//!
//! A mount point is looked up here by text before it is accessed. Access to a mount whose daemon
//! was killed fails with "Transport endpoint is not connected". Access to a mount whose daemon
//! hangs would hang the caller.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::window;

/// One mounted Steadfast volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The image or block device, absolute.
    pub source: PathBuf,
    /// Mounted read-only.
    pub read_only: bool,
    /// Changes of directories are synchronous.
    pub dirsync: bool,
}

/// Every Steadfast mount, later ones last.
///
/// # Errors
/// `/proc` is not mounted.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The Steadfast mount whose root is `path`.
///
/// # Errors
/// `/proc` is not mounted.
pub fn at(path: &Path) -> io::Result<Option<Mount>> {
    let path = absolute(path)?;
    // The last of several mounts on one directory is on top.
    Ok(all()?.into_iter().rev().find(|mount| mount.directory == path))
}

/// The Steadfast mount that holds `path`.
///
/// # Errors
/// `/proc` is not mounted.
pub fn holding(path: &Path) -> io::Result<Option<Mount>> {
    let path = absolute(path)?;
    Ok(all()?
        .into_iter()
        .rev()
        .filter(|mount| path.starts_with(&mount.directory))
        .max_by_key(|mount| mount.directory.as_os_str().len()))
}

/// The Steadfast mount whose image is `source`.
///
/// # Errors
/// `/proc` is not mounted.
pub fn of_source(source: &Path) -> io::Result<Option<Mount>> {
    let source = absolute(source)?;
    Ok(all()?.into_iter().rev().find(|mount| window::is_same(&mount.source, &source)))
}

/// `path` without symbolic links and dots. If the kernel cannot resolve the path itself, only its
/// parent is resolved: a mount point that does not answer keeps its name.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if crate::network::is_address(path) {
        return Ok(path.to_owned());
    }
    window::with_path(path, absolute_file)
}

fn absolute_file(path: &Path) -> io::Result<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Ok(path);
    }
    let path = std::path::absolute(path)?;
    match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
        _ => Ok(path),
    }
}

fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// Parses a line such as `36 35 0:30 / /mnt rw,nosuid shared:1 - fuse.steadfast /images/a.img
/// rw,user_id=0`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let root = fields.nth(3)?;
    let directory = unescape(fields.next()?);
    let options = fields.next()?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?;
    let source = unescape(rest.next()?);
    // A bind mount of part of a volume does not count as the volume.
    let ours =
        matches!(kind, b"fuse.steadfast" | b"fuseblk.steadfast" | b"steadfast") && root == b"/";
    ours.then(|| Mount {
        directory: directory.into(),
        source: source.into(),
        read_only: options.split(|byte| *byte == b',').any(|option| option == b"ro"),
        // A flag of the file system, which statvfs does not report.
        dirsync: rest
            .next()
            .is_some_and(|all| all.split(|byte| *byte == b',').any(|option| option == b"dirsync")),
    })
}

/// Decodes the kernel's `\040` for space, tab, newline and backslash.
pub fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(decoded) if byte == b'\\' => {
                bytes.push(decoded);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The mount point of an image that is in use, for the advice in a message. The mount may show the
/// image through a loop device.
pub fn mount_point_of(path: &Path) -> Option<PathBuf> {
    let direct = of_source(path).ok().flatten();
    let found = direct.or_else(|| {
        let file = absolute(path).ok()?;
        all().ok()?.into_iter().rev().find(|mount| shows(&mount.source, &file))
    });
    found.map(|mount| mount.directory)
}

/// Whether a device is a loop device of this file.
fn shows(device: &Path, file: &Path) -> bool {
    let Some(name) = device.strip_prefix("/dev").ok().and_then(Path::to_str) else { return false };
    let shown = fs::read(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
    shown.strip_suffix(b"\n").is_some_and(|shown| shown == file.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_steadfast_and_nothing_else() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            90 22 0:50 / /mnt/my\\040disk rw,nosuid shared:3 - fuse.steadfast /img/a\\134b.img rw,user_id=0\n\
            91 22 0:51 / /mnt/ro ro,nosuid - fuse.steadfast /img/c.img ro,dirsync\n\
            92 22 0:51 /sub /mnt/bind ro - fuse.steadfast /img/c.img ro\n\
            93 22 254:0 / /mnt/kernel rw,noatime - steadfast /dev/vda rw\n\
            broken line\n";
        assert_eq!(
            parse(text),
            [
                Mount {
                    directory: "/mnt/my disk".into(),
                    source: "/img/a\\b.img".into(),
                    read_only: false,
                    dirsync: false,
                },
                Mount {
                    directory: "/mnt/ro".into(),
                    source: "/img/c.img".into(),
                    read_only: true,
                    dirsync: true
                },
                Mount {
                    directory: "/mnt/kernel".into(),
                    source: "/dev/vda".into(),
                    read_only: false,
                    dirsync: false,
                },
            ]
        );
    }

    #[test]
    fn absolute_paths_of_things_that_do_not_exist() {
        assert_eq!(
            absolute(Path::new("/proc/self/../nowhere-at-all")).unwrap(),
            Path::new("/proc/nowhere-at-all")
        );
    }
}
