//! The null file system: it measures the cost of the transport alone.
//!
//! It keeps names and data in plain maps in memory and discards them at unmount. Nothing is
//! durable, checked or journalled. It uses [`crate`]'s own transport: handshake, buffers and a
//! queue for each worker. The validity of names and attributes is the same, and so are the answers
//! that make the kernel omit requests. Its speed is the upper bound of FUSE on a machine: no file
//! system with the same transport can be much faster. `steadfast lab` measures it as target `null`.
//!
//! Invariants: it answers every request for plain files and directories that Steadfast answers. A
//! request waits only for the lock of the tree. Other features of Steadfast (snapshots, commands,
//! access-control lists, holes) are refused. The tree holds at most `capacity` bytes of data.

mod serve;
mod tree;

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::device::FuseDevice;
use crate::mount::{self, Mount};
use crate::workers::Workers;
use crate::{MountOptions, init};

use tree::Tree;

/// A mounted null file system. [`run`](Self::run) serves it until the end. Dropping it instead
/// unmounts it and waits.
#[derive(Debug)]
pub struct NullSession {
    mount: Mount,
    workers: Workers,
}

/// The state that the workers share.
struct NullFilesystem {
    tree: RwLock<Tree>,
    flush: Duration,
}

/// Mounts an empty null file system of `capacity` bytes on `directory`. Returns when the kernel has
/// the mount. A worker answers each fsync after `flush`, the time of a flush of some medium.
/// Flushes under way at one time do not slow each other.
///
/// # Errors
/// Those of [`crate::mount()`].
pub fn mount(
    directory: &Path,
    capacity: u64,
    flush: Duration,
    options: &MountOptions,
) -> io::Result<NullSession> {
    let (mount, descriptor) = mount::attach(directory, options)?;
    let device = FuseDevice::new(descriptor);
    let undo = |error: io::Error| {
        let _ = mount.detach(true);
        error
    };
    let (_, rings) = init::handshake(&device, options).map_err(undo)?;
    let owner = (mount::effective_uid(), mount::effective_gid());
    let tree = RwLock::new(Tree::new(capacity, owner));
    let shared = Arc::new(NullFilesystem { tree, flush });
    let mut session = NullSession { mount, workers: Workers::default() };
    let place = (&device, directory);
    let started = session.workers.start(&shared, "null", place, options.threads, rings, false);
    started.inspect_err(|_| {
        // Also if no worker could be started.
        let _ = session.mount.detach(true);
    })?;
    if let Some(limits) = session.mount.cache_limits() {
        limits.raise();
    }
    Ok(session)
}

impl NullSession {
    /// Serves the file system until it is unmounted.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(mut self) -> io::Result<()> {
        self.workers.join()
    }
}

impl Drop for NullSession {
    fn drop(&mut self) {
        if !self.workers.is_empty() {
            let _ = self.mount.detach(true);
            let _ = self.workers.join();
        }
    }
}

impl NullFilesystem {
    /// Locks the tree for reading.
    fn reading(&self) -> std::sync::RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the tree for changes.
    fn writing(&self) -> std::sync::RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}
