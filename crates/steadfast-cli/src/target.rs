//! The target of a command: a mounted volume or an image.
//!
//! Users name a volume by a path where they see it. A directory means the volume mounted there. A
//! mounted image means the same volume, so `steadfast info disk.img` works before and after
//! `steadfast mount`.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::dead_mount::stale_or_host;
use crate::failure::{Exit, Failure, Outcome};
use crate::live::Live;
use crate::{mounts, mtd, window};

/// A mounted volume, or an image to open.
pub enum Target {
    /// A volume reached through its mount point.
    Mounted(Live),
    /// A regular file or block device that is not mounted here.
    Image(PathBuf),
}

impl Target {
    /// Determines what `path` is.
    ///
    /// # Errors
    /// `path` does not exist, is neither kind of target, or is a mount whose daemon has ended.
    pub fn find(path: &Path) -> Outcome<Target> {
        if crate::network::is_address(path) {
            return match mounts::of_source(path) {
                Ok(Some(mount)) => Live::open(&mount.directory).map(Target::Mounted),
                _ => Ok(Target::Image(path.to_owned())),
            };
        }
        let usable = if mtd::is_mtd(path) {
            // A path with a range of blocks is not the name of a file.
            true
        } else {
            let file = window::split(path);
            let metadata = fs::metadata(&file).map_err(|error| stale_or_host(&error, path))?;
            let kind = metadata.file_type();
            if kind.is_dir() && window::is_part(path) {
                return Err(Failure::new(
                    Exit::Usage,
                    "a directory has no parts",
                    path.display(),
                    "give an image file or a block device in front of the '?'",
                ));
            }
            if kind.is_dir() {
                return Live::open(path).map(Target::Mounted);
            }
            kind.is_file() || kind.is_block_device()
        };
        if !usable {
            return Err(Failure::new(
                Exit::NotAVolume,
                "neither an image, a block device, an MTD device nor a mount point",
                path.display(),
                "check the path",
            ));
        }
        match mounts::of_source(path)
            .map_err(|error| Failure::host(&error, "read", Path::new("/proc/self/mountinfo")))?
        {
            Some(mount) => Live::open(&mount.directory).map(Target::Mounted),
            None => Ok(Target::Image(path.to_owned())),
        }
    }

    /// The mounted volume, for commands that work only on a mount.
    ///
    /// # Errors
    /// As [`find`](Self::find), and `path` is an image that is not mounted.
    pub fn find_mounted(path: &Path) -> Outcome<Live> {
        match Target::find(path)? {
            Target::Mounted(live) => Ok(live),
            Target::Image(image) => Err(Failure::new(
                Exit::CannotMount,
                "the volume is not mounted",
                image.display(),
                "mount it with 'steadfast mount', then give the mount point",
            )),
        }
    }
}
