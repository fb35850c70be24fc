//! A mounted volume: its threads, and how it ends.
//!
//! Threads: *workers* (see [`crate::workers`]) receive and execute requests. The *control* thread
//! waits for the kernel if a command requires it. The *scrub* thread reads the volume on request.
//! The *keeper* manages the helper process (see [`crate::pull`]).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use steadfast::{Platform, TransactionMask, Volume};
use steadfast_media::Medium;

use crate::commands::Commands;
use crate::control;
use crate::device::FuseDevice;
use crate::filesystem::kernels::Kernels;
use crate::filesystem::{Filesystem, Kernel};
use crate::jobs::Job;
use crate::metrics::Metrics;
use crate::mount as mounting;
use crate::pull::{Connection, Puller};
use crate::ring::Rings;
use crate::unmount::UnmountHandle;
use crate::workers::{THREADS_MIN, Workers};
use crate::{MountOptions, init};

/// A mounted volume. [`run`](Self::run) serves it until the end. Dropping it instead unmounts it
/// and waits.
pub struct Session<M: Medium + 'static, P: Platform + Clone + 'static> {
    filesystem: Arc<Filesystem<M, P>>,
    end: UnmountHandle,
    workers: Workers,
    control: Option<JoinHandle<()>>,
    scrub: Option<JoinHandle<()>>,
}

/// Mounts `volume` on `directory` and serves it. Returns when the kernel has the mount.
///
/// The caller does the volume's background work (timer, checkpoints), and closes the volume after
/// [`Session::run`]. While the volume is mounted, change the transaction mask with
/// [`ioctl::mask_set`](crate::ioctl::mask_set), which refuses events that the mount cannot honour.
///
/// # Errors
/// The error has the system's number if there is one. ENOTDIR; ENOENT: the directory, or for
/// non-root users `fusermount3`, does not exist. EPERM; EBUSY; EINVAL: an option, or `write_back`
/// with a transaction mask that has `write`. ENOTCONN: a dead mount is there. A
/// [`steadfast::Error`] is the cause if mask and timer cannot be stored. After an error the volume
/// has its old mask and timer.
pub fn mount<M: Medium + 'static, P: Platform + Clone + 'static>(
    volume: Arc<Volume<M, P>>,
    directory: &Path,
    options: &MountOptions,
) -> io::Result<Session<M, P>> {
    let mut options = options.clone();
    options.read_only |= volume.info().read_only;
    let before = (volume.mask(), volume.timer_ms());
    let wanted = options.parameters.unwrap_or(before);
    if options.write_back && wanted.0.contains(TransactionMask::WRITE) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the transaction mask has 'write', which a write-back cache cannot honour; mount write-through",
        ));
    }
    let (mount, descriptor) = mounting::attach(directory, &options)?;
    let device = FuseDevice::new(descriptor);
    // From here on an error must undo the mount.
    let undo = |error: io::Error| {
        let _ = mount.detach(true);
        error
    };
    let (agreement, rings) = init::handshake(&device, &options).map_err(undo)?;
    // A volume that cannot store the old ones again refuses all changes.
    let restore = |volume: &Volume<M, P>| {
        let _ = volume.change_parameters(before.0, before.1);
    };
    // The workers must find the mask in force.
    if let Err(error) = volume.change_parameters(wanted.0, wanted.1) {
        restore(&volume);
        return Err(undo(io::Error::other(error)));
    }
    let (jobs, received) = mpsc::channel();
    let owner = mounting::effective_uid();
    let metrics = Arc::new(Metrics::new(
        rings.as_ref().map_or(options.threads.max(THREADS_MIN), Rings::threads),
    ));
    let kernels = Kernels::new(&volume, false, None, &metrics, 0);
    let kernel = Kernel { id: 0, device: Some(device.clone()), agreement, owner, tag: 0 };
    let filesystem =
        Arc::new(Filesystem::new(volume, kernels.clone(), kernel, jobs.clone(), metrics));
    kernels.attach(&filesystem);
    let connection = Connection::find(mount.device);
    let puller = Puller::start(
        device.clone(),
        (&mount.directory, mount.device),
        &connection,
        agreement.epochs(),
    );
    // Only this function sets it, so it cannot fail.
    let _ = filesystem.puller.set(puller);
    let end = UnmountHandle::new(mount.clone(), connection, jobs);
    let mut session =
        Session { filesystem, end, workers: Workers::default(), control: None, scrub: None };
    let limits = mount.cache_limits();
    if let Some(limits) = &limits {
        limits.raise();
    }
    // Must precede the first request: the first file could fill the kernel's cache beyond the room
    // of the volume.
    session.filesystem.begin_admission(limits);
    let started = session.start((&device, &mount.directory), options.threads, rings, received);
    if let Err(error) = started {
        let volume = session.filesystem.volume.clone();
        drop(session);
        restore(&volume);
        return Err(error);
    }
    Ok(session)
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Session<M, P> {
    /// Returns a handle to unmount from another thread, such as a signal thread.
    pub fn unmount_handle(&self) -> UnmountHandle {
        self.end.clone()
    }

    /// Returns the counters of the mount, for [`Readings::take`](crate::watch::Readings::take).
    pub fn metrics(&self) -> Arc<Metrics> {
        self.filesystem.metrics.clone()
    }

    /// Returns a handle for commands to this mount from its own process.
    pub fn commands(&self) -> Commands {
        Commands(self.end.clone())
    }

    /// Serves until the volume is unmounted, then ends all threads. Close the volume afterwards.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn run(mut self) -> io::Result<()> {
        self.join()
    }

    fn start(
        &mut self,
        mount: (&FuseDevice, &Path),
        threads: usize,
        rings: Option<Rings>,
        jobs: mpsc::Receiver<Job>,
    ) -> io::Result<()> {
        let filesystem = self.filesystem.clone();
        let run = move || control::run(&*filesystem, &jobs);
        self.control = Some(Builder::new().name("steadfast-ctl".into()).spawn(run)?);
        let filesystem = self.filesystem.clone();
        let run = move || filesystem.kernels.scrubber.run(&filesystem.volume);
        self.scrub = Some(Builder::new().name("steadfast-scrub".into()).spawn(run)?);
        let listeners =
            self.workers.start(&self.filesystem, "steadfast", mount, threads, rings, true)?;
        if let Some(listeners) = listeners {
            self.filesystem
                .volume
                .medium()
                .before_waits(Arc::new(move || listeners.about_to_wait()));
        }
        Ok(())
    }

    fn join(&mut self) -> io::Result<()> {
        let result = self.workers.join();
        if !self.end.0.is_over_now() {
            self.filesystem.settle_all_times();
        }
        self.filesystem.kernels.scrubber.end();
        if let Some(scrub) = self.scrub.take() {
            let _ = scrub.join();
        }
        if let Some(control) = self.control.take() {
            self.end.0.send(Job::Stop);
            let _ = control.join();
        }
        if let Some(puller) = self.filesystem.puller.get() {
            puller.stop();
        }
        result
    }
}

impl<M: Medium + 'static, P: Platform + Clone + 'static> Drop for Session<M, P> {
    fn drop(&mut self) {
        // Also if no thread could be started, because the mount exists.
        if !self.end.0.is_over() {
            let _ = self.end.unmount();
            if self.end.0.is_detached() {
                let _ = self.end.unmount();
            }
            let _ = self.join();
        }
    }
}
