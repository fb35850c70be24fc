//! `steadfast umount`: unmounts a volume and waits until it is closed.
//!
//! The kernel releases a FUSE mount before the daemon has made its last transaction point. Cutting
//! the power, copying the image or mounting it again is safe only after that point. So this command
//! waits for it. The daemon holds the lock on the image until the volume is closed, and the command
//! waits for that lock.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use steadfast::TransactionMask;

use crate::answers;
use crate::copies::{FileSystem, OtherMount};
use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::live::{Live, LostWrites};
use crate::mounts::{self, Mount};
use crate::pause::Pause;
use crate::{cluster, host, output};

/// Time after which the command reports that it is still waiting, and looks for what keeps the
/// file system mounted.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmount a volume and wait until its last transaction point is made
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Mount point (or the image that is mounted)
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Print nothing on success
    #[arg(short, long)]
    quiet: bool,
    /// Take the mount out of the tree at once, even if files are in use; it is served until they
    /// are closed
    #[arg(short, long)]
    lazy: bool,
}

/// Unmounts on behalf of umount(8).
///
/// # Errors
/// As [`run`].
pub fn for_umount(target: &Path, quiet: bool, lazy: bool) -> Outcome {
    run(&Args { target: target.to_owned(), quiet, lazy })
}

/// Unmounts `target` without any output.
///
/// # Errors
/// As [`run`].
pub fn quietly(target: &Path) -> Outcome {
    for_umount(target, true, false)
}

/// Runs the command.
///
/// # Errors
/// Nothing is mounted there, files are in use, or the last transaction point failed.
pub fn run(args: &Args) -> Outcome {
    let mount = find(&args.target)?;
    // A node of a cluster that reaches no owner answers nothing. Nothing that this node could save
    // is lost by its end.
    if cluster::is_cluster(&mount.source)
        && answers::silent(std::slice::from_ref(&mount.directory)) == [true]
    {
        return without_owner(&mount, args.quiet);
    }
    let last = last_point(&mount);
    // A failed commit is reported, but must not keep the volume mounted: the unmount continues.
    let (kept, warning) = match last {
        Ok(kept) => (kept, None),
        Err(failure) => (LastPoint::Unseen, Some(failure)),
    };
    let lost = Live::open(&mount.directory).ok().and_then(|live| live.lost_writes());
    let daemon = Daemon::of(&mount);
    let file_system = FileSystem::at(&mount.directory).ok().flatten();
    if let Err(failure) = take_out(&mount, args.lazy) {
        return Err(match failure.exit {
            Exit::Busy => busy(&mount, &kept, warning.as_ref(), lost.as_ref()),
            _ => failure,
        });
    }
    if !args.lazy {
        if let Some(copy) = wait_closed(&mount, file_system.as_ref())? {
            return Err(mounted_elsewhere(&mount, &copy, &kept));
        }
        daemon.wait_ended();
    }
    if let Some(failure) = warning {
        let what = format!("unmounted, but the last transaction point failed: {}", failure.what);
        let advice = if failure.exit == Exit::NoSpace {
            "what was changed since the one before it is lost: make room, then mount again"
        } else {
            "what was changed since the one before it is lost: look at the storage, run 'steadfast check', then mount again"
        };
        return Err(Failure::new(failure.exit, what, failure.place, advice));
    }
    if let Some(lost) = lost {
        return Err(lost.failure("unmounted", mount.source.display()));
    }
    if args.quiet {
        return Ok(());
    }
    let (image, directory) = (mount.source.display(), mount.directory.display());
    match kept {
        // Open files may still be written to.
        LastPoint::Made | LastPoint::ReadOnly if args.lazy => output::line(format_args!(
            "{image}: taken out of {directory}; it is served until its last file is closed, and is not closed before that"
        )),
        LastPoint::Made => {
            output::line(format_args!("{image}: unmounted from {directory}, everything is durable"))
        }
        LastPoint::ReadOnly | LastPoint::Unseen => {
            output::line(format_args!("{image}: unmounted from {directory}"))
        }
        LastPoint::MaskedOut => output::line(format_args!(
            "{image}: unmounted from {directory}, back at its last transaction point ('unmount' is not in the mask)"
        )),
        LastPoint::Lost => output::line(format_args!(
            "{image}: the mount on {directory} had lost its daemon and is cleared; the volume is at its last transaction point"
        )),
    }
}

/// Unmounts a node that reaches no owner: what waits for one fails.
fn without_owner(mount: &Mount, quiet: bool) -> Outcome {
    let daemon = Daemon::of(mount);
    unmount(&mount.directory, UnmountFlags::FORCE | UnmountFlags::DETACH)
        .map_err(|errno| Failure::host(&errno.into(), "unmount", &mount.directory))?;
    daemon.wait_ended();
    if quiet {
        return Ok(());
    }
    output::line(format_args!(
        "{}: unmounted from {}; no owner answered, what waited for one has failed",
        mount.source.display(),
        mount.directory.display()
    ))
}

/// The fate of the changes since the last transaction point.
enum LastPoint {
    /// The changes are durable.
    Made,
    /// There are no changes.
    ReadOnly,
    /// The mask says to drop the changes.
    MaskedOut,
    /// The daemon had ended, so the changes are lost.
    Lost,
    /// The daemon handles the changes; this process has no permission to ask.
    Unseen,
}

fn find(target: &Path) -> Outcome<Mount> {
    let proc_failure = |error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo"));
    let found = match mounts::at(target).map_err(proc_failure)? {
        None => mounts::of_source(target).map_err(proc_failure)?,
        found => found,
    };
    found.ok_or_else(|| {
        let what = match fs::symlink_metadata(crate::window::split(target)) {
            Err(_) => "does not exist",
            Ok(_) => "no Steadfast volume is mounted here",
        };
        Failure::new(
            Exit::Failed,
            what,
            target.display(),
            "see what is mounted with 'steadfast df'",
        )
    })
}

/// Sets a transaction point while its failure can still be reported. The one at the end then has
/// little to do.
fn last_point(mount: &Mount) -> Outcome<LastPoint> {
    if mount.read_only {
        return Ok(LastPoint::ReadOnly);
    }
    match commit(mount) {
        // The daemon has ended, so there is nothing to commit.
        Err(failure) if failure.exit == Exit::CannotMount => Ok(LastPoint::Lost),
        // The mount belongs to another user, and even root has no access: its daemon commits by
        // itself.
        Err(failure) if failure.exit == Exit::NoPermission => Ok(LastPoint::Unseen),
        result => result,
    }
}

fn commit(mount: &Mount) -> Outcome<LastPoint> {
    let live = Live::open(&mount.directory)?;
    let (mask, _) = live.mask()?;
    if !mask.contains(TransactionMask::UNMOUNT) {
        return Ok(LastPoint::MaskedOut);
    }
    live.transact()?;
    Ok(LastPoint::Made)
}

/// Takes the mount out of the directory tree.
fn take_out(mount: &Mount, lazy: bool) -> Outcome {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(&mount.directory, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => take_out_as_user(mount, lazy),
        Err(Errno::BUSY) => Err(in_use(mount, String::new())),
        Err(errno) => Err(Failure::host(&errno.into(), "unmount", &mount.directory)),
    }
}

/// Without privileges, the helper of the FUSE package unmounts on behalf of the owner of the mount.
fn take_out_as_user(mount: &Mount, lazy: bool) -> Outcome {
    let output = Command::new("fusermount3")
        .args(if lazy { ["-uz", "--"] } else { ["-u", "--"] })
        .arg(&mount.directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            Failure::new(
                Exit::CannotMount,
                format!("cannot run fusermount3: {}", text_os(&error)),
                mount.directory.display(),
                "install the package fuse3, or unmount as root",
            )
        })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    if text.contains("busy") {
        return Err(in_use(mount, String::new()));
    }
    Err(Failure::new(
        Exit::NoPermission,
        format!("cannot unmount: {text}"),
        mount.directory.display(),
        "unmount as the user who mounted it, or as root",
    ))
}

/// The failure if the mount stays. It says what that means for the changes.
fn busy(
    mount: &Mount,
    kept: &LastPoint,
    warning: Option<&Failure>,
    lost: Option<&LostWrites>,
) -> Failure {
    let directory = mount.directory.display();
    let state = match (kept, warning) {
        (LastPoint::Made, None) if let Some(lost) = lost => format!("; {}", lost.text()),
        (_, Some(failure)) => {
            format!("; changes since the last transaction point are not durable: {}", failure.what)
        }
        (LastPoint::Made, None) => "; everything up to now is durable".to_owned(),
        (LastPoint::MaskedOut, None) => format!(
            "; changes since the last transaction point are not durable, 'steadfast transact {directory}' makes them so"
        ),
        (LastPoint::Lost, None) => {
            "; the daemon is gone, and with it what was changed since the last transaction point"
                .to_owned()
        }
        (LastPoint::ReadOnly | LastPoint::Unseen, None) => String::new(),
    };
    in_use(mount, state)
}

fn in_use(mount: &Mount, state: String) -> Failure {
    let directory = mount.directory.display();
    let advice =
        format!("close them and try again; 'fuser -vm {directory}' shows who has them{state}");
    Failure::new(Exit::Busy, "files on the mount are in use", directory, advice)
}

/// The process that serves a mount, if it is known.
struct Daemon(Option<OwnedFd>);

impl Daemon {
    fn of(mount: &Mount) -> Daemon {
        let pid =
            host::lock_owner(&mount.source).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Daemon(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// Also waits briefly until the process has ended, so that process lists and the storage below
    /// show the end. The volume is already closed. The process may also do other work, so the wait
    /// is limited.
    fn wait_ended(&self) {
        let Some(process) = &self.0 else { return };
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        // The descriptor is readable once the process has ended.
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit));
    }
}

/// The failure if the mount is gone from here and not from everywhere.
fn mounted_elsewhere(mount: &Mount, copy: &OtherMount, kept: &LastPoint) -> Failure {
    let state = match kept {
        LastPoint::Made => "; everything up to now is durable",
        _ => "",
    };
    Failure::new(
        Exit::Busy,
        format!("unmounted from {}, but {copy}", mount.directory.display()),
        mount.source.display(),
        format!("the volume is closed when that is gone, too{state}"),
    )
}

/// Waits until the daemon has released the image, or until there is no image to wait for. Returns
/// another mount that keeps the daemon from that.
fn wait_closed(mount: &Mount, file_system: Option<&FileSystem>) -> Outcome<Option<OtherMount>> {
    let start = Instant::now();
    let (mut told, mut pause) = (false, Pause::new());
    let mut look_at = PATIENCE;
    while host::is_locked(&mount.source)? {
        // Another process has mounted the volume again between two checks, or the whole mount is
        // bound to another directory.
        if mounts::of_source(&mount.source).is_ok_and(|found| found.is_some()) {
            return Ok(file_system.and_then(FileSystem::copy_here));
        }
        // A namespace that is ending loses its copy by itself, so this look is not the first.
        if start.elapsed() > look_at {
            look_at = start.elapsed() + PATIENCE;
            if let Some(copy) = file_system.and_then(FileSystem::copy) {
                return Ok(Some(copy));
            }
        }
        if !told && start.elapsed() > PATIENCE {
            told = true;
            eprintln!(
                "steadfast: waiting for the last transaction point of {}",
                mount.source.display()
            );
        }
        pause.wait();
    }
    Ok(None)
}
