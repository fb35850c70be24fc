//! The file systems under test, behind two traits. [`Target`] is a volume that can be made,
//! mounted, unmounted and torn down. [`Files`] is the access for workloads, by system calls on a
//! directory or by calls of a library.
//!
//! # Invariants
//! - Every object (image, loop device, mount, daemon) is entered in [`cleanup`] before it exists or
//!   immediately afterwards. It is removed in every case: at the end, after an error, a panic, or
//!   Ctrl-C.
//! - All volumes of a run have the same size. Either all are in the same backing directory, each on
//!   a loop device with direct I/O. Then nothing is cached twice, and the traffic of the medium is
//!   counted in one place. Or all use the same block device, one after the other.
//! - A target never falls back to something else: a missing tool is a
//!   [`Trouble::Skip`](crate::Trouble) with its name.

mod backing;
pub mod cleanup;
mod directory;
mod fat;
mod files;
mod image;
mod kernel;
mod library;
mod mounted;
mod null;
mod planted;
mod shutdown;
mod stacked;
mod steadfast;
mod system;
mod tool;

pub use backing::Backing;
pub use directory::{DirectoryTarget, mount_of};
pub use fat::{FatOn, FatTarget};
pub use files::{Files, Kind, Open, OpenFile, Stat};
pub use image::Image;
pub use kernel::{KernelTarget, Recipe};
pub use library::{Cached, LibraryTarget};
pub use null::{NullTarget, READY as NULL_READY};
pub use planted::{CorruptingTarget, SlowTarget};
pub use stacked::{Layer, StackedTarget};
pub use steadfast::{FuseTarget, Transactions};
pub use system::SystemFiles;
pub use tool::{run_tool, version_of};

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::result;
use crate::{Outcome, Trouble};

/// The site of a run, common to all its targets.
#[derive(Debug, Clone)]
pub struct Site {
    /// Directory of this run, below the backing directory if there is one: for images and mount
    /// points. It exists and belongs to this run.
    pub scratch: PathBuf,
    /// The block device that all targets use in turn; `None`: each has its own image.
    pub device: Option<PathBuf>,
    /// Size of each volume, bytes.
    pub volume_size: u64,
    /// The `steadfast` program, for its daemon.
    pub program: PathBuf,
    /// The `steadfast-lab` program, for the daemon of the null file system.
    pub lab: PathBuf,
}

/// A file system under test.
pub trait Target {
    /// The name for `--on`.
    fn id(&self) -> &str;

    /// The description for the result. Mount options are known after the first mount.
    fn describe(&self) -> result::TargetDescription;

    /// Makes a fresh, empty volume and mounts it; an earlier one is lost.
    ///
    /// # Errors
    /// `Skip` if a tool or driver is missing; otherwise the failure. Nothing is mounted then.
    fn make(&mut self) -> Outcome;

    /// Unmounts cleanly.
    ///
    /// # Errors
    /// The unmount failed; the volume is still mounted then.
    fn unmount(&mut self) -> Outcome;

    /// Mounts the existing volume again. The time is that of the command, from start to return.
    ///
    /// # Errors
    /// `Skip` if that is not possible (a given directory).
    fn mount(&mut self) -> Outcome<Duration>;

    /// Simulates a power cut: from this moment on nothing is written, and the volume is not mounted
    /// afterwards. Data already sent to the medium stays.
    ///
    /// # Errors
    /// `Skip` if that is not possible.
    fn cut_power(&mut self) -> Outcome {
        Err(Trouble::Skip("the power of this target cannot be cut".into()))
    }

    /// Makes a fresh, empty volume of another size than the run's, on a sparse file, and mounts it;
    /// [`make`](Self::make) returns to the run's size.
    ///
    /// # Errors
    /// `Skip` if that is not possible.
    fn make_sparse(&mut self, _size: u64) -> Outcome {
        Err(Trouble::Skip("volumes of this target have the size of the run only".into()))
    }

    /// Mounts the existing volume from inside this process, without starting a program.
    ///
    /// # Errors
    /// `Skip` if that is not possible.
    fn mount_inside(&mut self) -> Outcome {
        Err(Trouble::Skip("this target is mounted by a program only".into()))
    }

    /// The files for workloads, only while the volume is mounted.
    ///
    /// # Errors
    /// The volume is not mounted.
    fn files(&self) -> Outcome<&dyn Files>;

    /// Processes that do the work of the file system: its daemon.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The block device below, whose kernel counters show the traffic of the medium: `loop3`.
    fn device(&self) -> Option<String> {
        None
    }

    /// Whether it loses its contents when it is unmounted. Its caches are then emptied while it is
    /// mounted.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Whether the file system runs in this process.
    fn in_process(&self) -> bool {
        false
    }

    /// Maximum number of files for which work in a directory ends in reasonable time; `None`: any
    /// number.
    fn directory_entries_most(&self) -> Option<u64> {
        None
    }
}

/// Makes the target with this name for `--on`.
///
/// # Errors
/// The name is unknown.
pub fn by_name(name: &str, site: &Site) -> Outcome<Box<dyn Target>> {
    if let Some(recipe) = Recipe::by_name(name) {
        return Ok(Box::new(KernelTarget::new(recipe, site)));
    }
    match name {
        "steadfast" => Ok(Box::new(FuseTarget::new(Transactions::Default, site))),
        "steadfast-manual" => Ok(Box::new(FuseTarget::new(Transactions::Manual, site))),
        "null" => Ok(Box::new(NullTarget::new(site))),
        "bindfs" => Ok(Box::new(StackedTarget::new(Layer::Bindfs, site))),
        "gocryptfs" => Ok(Box::new(StackedTarget::new(Layer::Gocryptfs, site))),
        "steadfast-lib" => Ok(Box::new(LibraryTarget::new(Cached::Yes, site))),
        "steadfast-lib-direct" => Ok(Box::new(LibraryTarget::new(Cached::No, site))),
        "fat" => Ok(Box::new(FatTarget::new(FatOn::Device, site))),
        "fat-on-steadfast" => Ok(Box::new(FatTarget::new(FatOn::Steadfast, site))),
        // Targets for tests of the lab itself: one is slow, and one returns wrong bytes.
        "planted-slow" => Ok(Box::new(SlowTarget::new(site)?)),
        "planted-corrupting" => Ok(Box::new(CorruptingTarget::new(site)?)),
        _ => Err(Trouble::Skip(format!(
            "there is no target '{name}': known are {}",
            NAMES.join(", ")
        ))),
    }
}

/// The names that [`by_name`] knows, without those for tests.
pub const NAMES: [&str; 13] = [
    "steadfast",
    "steadfast-manual",
    "steadfast-lib",
    "steadfast-lib-direct",
    "null",
    "ext4",
    "xfs",
    "btrfs",
    "fuse2fs",
    "bindfs",
    "gocryptfs",
    "fat",
    "fat-on-steadfast",
];

/// A separate directory for a run below `backing`, named after this process, so that its owner can
/// be identified.
///
/// # Errors
/// It cannot be made.
pub fn scratch(backing: &Path) -> Outcome<cleanup::Guard> {
    use crate::trouble::Doing;
    for attempt in 0..1000 {
        let path = backing.join(format!("steadfast-lab.{}.{attempt}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(cleanup::directory(&path)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).doing(|| format!("make {}", path.display())),
        }
    }
    Err(Trouble::Skip(format!(
        "{} is full of left-overs of the lab: remove steadfast-lab.*",
        backing.display()
    )))
}
