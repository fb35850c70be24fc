//! The witness: a directory with one small file for each array that this machine has used, and a
//! lock file for each.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::array::Witness;

/// Stores epochs in files.
#[derive(Debug)]
pub struct DirectoryWitness {
    directory: PathBuf,
}

impl DirectoryWitness {
    /// Files in this directory, which is created if missing.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(directory: PathBuf) -> io::Result<DirectoryWitness> {
        fs::create_dir_all(&directory)?;
        Ok(DirectoryWitness { directory })
    }

    fn path(&self, uuid: &[u8; 16], suffix: &str) -> PathBuf {
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.{suffix}"))
    }

    /// Locks the array on this machine as long as the file lives. With `shared`, only writers are
    /// locked out. `None` if another process holds the lock.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn lock(&self, uuid: &[u8; 16], shared: bool) -> io::Result<Option<File>> {
        let path = self.path(uuid, "lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match if shared { file.try_lock_shared() } else { file.try_lock() } {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Path of the socket for live numbers.
    pub fn socket(&self, uuid: &[u8; 16]) -> PathBuf {
        self.path(uuid, "live")
    }

    /// Notes why the write-behind log of an array was given up, or that it is in order. This note
    /// serves the case that the disk of the log cannot be written. Errors here change nothing else.
    pub(crate) fn note_log(&self, uuid: &[u8; 16], why: Option<&str>) {
        let path = self.path(uuid, "log");
        let _ = match why {
            Some(why) => fs::write(path, why),
            None => fs::remove_file(path),
        };
    }

    /// Why the write-behind log of an array was given up, if noted.
    pub(crate) fn log_note(&self, uuid: &[u8; 16]) -> Option<String> {
        fs::read_to_string(self.path(uuid, "log")).ok()
    }

    fn write(&self, uuid: &[u8; 16], (stamp, epoch): (u64, u64)) -> io::Result<()> {
        let (path, new) = (self.path(uuid, "epoch"), self.path(uuid, "new"));
        let mut file = File::create(&new)?;
        writeln!(file, "{stamp} {epoch}")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
    }
}

impl Witness for DirectoryWitness {
    fn note(&self, uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String> {
        self.write(uuid, order).map_err(|error| format!("{}: {error}", self.directory.display()))
    }

    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)> {
        let text = fs::read_to_string(self.path(uuid, "epoch")).ok()?;
        let (stamp, epoch) = text.trim().split_once(' ')?;
        Some((stamp.parse().ok()?, epoch.parse().ok()?))
    }
}
