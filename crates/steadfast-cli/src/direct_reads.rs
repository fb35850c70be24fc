//! Data that a node of a shared volume reads from the medium itself, while another node owns the
//! volume and writes to it.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use steadfast::fs::ReadPlan;
use steadfast_fuse::cluster::ReadDirectly;
use steadfast_host::{FileOptions, HostPlatform, LockMode};

use crate::failure::Outcome;
use crate::medium::HostMedium;
use crate::{host, mtd, rados, remote, window};

/// How this node reads from the medium. `None`: only its owner can. Those are arrays of remote
/// memory, which have one client, and flash, whose translation layer is in the owner's memory.
pub fn read_directly(path: &Path) -> Option<ReadDirectly> {
    if remote::is_remote(path) || mtd::is_mtd(path) {
        return None;
    }
    let source = Source { path: path.to_owned(), open: Mutex::default() };
    let platform = HostPlatform::new();
    Some(Box::new(move |plan| source.read(plan, &platform)))
}

/// The medium, opened by the first read.
struct Source {
    path: PathBuf,
    open: Mutex<Option<HostMedium>>,
}

impl Source {
    fn read(&self, plan: &ReadPlan, platform: &HostPlatform) -> io::Result<Option<Vec<u8>>> {
        let medium = self.medium()?;
        plan.read(&medium, platform).map_err(|error| {
            // It may have another size by now, or be another one.
            *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
            io::Error::other(format!("{}: {error}", self.path.display()))
        })
    }

    fn medium(&self) -> io::Result<HostMedium> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(medium) = &*open {
            return Ok(medium.clone());
        }
        let medium = open_beside_owner(&self.path);
        let medium = medium.map_err(|failure| io::Error::other(failure.to_string()))?;
        Ok(open.insert(medium).clone())
    }
}

/// Opens the medium for reading, without a lock.
fn open_beside_owner(path: &Path) -> Outcome<HostMedium> {
    if rados::is_rados(path) {
        return rados::open(path, true);
    }
    // A page of a disk that this node cached would be old when the node becomes the owner.
    let device = window::find(path)?.map_or_else(|| path.to_owned(), |place| place.path);
    let direct = std::fs::metadata(device).is_ok_and(|found| found.file_type().is_block_device());
    let lock = LockMode::None;
    host::open_with(path, &FileOptions { read_only: true, direct, lock, ..Default::default() })
}
