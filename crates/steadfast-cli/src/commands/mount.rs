//! `steadfast mount`: mounts a volume.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::cluster;
use crate::commands::umount;
use crate::daemon::{self, Ready};
use crate::failure::{Exit, Failure, Outcome};
use crate::image;
use crate::logger::Redirect;
use crate::mount_options::{self, MountSettings};
use crate::mounting;
use crate::mounts;
use crate::privileges;
use crate::remount;
use crate::schedule::Schedule;
use crate::serve;

/// Mount a volume; returns once it is mounted
///
/// Options of -o: ro, rw, allow_other, noatime, relatime, timer=INTERVAL, mask=EVENTS (separated by
/// colons), cache=SIZE, threads=N, and those that follow.
///
/// With writeback the kernel collects small writes before it sends them; with writethrough it does
/// not. Without either it does on volumes of at least 64 MiB, and on raw NAND.
///
/// With recover, a damaged newest state is given up, and the volume continues in an older one. With
/// shared, for a disk that other machines reach, a check for another writer surrounds each
/// transaction point. With direct, the mount bypasses the host's page cache; with nodirect not even
/// for large reads and writes. With delegations, nodes that share a volume keep names, attributes
/// and pages for up to 0.5 s, see CLUSTER.md.
///
/// With io_uring=auto|on|off there is a queue for each processor, where root has set
/// /sys/module/fuse/parameters/enable_uring to Y. For Prometheus: metrics=SOCKET or
/// metrics=127.0.0.1:PORT. With snapshot=NAME this snapshot is mounted, read-only. With
/// snapshots=hourly=24:daily=7 snapshots are taken, and that many are kept.
///
/// For the kernel: suid, dev, noexec, sync, dirsync and nosymfollow. Of these suid and dev are for
/// root only; without them set-id programs and device nodes have no effect.
///
/// With remount an existing mount changes: ro, rw, noatime, relatime, and those for the kernel but
/// dirsync. It refuses others that are not in force. Options that contradict each other are
/// refused.
///
/// One word says when changes are durable. With asynchronous, the kernel collects writes. With
/// background or background=INTERVAL, they are written through, with a transaction point within the
/// interval, 1s. With synchronous, every call that changes anything is durable when it returns. A
/// mask that replaces that of the word must not break it; no-EVENT refines it. The volume keeps
/// mask, timer and these three. fstab: `IMAGE DIR fuse.steadfast OPTIONS 0 0`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Image or block device
    image: PathBuf,
    /// Mount point, an existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Stay in the foreground, messages on standard error
    #[arg(short, long)]
    foreground: bool,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Memory for cached nodes and bitmaps; a mount's other memory is bounded
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = mount_options::cache_size,
        allow_hyphen_values = true
    )]
    cache: Option<u64>,
    /// Take snapshots automatically: hourly, daily, weekly, monthly, with the number to keep, such
    /// as hourly=24,daily=7
    #[arg(long, value_name = "SCHEDULE", value_parser = schedule_text)]
    snapshots: Option<String>,
    /// File for the daemon's messages instead of the system log
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Standard output is the ready pipe
    #[arg(long, hide = true)]
    serve: bool,
}

/// A request to mount: what, where and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Image or block device.
    pub image: PathBuf,
    /// Mount point.
    pub directory: PathBuf,
    /// Stay in the foreground.
    pub foreground: bool,
    /// Lists of mount options as given.
    pub options: Vec<String>,
    /// Cache size, bytes; overrides the one in `options`.
    pub cache: Option<u64>,
    /// Log file.
    pub log: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the image, the mount point, the options or the host; nothing is mounted then.
pub fn run(args: &Args) -> Outcome {
    let mut options = args.options.clone();
    // This argument equals the option, which cannot contain a comma.
    options.extend(
        args.snapshots.as_ref().map(|text| format!("snapshots={}", text.replace(',', ":"))),
    );
    if image::recovers() {
        options.push("recover".into());
    }
    let request = Request {
        image: args.image.clone(),
        directory: args.directory.clone(),
        foreground: args.foreground,
        options,
        cache: args.cache,
        log: args.log.clone(),
    };
    if args.serve { serve_detached(&request) } else { mount(&request) }
}

fn schedule_text(text: &str) -> Result<String, String> {
    Schedule::parse(text).map(|_| text.to_owned())
}

/// Mounts as requested.
///
/// # Errors
/// As [`run`].
pub fn mount(request: &Request) -> Outcome {
    if remount::is_asked(&request.options) {
        return remount::remount(&request.directory, &request.options);
    }
    let settings = settings(request)?;
    if request.foreground {
        privileges::give_up(cluster::is_cluster(&request.image));
        let _redirect = request.log.as_deref().map(|path| Redirect::new(Some(path))).transpose()?;
        return mounting::run(&request.image, &request.directory, &settings, Ready::Foreground);
    }
    // The daemon checks again. This check does not depend on whether a daemon can be started.
    serve::check_host(&request.directory)?;
    let name = if settings.root { daemon::NAME_OF_ROOT } else { daemon::NAME };
    daemon::start(name, &arguments(request)?)?;
    // Waits until the kernel and the daemon have agreed on the protocol, so that the first use of
    // the mount cannot fail.
    std::fs::metadata(&request.directory).map(drop).map_err(|error| {
        // A mount whose root directory cannot be read is useless. A failure to unmount it would
        // hide the cause.
        let _ = umount::quietly(&request.directory);
        match Errno::from_io_error(&error) {
            Some(Errno::IO) => Failure::new(
                Exit::Damaged,
                "the root directory cannot be read",
                request.image.display(),
                "copy what can still be read with 'steadfast check --salvage DIR'",
            ),
            _ => Failure::host(&error, "use the new mount", &request.directory),
        }
    })
}

/// The daemon's side of [`mount`].
fn serve_detached(request: &Request) -> Outcome {
    daemon::detach();
    privileges::give_up(cluster::is_cluster(&request.image));
    let prepared = Redirect::new(request.log.as_deref())
        .and_then(|redirect| Ok((redirect, settings(request)?)));
    match prepared {
        Ok((_redirect, settings)) => {
            mounting::run(&request.image, &request.directory, &settings, Ready::Pipe)
        }
        Err(failure) => {
            Ready::Pipe.failed(&failure);
            Err(failure)
        }
    }
}

fn settings(request: &Request) -> Outcome<MountSettings> {
    let mut settings = MountSettings::default();
    for list in &request.options {
        settings.apply(list).map_err(|line| {
            Failure::new(Exit::Usage, line, request.image.display(), "see 'steadfast mount --help'")
        })?;
    }
    if let Some(cache) = request.cache {
        settings.cache_size = cache;
    }
    Ok(settings)
}

/// The command line of the daemon: the same request with absolute paths, because the daemon runs in
/// `/`.
fn arguments(request: &Request) -> Outcome<Vec<OsString>> {
    let absolute = |path: &Path| {
        mounts::absolute(path)
            .map(PathBuf::into_os_string)
            .map_err(|error| Failure::host(&error, "open", path))
    };
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--serve".into()];
    for list in &request.options {
        arguments.extend(["-o".into(), list.into()]);
    }
    if let Some(cache) = request.cache {
        arguments.extend(["--cache".into(), cache.to_string().into()]);
    }
    if let Some(log) = &request.log {
        arguments.extend(["--log".into(), absolute(log)?]);
    }
    arguments.extend([
        OsStr::new("--").to_owned(),
        absolute(&request.image)?,
        absolute(&request.directory)?,
    ]);
    Ok(arguments)
}
