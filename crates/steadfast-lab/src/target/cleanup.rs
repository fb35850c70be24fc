//! Objects that must be removed again in every case.
//!
//! A [`Guard`] undoes one thing when it is dropped: at the end, on an error, on a panic. All
//! pending things are also in one list, newest last, for [`everything`]. That is the way out
//! without unwinding (a second Ctrl-C). Each thing has an identity that cannot come to mean
//! anything else. It is a path in the run's own directory, or a loop device that is attached to a
//! file there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use rustix::mount::{UnmountFlags, unmount};

/// One thing to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Undo {
    Unmount(PathBuf),
    Detach { device: PathBuf, image: PathBuf },
    Remove(PathBuf),
    RemoveDirectory(PathBuf),
}

static PENDING: Mutex<Vec<(u64, Undo)>> = Mutex::new(Vec::new());

/// Undoes one thing when it is dropped.
#[derive(Debug)]
pub struct Guard {
    number: u64,
    path: PathBuf,
}

impl Guard {
    fn new(undo: Undo, path: &Path) -> Guard {
        let mut pending = lock();
        let number = pending.last().map_or(0, |(number, _)| number + 1);
        pending.push((number, undo));
        Guard { number, path: path.to_owned() }
    }

    /// The mount point, file, directory or device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records that the thing has been undone already.
    pub fn done(self) {
        let number = self.number;
        lock().retain(|(other, _)| *other != number);
        // Dropping the guard now finds nothing to undo.
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let undo = {
            let mut pending = lock();
            let place = pending.iter().position(|(number, _)| *number == self.number);
            place.map(|place| pending.remove(place).1)
        };
        if let Some(undo) = undo {
            perform(&undo);
        }
    }
}

/// A mount on this directory.
pub fn mount(directory: &Path) -> Guard {
    Guard::new(Undo::Unmount(directory.to_owned()), directory)
}

/// A loop device that is attached to this image.
pub fn loop_device(device: &Path, image: &Path) -> Guard {
    Guard::new(Undo::Detach { device: device.to_owned(), image: image.to_owned() }, device)
}

/// A file.
pub fn file(path: &Path) -> Guard {
    Guard::new(Undo::Remove(path.to_owned()), path)
}

/// A directory with its contents, on its own file system only.
pub fn directory(path: &Path) -> Guard {
    Guard::new(Undo::RemoveDirectory(path.to_owned()), path)
}

/// Undoes every pending thing, newest first.
pub fn everything() {
    loop {
        let next = lock().pop();
        match next {
            Some((_, undo)) => perform(&undo),
            None => return,
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<(u64, Undo)>> {
    PENDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Undoes one thing. Errors are ignored, because there is no caller to report them to, and the next
/// step may still succeed.
fn perform(undo: &Undo) {
    match undo {
        Undo::Unmount(directory) => {
            if unmount(directory, UnmountFlags::NOFOLLOW).is_err() {
                // A process still has a file open: the name disappears now, the rest when the file
                // is closed.
                let _ = unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
        }
        Undo::Detach { device, image } => {
            if attached_to(device).is_some_and(|file| file == *image) {
                let mut command = Command::new("losetup");
                let _ = command
                    .arg("--detach")
                    .arg(device)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            }
        }
        Undo::Remove(path) => {
            let _ = std::fs::remove_file(path);
        }
        Undo::RemoveDirectory(path) => remove_tree(path),
    }
}

/// The file below a loop device, as the kernel reports it.
pub fn attached_to(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?.to_str()?;
    let text = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Removes a tree, but nothing on another file system. If an unmount has failed, the files of that
/// mount stay.
fn remove_tree(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(device) = std::fs::symlink_metadata(path).map(|metadata| metadata.dev()) else { return };
    let mut directories = vec![path.to_owned()];
    let mut order = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.path().symlink_metadata() else { continue };
            if metadata.is_dir() && metadata.dev() == device {
                directories.push(entry.path());
            } else if !metadata.is_dir() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        order.push(directory);
    }
    for directory in order.iter().rev() {
        let _ = std::fs::remove_dir(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_taken_away_and_what_is_done_is_not() {
        let base = tempfile::tempdir().expect("a directory");
        let kept = base.path().join("kept");
        let gone = base.path().join("gone");
        for path in [&kept, &gone] {
            std::fs::write(path, "x").expect("written");
        }
        file(&kept).done();
        drop(file(&gone));
        assert!(kept.exists() && !gone.exists());
        let tree = base.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).expect("made");
        std::fs::write(tree.join("a/b/c"), "x").expect("written");
        drop(directory(&tree));
        assert!(!tree.exists());
    }

    #[test]
    fn a_panic_undoes_it() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("file");
        std::fs::write(&path, "x").expect("written");
        let inner = path.clone();
        let result = std::panic::catch_unwind(move || {
            let _guard = file(&inner);
            panic!("planted");
        });
        assert!(result.is_err() && !path.exists());
    }
}
