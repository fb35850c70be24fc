//! The file systems under test, behind two traits: [`Target`] is a volume that can be made,
//! mounted, unmounted and torn down; [`Files`] is what workloads do with it, by system calls on a
//! directory or by calls of a library.
//!
//! # Invariants
//!
//! - Whatever is made (image, loop device, mount, daemon) is entered in [`cleanup`] before it
//!   exists or at once after, and taken away on every way out: the end, an error, a panic, Ctrl-C.
//! - All volumes of a run have the same size and are on the same backing directory, each on a loop
//!   device with direct I/O, so that nothing is cached twice and what reaches the medium can be
//!   counted at one place; or all of them, one after the other, on the same block device.
//! - A target never falls back to something else: what is missing is a
//!   [`Trouble::Skip`](crate::Trouble) with the tool's name.

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

/// What a run gives to all its targets.
#[derive(Debug, Clone)]
pub struct Site {
    /// Directory of this run, below the backing directory where that is one: images and mount
    /// points. Exists, belongs to this run.
    pub scratch: PathBuf,
    /// The block device that all targets use in turn; `None`: each has an image of its own.
    pub device: Option<PathBuf>,
    /// Size of each volume, bytes.
    pub volume_size: u64,
    /// The `steadfast` program, for its daemon.
    pub program: PathBuf,
}

/// A file system under test.
pub trait Target {
    /// As given to `--on`.
    fn id(&self) -> &str;

    /// What is known of it, for the result. Mount options are known once it has been mounted.
    fn describe(&self) -> result::Target;

    /// Makes a fresh, empty volume and mounts it; an earlier one is gone.
    ///
    /// # Errors
    /// `Skip` when a tool or driver is missing; else what failed. Nothing is mounted then.
    fn make(&mut self) -> Outcome;

    /// Unmounts cleanly.
    ///
    /// # Errors
    /// When it could not; it is still mounted then.
    fn unmount(&mut self) -> Outcome;

    /// Mounts the volume again as it is. The time is that of the command, from start to return.
    ///
    /// # Errors
    /// `Skip` where that is not possible (a directory that was given).
    fn mount(&mut self) -> Outcome<Duration>;

    /// As if the power had been cut: from this moment on nothing is written, and the volume is not
    /// mounted afterwards. What was sent to the medium is there.
    ///
    /// # Errors
    /// `Skip` where that cannot be done.
    fn cut_power(&mut self) -> Outcome {
        Err(Trouble::Skip("the power of this target cannot be cut".into()))
    }

    /// Makes a fresh, empty volume of another size than the run's, on a sparse file, and mounts it;
    /// [`make`](Self::make) goes back to the run's size.
    ///
    /// # Errors
    /// `Skip` where that cannot be done.
    fn make_sparse(&mut self, _size: u64) -> Outcome {
        Err(Trouble::Skip("volumes of this target have the size of the run only".into()))
    }

    /// Mounts the volume as it is from inside this process: without starting a program.
    ///
    /// # Errors
    /// `Skip` where that cannot be done.
    fn mount_inside(&mut self) -> Outcome {
        Err(Trouble::Skip("this target is mounted by a program only".into()))
    }

    /// What workloads use. Only while it is mounted.
    ///
    /// # Errors
    /// When it is not mounted.
    fn files(&self) -> Outcome<&dyn Files>;

    /// Processes that do the file system's work: its daemon.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The block device below, whose kernel counters tell what reached the medium: `loop3`.
    fn device(&self) -> Option<String> {
        None
    }

    /// Whether it holds nothing once it is unmounted: its caches are emptied while it is mounted
    /// then.
    fn is_volatile(&self) -> bool {
        false
    }

    /// Whether the file system runs in this process.
    fn in_process(&self) -> bool {
        false
    }

    /// How many files a directory can have so that working in it ends some day; `None`: any number.
    fn directory_entries_most(&self) -> Option<u64> {
        None
    }
}

/// Makes the target that `--on` names.
///
/// # Errors
/// The name is not known.
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
        // For tests of the lab itself: a target that is slow, and one that returns wrong bytes.
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

/// A directory of its own for a run below `backing`, named after this process, so that it can be
/// told whose it is.
///
/// # Errors
/// When it cannot be made.
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
