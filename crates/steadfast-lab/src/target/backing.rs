//! The storage of a run's volumes: image files in a directory, or one block device that the targets
//! use in turn.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The storage of the volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// Image files in this directory, one per target, with loop devices.
    Directory(PathBuf),
    /// This whole device, for all targets one after the other. Its earlier contents are lost.
    Device {
        /// Its path.
        path: PathBuf,
        /// Size in bytes.
        size: u64,
    },
}

impl Backing {
    /// Determines the kind of `path`. A device is accepted only if it may be erased and is not in
    /// use.
    ///
    /// # Errors
    /// `Skip` with the obstacle.
    pub fn open(path: &Path, erase: bool) -> Outcome<Backing> {
        let place = path.display();
        let found = std::fs::metadata(path).doing(|| format!("use {place}"))?;
        if found.is_dir() {
            return Ok(Backing::Directory(path.to_owned()));
        }
        if !found.file_type().is_block_device() {
            return Err(Trouble::Skip(format!(
                "{place} is neither a directory nor a block device"
            )));
        }
        if !erase {
            return Err(Trouble::Skip(format!(
                "everything on {place} would be lost: allow it with --erase"
            )));
        }
        // O_EXCL on a block device fails while it is mounted or otherwise claimed.
        let mut device = OpenOptions::new();
        let device =
            device.read(true).write(true).custom_flags(OFlags::EXCL.bits() as i32).open(path);
        let size = device.and_then(|mut device| device.seek(SeekFrom::End(0)));
        let size = size.doing(|| format!("use {place}, which must not be mounted"))?;
        Ok(Backing::Device { path: path.to_owned(), size })
    }

    /// The directory for mount points and images.
    pub fn directory(&self) -> PathBuf {
        match self {
            Backing::Directory(path) => path.clone(),
            Backing::Device { .. } => std::env::temp_dir(),
        }
    }

    /// The directory, or the device.
    pub fn path(&self) -> &Path {
        match self {
            Backing::Directory(path) | Backing::Device { path, .. } => path,
        }
    }

    /// The device, if the storage is one.
    pub fn device(&self) -> Option<(&Path, u64)> {
        match self {
            Backing::Directory(_) => None,
            Backing::Device { path, size } => Some((path, *size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_and_a_file_is_refused() {
        let base = tempfile::tempdir().expect("a directory");
        let found = Backing::open(base.path(), false).expect("a directory");
        assert_eq!((found.path(), found.device()), (base.path(), None));
        let file = base.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let refused = Backing::open(&file, true).expect_err("a file").to_string();
        assert!(refused.contains("neither a directory"), "{refused}");
        assert!(Backing::open(&base.path().join("none"), true).is_err());
    }
}
