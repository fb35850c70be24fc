//! Waiting for the daemon of a mount that has just been unmounted.
//!
//! Some unmounts bypass `steadfast umount`: umount(8) without its helper, fusermount3, the end of a
//! session. Then the kernel releases the mount before the daemon has made its last transaction
//! point. A command that opens the volume in this interval finds it in use by a process that is
//! about to end. This module waits for that daemon for a limited time. Any other use is reported at
//! once.
//!
//! A daemon that is ending has three signs. Its command line names the image, it has the image
//! open, and no mount has the image as its source. Another process that waits here has the same
//! command line, but does not have the image open.

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::{Exit, Outcome};
use crate::pause::Pause;
use crate::{cluster, daemon, mounts, rados, window};

/// Time after which the user is told what the command waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a daemon may take for its last transaction point. A daemon that still serves open files
/// takes until they are closed.
const LIMIT: Duration = Duration::from_secs(10);

/// Repeats `open` while the volume is in use by a daemon that no longer has a mount.
///
/// # Errors
/// Those of `open`.
pub fn wait_for<T>(path: &Path, mut open: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let start = Instant::now();
    let (mut told, mut pause) = (false, Pause::new());
    // The last daemon may end between `open` and the search for daemons, so one more try follows.
    let mut last_try = false;
    loop {
        match open() {
            Err(failure) if failure.exit == Exit::Busy && !last_try && start.elapsed() < LIMIT => {
                last_try = !is_ending(path);
            }
            opened => return opened,
        }
        if !told && start.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            told = true;
            eprintln!("steadfast: waiting for the last transaction point of {}", path.display());
        }
        if !last_try {
            pause.wait();
        }
    }
}

/// Whether a daemon has the image open without a mount of it: the daemon is ending or starting.
fn is_ending(path: &Path) -> bool {
    let Ok(image) = mounts::absolute(path) else { return false };
    if mounts::of_source(&image).is_ok_and(|mount| mount.is_some()) {
        return false;
    }
    daemon_of(&image).is_some()
}

/// The daemon that serves the volume in an image, as far as this process may see.
pub fn daemon_of(path: &Path) -> Option<u32> {
    let image = mounts::absolute(path).ok()?;
    let file = window::split(&image);
    let processes = fs::read_dir("/proc").ok()?;
    processes.filter_map(Result::ok).find_map(|process| {
        let folder = process.path();
        let line = fs::read(folder.join("cmdline")).ok()?;
        let named = served_by(&line)?;
        let serves =
            !is_helper(&folder) && is_same(&folder, &named, &image) && has_open(&folder, &file);
        serves.then(|| process.file_name().to_str()?.parse().ok()).flatten()
    })
}

/// Whether `named`, seen from the working directory of `process` (a folder in /proc), is `image`.
fn is_same(process: &Path, named: &Path, image: &Path) -> bool {
    if window::is_same(named, image) {
        return true;
    }
    let folder = fs::read_link(process.join("cwd")).unwrap_or_default();
    mounts::absolute(&folder.join(named)).is_ok_and(|named| window::is_same(&named, image))
}

/// Whether a process is the helper of a daemon, which has the same command line.
fn is_helper(process: &Path) -> bool {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    name.trim_ascii_end() == steadfast_fuse::HELPER_NAME.as_bytes()
}

/// Whether another process has the image open, as far as this process may see.
fn has_open(process: &Path, image: &Path) -> bool {
    let own = std::process::id().to_string();
    if cluster::is_cluster(image) {
        // One process of this machine has the name of the node.
        return process.file_name() != Some(OsStr::new(&own));
    }
    if rados::is_rados(image) {
        // No descriptor leads to the image, but its lock names the process.
        let number = process.file_name().and_then(|name| name.to_str()?.parse().ok());
        return number.is_some_and(|number| rados::is_open_here(image, number));
    }
    process.file_name() != Some(OsStr::new(&own))
        && fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|path| path == image))
}

/// The image in the command line of a daemon, in which a NUL ends each word.
fn served_by(line: &[u8]) -> Option<PathBuf> {
    let words: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let program = Path::new(OsStr::from_bytes(words.first()?)).file_name()?;
    let named = program == daemon::NAME || program == daemon::NAME_OF_ROOT;
    let serves = named && words.get(1) == Some(&&b"mount"[..]);
    let image = words.len().checked_sub(2).filter(|at| *at > 1)?;
    serves.then(|| OsStr::from_bytes(words[image]).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn a_helper_is_known_by_its_name() {
        std::thread::spawn(|| {
            let this = Path::new("/proc/thread-self");
            assert!(!is_helper(this));
            fs::write(this.join("comm"), steadfast_fuse::HELPER_NAME.as_bytes()).unwrap();
            assert!(is_helper(this));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn daemons_are_known_by_their_command_line() {
        let line = b"steadfast\0mount\0--serve\0-o\0rw\0--\0/images/a b.img\0/mnt\0";
        assert_eq!(served_by(line), Some("/images/a b.img".into()));
        assert_eq!(served_by(b"/usr/bin/steadfast\0mount\0-f\0a.img\0mnt\0"), Some("a.img".into()));
        assert_eq!(served_by(b"@steadfast\0mount\0--serve\0--\0/a\0/\0"), Some("/a".into()));
        for line in
            [&b"steadfast\0put\0a.img\0x\0"[..], b"steadfast\0mount\0", b"cat\0mount\0a\0b\0", b""]
        {
            assert_eq!(served_by(line), None);
        }
    }

    #[test]
    fn an_open_image_is_seen_of_others_only() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = fs::canonicalize(image.path()).unwrap();
        assert!(!has_open(&Path::new("/proc").join(std::process::id().to_string()), &path));
        // The same process, under its other name in /proc.
        assert!(has_open(Path::new("/proc/self"), &path));
        drop(image);
        assert!(!has_open(Path::new("/proc/self"), &path));
    }

    #[test]
    fn other_use_is_told_at_once() {
        let mut tries = 0;
        let failed: Outcome = wait_for(Path::new("/nowhere/a.img"), || {
            tries += 1;
            Err(Failure::new(Exit::Busy, "in use", "a.img", "wait"))
        });
        assert_eq!((failed.unwrap_err().exit, tries), (Exit::Busy, 2));
    }
}
