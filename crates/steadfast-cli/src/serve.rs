//! The life of a mount: checks, lock, volume, mount, signals, and unmount.
//!
//! The order at the end matters. First the kernel releases the mount, then the last transaction
//! point is made, then the lock on the image is released. `steadfast umount` waits for that lock.

use std::fs::{self, OpenOptions as FileOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use steadfast::{OpenOptions, TransactionMask};
use steadfast_fuse::metrics::Metrics;
use steadfast_fuse::watch::Readings;
use steadfast_fuse::{Commands, MountOptions, UnmountHandle};
use steadfast_host::BackgroundThread;

use crate::daemon::Ready;
use crate::dead_mount::stale_or_host;
use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::image::{newer_state_warning, superblock_warning};
use crate::live::Live;
use crate::logger::{Priority, message};
use crate::medium::{HostMedium, HostVolume};
use crate::mount_options::MountSettings;
use crate::observe::server::{Server, SocketFile};
use crate::observe::{Identity, exposition};
use crate::open_failure;
use crate::owning::{NoNodes, Owned};
use crate::report::uuid_text;
use crate::schedule::{Keeper, Snapshots};
use crate::{host, mounts, size};

/// The device that every FUSE mount uses to reach the kernel.
const FUSE_DEVICE: &str = "/dev/fuse";

/// Mounts the volume, which this process may own in a cluster, and serves it until it is unmounted.
///
/// # Errors
/// What prevents the mount, and the failure of the last transaction point.
pub fn run(
    owned: Option<&Owned>,
    image: &Path,
    directory: &Path,
    settings: &MountSettings,
    ready: Ready,
) -> Outcome {
    // Signals are caught before the mount exists, because a signal that ended this process would
    // leave a dead mount. The signal thread and the background thread start before the workers: the
    // number of workers that stand by depends on the threads that are left.
    let unmount_at_signals = watch_signals();
    let prepared = prepare(owned, image, directory, settings, &ready);
    let Prepared { volume, background, session, metrics } = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            ready.failed(&failure);
            return Err(failure);
        }
    };
    log_panics();
    let info = volume.info();
    message(
        Priority::Info,
        format_args!(
            "mounted {} on {} ({}, generation {}, {} records in the log)",
            image.display(),
            directory.display(),
            size::human(info.size),
            info.generation,
            info.replayed_records,
        ),
    );
    let _socket =
        metrics.and_then(|server| serve_metrics(server, &volume, session.metrics(), image));
    if let Some(at_signals) = unmount_at_signals {
        // The signal thread receives the handle at the first signal.
        let _ = at_signals.send(session.unmount_handle());
    }
    if let Some(owned) = owned {
        owned.watch(session.unmount_handle());
    }
    if let Err(error) = ready.mounted() {
        message(
            Priority::Warning,
            format_args!("cannot detach from the starting process: {}", text_os(&error)),
        );
    }
    let keeper = keep_snapshots(settings, &volume, session.commands());
    let served = session.run();
    drop(keeper);
    drop(background);
    finish(image, directory, &volume, served)
}

/// Starts the thread that takes the snapshots of the schedule, if there is one.
pub fn keep_snapshots(
    settings: &MountSettings,
    volume: &Arc<HostVolume>,
    commands: Commands,
) -> Option<Keeper> {
    let schedule = settings.snapshots.clone().filter(|_| !volume.info().read_only)?;
    Keeper::spawn(schedule, Scheduled(Arc::clone(volume), commands))
        .inspect_err(|error| {
            message(
                Priority::Error,
                format_args!("no thread for automatic snapshots: {}", text_os(error)),
            );
        })
        .ok()
}

/// A mounted volume, as its snapshot schedule uses it.
struct Scheduled(Arc<HostVolume>, Commands);

impl Snapshots for Scheduled {
    type Error = String;

    fn list(&self) -> Result<Vec<steadfast::Snapshot>, String> {
        self.0.snapshots().map_err(|error| error.to_string())
    }

    fn create(&self, name: &str) -> Result<(), String> {
        self.1.snapshot_create(name).map_err(|error| text_os(&error))
    }

    fn delete(&self, name: &str) -> Result<(), String> {
        self.1.snapshot_delete(name).map_err(|error| text_os(&error))
    }
}

type Session = steadfast_fuse::Session<HostMedium, steadfast_host::HostPlatform>;

/// A mount that is ready to be served.
struct Prepared {
    volume: Arc<HostVolume>,
    background: Option<BackgroundThread>,
    session: Session,
    metrics: Option<Server>,
}

/// Does everything up to the mount itself; an error leaves nothing behind.
fn prepare(
    owned: Option<&Owned>,
    image: &Path,
    directory: &Path,
    settings: &MountSettings,
    ready: &Ready,
) -> Outcome<Prepared> {
    check_host(directory)?;
    let metrics = settings.metrics.as_ref().map(Server::bind).transpose()?;
    let warn = |line: &str| ready.warn(line);
    let open = |options| match (owned, &settings.snapshot) {
        (Some(owned), _) => owned.open(settings.way, options, &NoNodes),
        (None, Some(name)) => host::open_snapshot(image, settings.way, options, name),
        (None, None) => host::open_volume(image, settings.way, options),
    };
    let volume = open_with(image, settings, &warn, open)?;
    let mount_options = mount_options(image, settings, &volume)?;
    let volume = Arc::new(volume);
    let background = start_background(&volume);
    match steadfast_fuse::mount(Arc::clone(&volume), directory, &mount_options) {
        Ok(session) => Ok(Prepared { volume, background, session, metrics }),
        Err(error) => {
            drop(background);
            let _ = volume.close();
            Err(match error.get_ref().and_then(|cause| cause.downcast_ref()) {
                Some(cause) => Failure::core(steadfast::Error::clone(cause), image.display()),
                None => mount_failure(&error, directory, settings),
            })
        }
    }
}

/// Opens the volume by `open`, and reports what is noteworthy about it.
///
/// # Errors
/// Those of `open`.
pub fn open_with(
    image: &Path,
    settings: &MountSettings,
    warn: &dyn Fn(&str),
    open: impl FnOnce(OpenOptions) -> Outcome<HostVolume>,
) -> Outcome<HostVolume> {
    let volume = open(OpenOptions {
        read_only: settings.read_only,
        cache_size: usize::try_from(settings.cache_size).unwrap_or(usize::MAX),
        access_times: settings.access_times,
        recover: settings.recover,
        shared: settings.shared,
    })?;
    let info = volume.info();
    if let Some(warning) = superblock_warning(&info, image) {
        warn(&warning);
        message(Priority::Warning, &warning);
    }
    if let Some(warning) = newer_state_warning(&volume, image) {
        warn(&warning);
        message(Priority::Warning, &warning);
    }
    Ok(volume)
}

fn mount_options(
    image: &Path,
    settings: &MountSettings,
    volume: &HostVolume,
) -> Outcome<MountOptions> {
    let parameters = settings.parameters(volume, image)?;
    // A write-back cache cannot keep the promise of a transaction point at every write.
    let write_back = settings.write_back_on(image, volume.info().size)
        && !parameters.0.contains(TransactionMask::WRITE);
    let parameters = Some(parameters);
    Ok(MountOptions { write_back, parameters, ..kernel_options(image, settings) })
}

/// The options that do not depend on the volume.
pub fn kernel_options(image: &Path, settings: &MountSettings) -> MountOptions {
    let mut mount_options = MountOptions {
        read_only: settings.read_only,
        allow_other: settings.allow_other,
        default_permissions: true,
        io_uring: settings.io_uring,
        fs_name: mounts::absolute(image).unwrap_or_else(|_| image.to_owned()).display().to_string(),
        root: settings.root,
        delegations: settings.delegations,
        extra: settings.kernel.clone(),
        ..MountOptions::default()
    };
    if let Some(threads) = settings.threads {
        mount_options.threads = threads;
    }
    mount_options
}

/// Starts the thread for the timer and for checkpoints. Without it a volume works, but slower.
pub fn start_background(volume: &Arc<HostVolume>) -> Option<BackgroundThread> {
    BackgroundThread::spawn(Arc::clone(volume), |failure| message(Priority::Error, failure))
        .inspect_err(|error| {
            message(
                Priority::Error,
                format_args!("no background thread, no timer: {}", text_os(error)),
            );
        })
        .ok()
}

/// Checks that this machine can mount a volume on this directory.
///
/// # Errors
/// What is wrong with the directory or with FUSE.
pub fn check_host(directory: &Path) -> Outcome {
    check_directory(directory)?;
    check_fuse_device()
}

fn check_directory(directory: &Path) -> Outcome {
    let metadata = match fs::metadata(directory) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The directory above may be missing too.
            let parents =
                if open_failure::without_directory(directory).is_some() { "-p " } else { "" };
            return Err(Failure::new(
                Exit::CannotMount,
                "the mount point does not exist",
                directory.display(),
                format!("make it with 'mkdir {parents}{}'", directory.display()),
            ));
        }
        Err(error) => return Err(stale_or_host(&error, directory)),
    };
    if !metadata.is_dir() {
        return Err(Failure::new(
            Exit::CannotMount,
            "the mount point is not a directory",
            directory.display(),
            "give an existing directory",
        ));
    }
    match mounts::at(directory) {
        Ok(Some(mount)) => Err(dead(directory).unwrap_or_else(|| {
            Failure::new(
                Exit::Busy,
                format!("a volume is mounted here already ({})", mount.source.display()),
                directory.display(),
                "use another directory, or unmount it first with 'steadfast umount'",
            )
        })),
        Ok(None) => Ok(()),
        Err(error) => Err(Failure::host(&error, "read", Path::new("/proc/self/mountinfo"))),
    }
}

/// The failure to report if the mount on `directory` has lost its daemon. The kernel still answers
/// from its cache then, so only a request to the daemon shows it.
fn dead(directory: &Path) -> Option<Failure> {
    let asked = Live::open(directory).and_then(|live| live.mask());
    asked.err().filter(|failure| failure.exit == Exit::CannotMount)
}

fn check_fuse_device() -> Outcome {
    let Err(error) = FileOptions::new().read(true).write(true).open(FUSE_DEVICE) else {
        return Ok(());
    };
    let (what, advice) = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => (
            "no FUSE on this machine".to_owned(),
            "load it with 'modprobe fuse'; give a container --device /dev/fuse --cap-add SYS_ADMIN",
        ),
        Some(Errno::NODEV | Errno::NXIO) => (
            "the kernel has no FUSE".to_owned(),
            "load it with 'modprobe fuse', or use a kernel that has it",
        ),
        // fusermount3 opens the device with its caller's privileges, so it is no way around this.
        Some(Errno::ACCESS | Errno::PERM) => (
            "no permission to use FUSE".to_owned(),
            "run it as root, or let your user (or its container) open the device",
        ),
        _ => (format!("cannot open FUSE: {}", text_os(&error)), "see the message"),
    };
    let exit = match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => Exit::NoPermission,
        _ => Exit::CannotMount,
    };
    Err(Failure::new(exit, what, FUSE_DEVICE, advice))
}

/// The failure to mount, with advice.
pub fn mount_failure(error: &io::Error, directory: &Path, settings: &MountSettings) -> Failure {
    let place = directory.display();
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) if settings.allow_other => Failure::new(
            Exit::NoPermission,
            "no permission to mount with allow_other",
            place,
            "run it as root, or put 'user_allow_other' into /etc/fuse.conf",
        ),
        Some(Errno::PERM | Errno::ACCESS) => Failure::new(
            Exit::NoPermission,
            "no permission to mount",
            place,
            "mount on a directory that you own and may write, or run it as root",
        ),
        Some(Errno::BUSY) => Failure::new(
            Exit::Busy,
            "the mount point is busy",
            place,
            "use another directory, or unmount what is there",
        ),
        Some(Errno::AGAIN) => Failure::new(
            Exit::CannotMount,
            "too few threads are allowed here",
            place,
            "raise the limit of processes ('ulimit -u', or pids.max of the cgroup)",
        ),
        Some(Errno::NOENT) => Failure::new(
            Exit::CannotMount,
            "fusermount3 is missing",
            place,
            "install the package fuse3, or mount as root",
        ),
        Some(Errno::INVAL) => Failure::new(
            Exit::CannotMount,
            "the kernel refused the mount options",
            place,
            "leave some of -o out, and see the kernel log",
        ),
        _ => {
            // Messages of the mount itself may have several lines.
            let text = text_os(error).replace('\n', "; ");
            Failure::new(
                Exit::CannotMount,
                format!("cannot mount: {text}"),
                place,
                "see the message",
            )
        }
    }
}

/// Serves the mount's metrics. The server holds the volume only during a request, because the end
/// of the volume frees the image.
pub fn serve_metrics(
    server: Server,
    volume: &Arc<HostVolume>,
    metrics: Arc<Metrics>,
    image: &Path,
) -> Option<SocketFile> {
    let info = volume.info();
    let identity = Identity {
        image: mounts::absolute(image).unwrap_or_else(|_| image.to_owned()).display().to_string(),
        label: info.label,
        uuid: uuid_text(&info.uuid),
    };
    let volume = Arc::downgrade(volume);
    let page = move || {
        let readings = Readings::take(&*volume.upgrade()?, &metrics).ok()?;
        Some(exposition::text(&readings, &identity, crate::remote::watched().as_ref()))
    };
    server.start(Arc::new(page)).unwrap_or_else(|error| {
        message(Priority::Error, format_args!("no metrics: {}", text_os(&error)));
        None
    })
}

/// Waits for signals that ask for an end, and unmounts the mount that it receives. A signal that
/// comes earlier waits for the mount. While files are open, the mount leaves the directory tree and
/// is served until they are closed. A second signal ends that wait.
pub fn watch_signals() -> Option<Sender<UnmountHandle>> {
    let (sender, receiver) = mpsc::channel::<UnmountHandle>();
    let started = Signals::new([SIGTERM, SIGINT, SIGHUP]).and_then(|mut signals| {
        let watch = move || {
            let mut told = None;
            for signal in signals.forever() {
                let Some(mount) = told.take().or_else(|| receiver.recv().ok()) else { return };
                message(Priority::Info, format_args!("signal {signal}: unmounting"));
                if let Err(error) = mount.unmount() {
                    message(Priority::Warning, format_args!("cannot unmount: {}", text_os(&error)));
                }
                told = Some(mount);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch)
    });
    if let Err(error) = &started {
        message(Priority::Warning, format_args!("cannot watch for signals: {}", text_os(error)));
    }
    started.ok().map(|_| sender)
}

/// A caught panic is one line in the log, not a trace on a terminal.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        message(Priority::Error, format_args!("internal error, please report it: {panic}"));
    }));
}

/// Makes the last transaction point.
///
/// # Errors
/// Its failure; the mount broke.
pub fn finish(
    image: &Path,
    directory: &Path,
    volume: &HostVolume,
    served: io::Result<()>,
) -> Outcome {
    let closed = volume.close();
    if let Err(error) = &served {
        message(
            Priority::Error,
            format_args!("the mount on {} broke: {}", directory.display(), text_os(error)),
        );
    }
    if let Err(error) = &closed {
        message(
            Priority::Error,
            format_args!(
                "the last transaction point of {} failed: {error}; the one before it is safe",
                image.display()
            ),
        );
    }
    let info = volume.info();
    if let Some(why) = info.poisoned.filter(|_| info.uncommitted > 0) {
        message(
            Priority::Error,
            format_args!(
                "unmounted {}; what was changed since its last transaction point is lost: {why}",
                image.display()
            ),
        );
    }
    closed.map_err(|error| Failure::core(error, image.display()))?;
    served.map_err(|error| Failure::host(&error, "serve the mount", directory))?;
    message(
        Priority::Info,
        format_args!("unmounted {} from {}", image.display(), directory.display()),
    );
    Ok(())
}
