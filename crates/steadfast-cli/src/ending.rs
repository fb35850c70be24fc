//! Waiting for the daemon of a mount that has just been unmounted.
//!
//! Where not our own command unmounts, but umount(8) without its helper, fusermount3 or the end of
//! a session, the kernel lets go of the mount before the daemon has made its last transaction
//! point. Whoever opens the volume then finds it in use, by a process that is about to end. That is
//! waited for, for a while; any other use is told at once.
//!
//! The daemon is known by its command line, which names the image, by having it open, and by no
//! mount having that image as its source. Another one that waits as this process does has the same
//! command line, and the image not open.

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::failure::{Exit, Outcome};
use crate::mounts;

/// How often is tried again.
const LOOK: Duration = Duration::from_millis(5);
/// When to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a daemon may take for its last transaction point here. One that serves files which were
/// left open takes as long as those.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs `open` again for as long as the volume is in use by a daemon that has no mount any more.
///
/// # Errors
/// Those of `open`.
pub fn wait_for<T>(path: &Path, mut open: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let start = Instant::now();
    let mut told = false;
    // Between a look at the volume and one at the daemons the last of them may have ended.
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
            sleep(LOOK);
        }
    }
}

/// Whether a daemon has the image without a mount of it: one that ends, or one that begins.
fn is_ending(path: &Path) -> bool {
    let Ok(image) = mounts::absolute(path) else { return false };
    if mounts::of_source(&image).is_ok_and(|mount| mount.is_some()) {
        return false;
    }
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.filter_map(Result::ok).any(|process| {
        let folder = process.path();
        fs::read(folder.join("cmdline")).is_ok_and(|line| {
            served_by(&line).is_some_and(|named| is_same(&folder, &named, &image))
                && has_open(&folder, &image)
        })
    })
}

/// Whether a process that runs in the folder that its own folder in /proc names means this image.
fn is_same(process: &Path, named: &Path, image: &Path) -> bool {
    if named == image {
        return true;
    }
    let folder = fs::read_link(process.join("cwd")).unwrap_or_default();
    mounts::absolute(&folder.join(named)).is_ok_and(|named| named == image)
}

/// Whether another process has the image open, as far as this one may see.
fn has_open(process: &Path, image: &Path) -> bool {
    let own = std::process::id().to_string();
    process.file_name() != Some(OsStr::new(&own))
        && fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|path| path == image))
}

/// The image in the command line of a daemon, whose words end with a NUL each.
fn served_by(line: &[u8]) -> Option<PathBuf> {
    let words: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let program = Path::new(OsStr::from_bytes(words.first()?)).file_name()?;
    let serves = program == "steadfast" && words.get(1) == Some(&&b"mount"[..]);
    let image = words.len().checked_sub(2).filter(|at| *at > 1)?;
    serves.then(|| OsStr::from_bytes(words[image]).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn daemons_are_known_by_their_command_line() {
        let line = b"steadfast\0mount\0--serve\0-o\0rw\0--\0/images/a b.img\0/mnt\0";
        assert_eq!(served_by(line), Some("/images/a b.img".into()));
        assert_eq!(served_by(b"/usr/bin/steadfast\0mount\0-f\0a.img\0mnt\0"), Some("a.img".into()));
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
        // The same process under its other name.
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
