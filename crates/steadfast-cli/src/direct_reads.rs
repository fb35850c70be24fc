//! Data that a node of a shared volume reads from the medium itself, while another node owns the
//! volume and writes to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast::fs::ReadPlan;
use steadfast_fuse::cluster::ReadDirectly;
use steadfast_host::{FileOptions, HostPlatform, LockMode};

use crate::failure::Outcome;
use crate::medium::HostMedium;
use crate::{host, mtd, rados, remote};

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
    open: Mutex<Option<Arc<HostMedium>>>,
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

    fn medium(&self) -> io::Result<Arc<HostMedium>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(medium) = &*open {
            return Ok(Arc::clone(medium));
        }
        let medium = open_beside_owner(&self.path);
        let medium = Arc::new(medium.map_err(|failure| io::Error::other(failure.to_string()))?);
        Ok(Arc::clone(open.insert(medium)))
    }
}

/// Opens the medium for reading, without a lock.
fn open_beside_owner(path: &Path) -> Outcome<HostMedium> {
    if rados::is_rados(path) {
        return rados::open(path, true);
    }
    let options = FileOptions { read_only: true, lock: LockMode::None, ..FileOptions::default() };
    host::open_with(path, &options)
}
