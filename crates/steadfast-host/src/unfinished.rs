//! Files and directories that are not complete yet, and their removal from any thread.
//!
//! Each unfinished file or directory has a temporary name, and is in one list of the process. It
//! leaves the list when it gets its final name or is removed. Both happen under the lock of the
//! list. So if a signal ends the program ([`remove_unfinished`]), each file is either complete or
//! absent.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entropy::random_uuid;

/// Start of the temporary names.
pub(crate) const PREFIX: &str = ".steadfast-";
/// Largest number of names to try.
const NAMES_MAX: u32 = 100;
/// Rounds of removing a directory in which another thread still creates files. That thread soon
/// fails, because its directory is gone.
const ROUNDS: u32 = 100;
/// Time between two rounds.
const ROUND: Duration = Duration::from_millis(10);

static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn list() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An unfinished file or directory. Dropping it removes it with all its contents.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Creates one in `parent` with `make`, which gets an unused path.
    ///
    /// # Errors
    /// Those of `make`; or no random bytes are available.
    pub fn make<T>(
        parent: &Path,
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> io::Result<(T, Unfinished)> {
        let mut list = list();
        for _ in 0..NAMES_MAX {
            let [a, b, c, d, e, f, ..] = random_uuid()?;
            let number = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
            let path = parent.join(format!("{PREFIX}{number:012x}"));
            match make(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    let made = made?;
                    list.push(path.clone());
                    return Ok((made, Unfinished { path }));
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Creates a directory in `parent` that only its owner may enter.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn directory(parent: &Path) -> io::Result<Unfinished> {
        let made = Unfinished::make(parent, |path| DirBuilder::new().mode(0o700).create(path));
        made.map(|((), directory)| directory)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `put` give it its final name.
    ///
    /// # Errors
    /// Those of `put`; then it is removed.
    pub fn finish<T>(self, put: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let mut list = list();
        let done = put(&self.path)?;
        list.retain(|path| *path != self.path);
        Ok(done)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut list = list();
        if let Some(at) = list.iter().position(|path| *path == self.path) {
            list.swap_remove(at);
            remove(&self.path, 1);
        }
    }
}

/// Keeps all threads from finishing or creating files, for a program that is about to end.
#[derive(Debug)]
pub struct Held {
    _list: MutexGuard<'static, Vec<PathBuf>>,
}

/// Removes all unfinished files and directories.
pub fn remove_unfinished() -> Held {
    let mut list = list();
    for path in list.drain(..) {
        remove(&path, ROUNDS);
    }
    Held { _list: list }
}

/// Errors are ignored: the name of the remaining file shows that it is temporary.
fn remove(path: &Path, rounds: u32) {
    for round in 0..=rounds {
        let removed = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => return,
        };
        if removed.is_ok() {
            return;
        }
        open_up(path);
        if round > 0 {
            std::thread::sleep(ROUND);
        }
    }
}

/// Gives the owner all permissions on the directories below, which may have arbitrary permissions.
fn open_up(path: &Path) {
    let mut pending = vec![path.to_owned()];
    while let Some(directory) = pending.pop() {
        let _ = fs::set_permissions(&directory, Permissions::from_mode(0o700));
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finished_goes_and_what_is_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let dropped = Unfinished::directory(scratch.path()).unwrap();
        let below = dropped.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::set_permissions(&below, Permissions::from_mode(0o500)).unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);

        let finished = Unfinished::directory(scratch.path()).unwrap();
        let place = scratch.path().join("whole");
        finished.finish(|path| fs::rename(path, &place)).unwrap();
        assert!(place.is_dir());

        let refused = Unfinished::directory(scratch.path()).unwrap();
        let error = refused.finish(|_| Err::<(), _>(io::Error::other("no"))).unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
