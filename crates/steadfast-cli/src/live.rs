//! A mounted volume, accessed by ioctl on a directory of the mount.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use rustix::io::Errno;
use steadfast::{InodeChange, TransactionMask, VolumeInfo};
use steadfast_fuse::ioctl::{self, LostWritesArgument};
use steadfast_fuse::scrub::{self, ScrubStatus};
use steadfast_fuse::watch::{self, Readings};

use crate::dead_mount::{is_daemon_gone, stale_or_host};
use crate::failure::{Exit, Failure, Outcome, text_os};
use crate::mounts::{self, Mount};
use crate::size;
use crate::snapshot_failure::explain_live;

/// An open directory of a mounted volume.
pub struct Live {
    /// The mount.
    pub mount: Mount,
    file: File,
}

/// Writes that the kernel's cache accepted and the volume could not store.
pub struct LostWrites {
    bytes: u64,
    /// That of the last one.
    error: io::Error,
}

impl LostWrites {
    /// Mounts of the kernel module do not lose writes in this way, and refuse the question.
    fn of(answer: io::Result<LostWritesArgument>) -> Option<LostWrites> {
        let lost = answer.ok().filter(|lost| lost.errno != 0)?;
        let errno = i32::try_from(lost.errno).unwrap_or(Errno::IO.raw_os_error());
        Some(LostWrites { bytes: lost.bytes, error: io::Error::from_raw_os_error(errno) })
    }

    /// What was lost, and why.
    pub fn text(&self) -> String {
        let (bytes, why) = (size::human(self.bytes), text_os(&self.error));
        format!("{bytes} that programs had written could not be stored: {why}")
    }

    /// The failure behind something that has worked otherwise.
    pub fn failure(&self, done: &str, place: impl Display) -> Failure {
        let full = Errno::from_io_error(&self.error) == Some(Errno::NOSPC);
        Failure::new(
            if full { Exit::NoSpace } else { Exit::Failed },
            format!("{done}, but {}", self.text()),
            place,
            "the daemon's messages name the inodes; write those files again",
        )
    }
}

impl Live {
    /// Opens the Steadfast mount that holds the directory `path`.
    ///
    /// # Errors
    /// `path` is not on a Steadfast mount, the daemon has ended, or access is refused.
    pub fn open(path: &Path) -> Outcome<Live> {
        let mount = mounts::holding(path)
            .map_err(|error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo")))?
            .ok_or_else(|| {
                Failure::new(
                    Exit::NotAVolume,
                    "no Steadfast volume is mounted here",
                    path.display(),
                    "give the mount point of a mounted volume, or an image",
                )
            })?;
        let file = File::open(&mount.directory)
            .map_err(|error| stale_or_host(&error, &mount.directory))?;
        Ok(Live { mount, file })
    }

    /// The mount point.
    pub fn directory(&self) -> &PathBuf {
        &self.mount.directory
    }

    /// Whether the mount point still shows this mount. If not, programs that use its path reach
    /// what is below it, or above.
    pub fn is_in_place(&self) -> bool {
        let (flags, wanted) = (AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let mount = |found: rustix::io::Result<Statx>| found.map(|found| found.stx_mnt_id).ok();
        let here = mount(statx(&self.file, "", flags, wanted));
        here.is_some() && here == mount(statx(CWD, self.directory(), AtFlags::empty(), wanted))
    }

    /// An open file of the mount, for statistics.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes every change accepted so far durable, including dirty pages of the kernel.
    ///
    /// # Errors
    /// Those of the medium and the volume.
    pub fn transact(&self) -> Outcome {
        ioctl::transact(&self.file).map_err(|error| self.failure(&error))
    }

    /// Returns the volume to the last durable transaction point.
    ///
    /// # Errors
    /// Busy while files are open for writing, unless `force` is set.
    pub fn rollback(&self, force: bool) -> Outcome {
        ioctl::rollback(&self.file, force).map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::BUSY) {
                return Failure::new(
                    Exit::Busy,
                    "files are open for writing",
                    self.directory().display(),
                    "close them, or drop what they hold with 'steadfast rollback --force'",
                );
            }
            self.failure(&error)
        })
    }

    /// Holds the volume: from here on all changes become durable together by [`Atomic::commit`], or
    /// not at all.
    ///
    /// # Errors
    /// Busy while another command holds it; no permission.
    pub fn begin_atomic(&self) -> Outcome<Atomic<'_>> {
        let path = self.directory().join(ioctl::CONTROL_FILE);
        let control = File::open(&path).map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::NOENT) {
                return self.failure(&Errno::NOTTY.into());
            }
            self.failure(&error)
        })?;
        // A child that inherits the descriptor keeps the volume held when this process is killed.
        rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::empty())
            .map_err(|error| self.failure(&error.into()))?;
        ioctl::atomic_begin(&control).map_err(|error| self.failure(&error))?;
        Ok(Atomic { live: self, control })
    }

    /// What programs have written since the volume was mounted and it could not store.
    pub fn lost_writes(&self) -> Option<LostWrites> {
        LostWrites::of(ioctl::lost_writes(&self.file))
    }

    /// The same, of what no call has told any program, this one included.
    pub fn lost_writes_new(&self) -> Option<LostWrites> {
        LostWrites::of(ioctl::lost_writes_new(&self.file))
    }

    /// Whether a program has received "no space" since the volume was held.
    pub fn ran_out_of_space(&self) -> bool {
        ioctl::atomic_status(&self.file)
            .is_ok_and(|status| status.flags & ioctl::atomic_flag::NO_SPACE != 0)
    }

    /// Discards free runs of at least `least` bytes; returns the number of discarded bytes.
    ///
    /// # Errors
    /// Only the mounting user and root may; a transaction holds the volume; it is read-only.
    pub fn trim(&self, least: u64) -> Outcome<u64> {
        ioctl::trim(&self.file, least).map_err(|error| self.failure(&error))
    }

    /// The transaction mask and the timer in milliseconds.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn mask(&self) -> Outcome<(TransactionMask, u32)> {
        ioctl::mask_get(&self.file).map_err(|error| self.failure(&error))
    }

    /// Updates access times, or no longer.
    ///
    /// # Errors
    /// No permission; the daemon has ended.
    pub fn set_access_times(&self, updated: bool) -> Outcome {
        match ioctl::access_times(&self.file, updated) {
            // The kernel module does as the flags of the mount say.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTTY) => Ok(()),
            result => result.map_err(|error| self.failure(&error)),
        }
    }

    /// Sets the transaction mask and the timer.
    ///
    /// # Errors
    /// The mount cannot keep the mask's promise: `write` on a write-back mount, or `close` when the
    /// kernel no longer reports it.
    pub fn set_mask(&self, mask: TransactionMask, timer_ms: u32) -> Outcome {
        ioctl::mask_set(&self.file, mask, timer_ms).map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) && mask.contains(TransactionMask::WRITE)
            {
                return Failure::new(
                    Exit::Failed,
                    "'write' needs a write-through mount",
                    self.directory().display(),
                    "mount with -o writethrough, or leave 'write' out of the mask",
                );
            }
            if Errno::from_io_error(&error) == Some(Errno::BUSY) && mask.contains(TransactionMask::CLOSE) {
                let image = self.mount.source.display();
                return Failure::new(
                    Exit::Busy,
                    "too late for 'close': the kernel does not report it to this mount any more",
                    self.directory().display(),
                    format!(
                        "unmount, then mount with -o mask=+close or run 'steadfast mask set {image} +close'"
                    ),
                );
            }
            self.failure(&error)
        })
    }

    /// Information about the volume.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn info(&self) -> Outcome<VolumeInfo> {
        ioctl::info(&self.file).map_err(|error| self.failure(&error))
    }

    /// The current counters.
    ///
    /// # Errors
    /// The daemon has ended, or is of another version.
    pub fn readings(&self) -> Outcome<Readings> {
        self.watch(watch::readings)
    }

    /// Runs one of the commands of [`watch`].
    ///
    /// # Errors
    /// The daemon has ended, or is of another version.
    pub fn watch<T>(&self, look: impl FnOnce(&File) -> io::Result<T>) -> Outcome<T> {
        look(&self.file).map_err(|error| self.failure(&error))
    }

    /// Takes a snapshot, including dirty pages of the kernel. `place` names it in messages.
    ///
    /// # Errors
    /// The name exists or is not allowed, there is no space, and those of
    /// [`transact`](Self::transact).
    pub fn snapshot_create(&self, name: &str, place: &str) -> Outcome<steadfast::Snapshot> {
        ioctl::snapshot_create(&self.file, name)
            .map_err(|error| self.snapshot_failure(&error, place))
    }

    /// Deletes a snapshot.
    ///
    /// # Errors
    /// There is no snapshot of this name.
    pub fn snapshot_delete(&self, name: &str, place: &str) -> Outcome {
        ioctl::snapshot_delete(&self.file, name)
            .map_err(|error| self.snapshot_failure(&error, place))
    }

    /// Returns the volume to a snapshot. `force` destroys newer snapshots, and allows open files
    /// that are written to.
    ///
    /// # Errors
    /// There is no snapshot of this name, or `force` is needed.
    pub fn snapshot_rollback(&self, name: &str, force: bool, place: &str) -> Outcome {
        ioctl::snapshot_rollback(&self.file, name, force, force)
            .map_err(|error| self.snapshot_failure(&error, place))
    }

    /// The snapshots, oldest first.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn snapshots(&self) -> Outcome<Vec<steadfast::Snapshot>> {
        ioctl::snapshots(&self.file).map_err(|error| self.failure(&error))
    }

    /// The inodes that differ between the snapshot `before` and the snapshot `after` or, without
    /// it, the live volume with everything written up to now.
    ///
    /// # Errors
    /// One of the snapshots does not exist.
    pub fn snapshot_diff(&self, before: &str, after: Option<&str>) -> Outcome<Vec<InodeChange>> {
        if after.is_none() {
            self.transact()?;
        }
        let place = self.directory().display().to_string();
        ioctl::snapshot_diff(&self.file, before, after)
            .map_err(|error| self.snapshot_failure(&error, &place))
    }

    fn snapshot_failure(&self, error: &io::Error, place: &str) -> Failure {
        explain_live(self.failure(error), error, place)
    }

    /// Makes the volume, and the image below it, larger.
    ///
    /// # Errors
    /// The image cannot be made larger; no permission.
    pub fn grow(&self, size: u64) -> Outcome {
        ioctl::grow(&self.file, size).map_err(|error| {
            let mut failure = self.failure(&error);
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::INVAL | Errno::FBIG | Errno::NXIO)
            ) {
                failure.what = "the image or device below cannot have that size".into();
                failure.advice = "make the device larger first, or ask for less".into();
            }
            failure
        })
    }

    /// Starts a scrub in the background at `rate` bytes per second; 0 sets no limit.
    ///
    /// # Errors
    /// Busy while another scrub runs.
    pub fn scrub_start(&self, rate: u64) -> Outcome {
        scrub::start(&self.file, rate).map_err(|error| {
            if Errno::from_io_error(&error) == Some(Errno::BUSY) {
                return Failure::new(
                    Exit::Busy,
                    "a scrub is under way",
                    self.directory().display(),
                    "look at it with 'steadfast scrub --status', or end it with --stop",
                );
            }
            self.failure(&error)
        })
    }

    /// Stops the running scrub.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn scrub_stop(&self) -> Outcome {
        scrub::stop(&self.file).map_err(|error| self.failure(&error))
    }

    /// The progress of the running scrub, or the result of the last one.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn scrub_status(&self) -> Outcome<ScrubStatus> {
        scrub::status(&self.file).map_err(|error| self.failure(&error))
    }

    pub fn failure(&self, error: &io::Error) -> Failure {
        let place = self.directory().display();
        match Errno::from_io_error(error) {
            _ if is_daemon_gone(error) => stale_or_host(error, self.directory()),
            Some(Errno::PERM | Errno::ACCESS) => Failure::new(
                Exit::NoPermission,
                "this needs the user who mounted the volume, or root",
                place,
                "run the command as that user",
            ),
            Some(Errno::ALREADY) => {
                let process = ioctl::atomic_status(&self.file).map_or(0, |status| status.process);
                let who =
                    if process == 0 { String::new() } else { format!(" (process {process})") };
                Failure::new(
                    Exit::Busy,
                    format!("an atomic command{who} is running on the volume"),
                    place,
                    "wait until it has ended, or end it and what it has started",
                )
            }
            Some(Errno::NOTTY) => Failure::new(
                Exit::NotAVolume,
                "the mount does not know this command",
                place,
                "it was mounted by another version of steadfast: mount it again with this one",
            ),
            Some(errno @ (Errno::NOSPC | Errno::ROFS)) => {
                let why = self.info().ok().and_then(|info| info.poisoned);
                let told = match errno {
                    Errno::NOSPC => steadfast::Error::NoSpace,
                    _ => steadfast::Error::ReadOnly,
                };
                Failure::core(why.map_or(told, steadfast::Error::Poisoned), place)
            }
            _ => Failure::host(error, "reach the volume", self.directory()),
        }
    }
}

/// A volume that this process holds. The mount rolls the volume back if this is dropped without
/// [`commit`](Self::commit), or if the process is killed.
pub struct Atomic<'a> {
    live: &'a Live,
    control: File,
}

impl Atomic<'_> {
    /// Makes every change since the volume was held durable.
    ///
    /// # Errors
    /// The changes could not be written; none of them is durable then.
    pub fn commit(&self) -> Outcome {
        ioctl::atomic_commit(&self.control).map_err(|error| {
            let failure = self.live.failure(&error);
            Failure::new(
                failure.exit,
                format!("not committed: {}", failure.what),
                failure.place,
                failure.advice,
            )
        })
    }

    /// Returns the volume to its state at the time it was held.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub fn abort(&self) -> Outcome {
        ioctl::atomic_abort(&self.control).map_err(|error| self.live.failure(&error))
    }
}
