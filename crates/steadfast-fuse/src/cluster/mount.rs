//! [`SharedMount`]: the mount of one node.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::direct::{DirectReads, ReadDirectly};
use super::direct_answers;
use super::keeper::Keeper;
use super::link::Link;
use super::mount_state::{MountState, Target};
use super::ownership::Ownership;
use super::page_keeper::PageKeeper;
use super::switch::Switch;
use crate::MountOptions;
use crate::device::FuseDevice;
use crate::init;
use crate::mount as mounting;
use crate::pull::{self, Connection, Puller};
use crate::unmount::UnmountHandle;
use crate::workers::Workers;

/// Time between two pings.
const PING: Duration = Duration::from_secs(1);

/// The mount of one node of a cluster. [`run`](Self::run) serves it until the end.
pub struct SharedMount {
    shared: Arc<MountState>,
    workers: Workers,
    follower: Option<JoinHandle<()>>,
}

impl SharedMount {
    /// Mounts on `directory`. Requests wait until [`Ownership::follow`] or [`Ownership::own`] tells
    /// where the volume is. `node`: the name of this node, for the owner's log. `dial` connects to
    /// an owner. `direct` reads from the volume's medium, while the owner writes to it.
    ///
    /// # Errors
    /// As [`mount`](crate::mount()).
    pub fn new(
        directory: &Path,
        options: &MountOptions,
        node: &str,
        dial: impl Fn(&Target) -> io::Result<Link> + Send + 'static,
        direct: Option<ReadDirectly>,
    ) -> io::Result<SharedMount> {
        let options = MountOptions { several_kernels: true, ..options.clone() };
        let (mount, descriptor) = mounting::attach(directory, &options)?;
        let device = FuseDevice::new(descriptor);
        // From here on an error must undo the mount.
        let undo = |error: io::Error| {
            let _ = mount.detach(true);
            error
        };
        let (agreement, _) = init::handshake(&device, &options).map_err(undo)?;
        // A node that is no owner has no jobs.
        let (jobs, _) = mpsc::channel();
        let connection = Connection::find(mount.device);
        let at = (&*mount.directory, mount.device);
        let puller = Puller::start(device.clone(), at, &connection, true);
        let end = UnmountHandle::new(mount.clone(), connection, jobs);
        let reads = agreement.looks_before_reads();
        if reads && let Some(limits) = mount.cache_limits() {
            limits.raise_read_ahead();
        }
        let (pages, page_recalls) = PageKeeper::new(device.clone(), puller, reads);
        let keeper = Keeper::new(device.clone(), agreement.epochs(), pages);
        let (direct, plans) = DirectReads::new(direct);
        let switch = Arc::new(Switch::new(keeper, direct));
        let mut workers = Workers::default();
        let at = (&device, &*mount.directory);
        let started = workers.start(&switch, "steadfast", at, options.threads, None, true);
        let fail = |error: io::Error, workers: &mut Workers| {
            end.abandon();
            let _ = workers.join();
            error
        };
        let listeners = started.map_err(|error| fail(error, &mut workers))?;
        direct_answers::start(&switch, plans).map_err(|error| fail(error, &mut workers))?;
        let drops = Arc::downgrade(&switch.keeper.pages);
        // It ends with the mount.
        Builder::new()
            .name("page-recalls".into())
            .spawn(move || PageKeeper::run(&drops, &page_recalls))
            .map_err(|error| fail(error, &mut workers))?;
        let shared = Arc::new(MountState {
            switch,
            device,
            agreement,
            user: mounting::effective_uid(),
            delegations: options.delegations,
            end: end.clone(),
            listeners,
            wish: Mutex::default(),
            wake: Condvar::new(),
            kept: Mutex::default(),
            id: pull::random(),
            attendants: Mutex::default(),
        });
        let (confirm, recalls) = mpsc::channel();
        let confirms = Arc::clone(&shared);
        // It ends with the follower.
        Builder::new()
            .name("recalls".into())
            .spawn(move || confirms.switch.channel.attend(&recalls, PING))
            .map_err(|error| fail(error, &mut workers))?;
        let (follows, node, dial) = (Arc::clone(&shared), node.to_owned(), Box::new(dial));
        let follower = Builder::new()
            .name("follower".into())
            .spawn(move || follows.follow(&node, dial, &confirm))
            .map_err(|error| fail(error, &mut workers))?;
        Ok(SharedMount { shared, workers, follower: Some(follower) })
    }

    /// Returns a handle to unmount from another thread.
    pub fn unmount_handle(&self) -> UnmountHandle {
        self.shared.end.clone()
    }

    /// Returns a handle to give the mount its role from another thread.
    pub fn ownership(&self) -> Ownership {
        Ownership(Arc::clone(&self.shared))
    }

    /// Serves until the volume is unmounted, then ends all threads. An owner drops its
    /// [`Hub`](super::Hub) and closes the volume afterwards.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let result = self.workers.join();
        let cut = self.shared.end.0.is_over_now();
        self.shared.set_target(None, true);
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
        self.shared.finish(cut);
        // The helper process may be looking.
        self.shared.end.0.end_connection();
        self.shared.switch.keeper.pages.end();
        result
    }
}

impl Drop for SharedMount {
    fn drop(&mut self) {
        if !self.shared.end.0.is_over() {
            self.shared.end.abandon();
            let _ = self.join();
        }
    }
}
