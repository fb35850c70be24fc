//! The null file system: what the transport costs by itself.
//!
//! It keeps names and data in plain maps in memory and forgets them when it is unmounted: nothing
//! is durable, nothing is checked, nothing is journalled. What it reaches through [`crate`]'s own
//! transport (the same handshake, the same buffers, a queue for each worker, the same times for
//! which the kernel may keep names and attributes, the same answers by which the kernel does
//! without a request) is the floor of FUSE on a machine: no file system behind the same transport
//! can be much faster. `steadfast lab` measures it as target `null`.
//!
//! Invariants: every request that Steadfast answers for plain files and directories is answered,
//! none of them waits for anything but the lock of the tree; what Steadfast has besides (snapshots,
//! commands, access-control lists, holes) is refused. The tree holds at most `capacity` bytes of
//! data.

mod serve;
mod tree;

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use crate::device::Device;
use crate::mount::{self, Mount};
use crate::workers::Workers;
use crate::{MountOptions, init};

use tree::Tree;

/// A mounted null file system. [`run`](Self::run) it to the end; dropping it instead unmounts and
/// waits.
#[derive(Debug)]
pub struct NullSession {
    mount: Mount,
    workers: Workers,
}

/// What the workers share.
struct Shared {
    tree: RwLock<Tree>,
}

/// Mounts an empty null file system of `capacity` bytes on `directory`. Returns once the kernel has
/// the mount.
///
/// # Errors
/// Those of [`crate::mount()`].
pub fn mount(directory: &Path, capacity: u64, options: &MountOptions) -> io::Result<NullSession> {
    let (mount, descriptor) = mount::attach(directory, options)?;
    let device = Device::new(descriptor);
    let undo = |error: io::Error| {
        let _ = mount.detach(true);
        error
    };
    let (_, rings) = init::handshake(&device, options).map_err(undo)?;
    let owner = (mount::effective_uid(), mount::effective_gid());
    let shared = Arc::new(Shared { tree: RwLock::new(Tree::new(capacity, owner)) });
    let mut session = NullSession { mount, workers: Workers::default() };
    let started = session.workers.start(&shared, "null", &device, options.threads, rings, false);
    started.inspect_err(|_| {
        // Also where none could be started.
        let _ = session.mount.detach(true);
    })?;
    if let Some(limits) = session.mount.cache_limits() {
        limits.raise();
    }
    Ok(session)
}

impl NullSession {
    /// Serves until it is unmounted.
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

impl Shared {
    /// For looking things up.
    fn reading(&self) -> std::sync::RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For changing something.
    fn writing(&self) -> std::sync::RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}
