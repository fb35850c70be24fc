//! The medium of a target: an image file of the run's size with a loop device on top, or the block device of the run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Site;
use super::cleanup::{self, Guard};
use super::tool::run_tool;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// An image file with a loop device (direct I/O) on it, both of which go when it is dropped; or a block device that was given.
#[derive(Debug)]
pub struct Image(Medium);

#[derive(Debug)]
enum Medium {
    // In the order in which they are taken away.
    Loop { device: Guard, _file: Guard },
    Given(PathBuf),
}

impl Image {
    /// Makes `NAME.img`, written full so that no file system pays for the allocation below it, and attaches it.
    ///
    /// # Errors
    /// `Skip` when there is no room or no right to use loop devices.
    pub fn new(site: &Site, name: &str) -> Outcome<Image> {
        if let Some(device) = &site.device {
            return Ok(Image(Medium::Given(device.clone())));
        }
        let path = site.scratch.join(format!("{name}.img"));
        let guard = cleanup::file(&path);
        fill(&path, site.volume_size)?;
        let words = ["--direct-io=on", "--find", "--show"].map(PathBuf::from);
        let attached = run_tool("losetup", &[&words[..], std::slice::from_ref(&path)].concat());
        let device = attached.map_err(|trouble| match trouble {
            Trouble::Tool { output, .. } => {
                Trouble::Skip(format!("no loop device can be had ({output}): run as root, or use --dir"))
            }
            other => other,
        })?;
        let device = PathBuf::from(device.trim());
        Ok(Image(Medium::Loop { device: cleanup::loop_device(&device, &path), _file: guard }))
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        match &self.0 {
            Medium::Loop { device, .. } => device.path(),
            Medium::Given(path) => path,
        }
    }

    /// The kernel's name of it: `loop3`.
    pub fn device_name(&self) -> Option<String> {
        Some(self.device().file_name()?.to_str()?.to_owned())
    }
}

/// Writes a file full of zeros and makes it durable.
fn fill(path: &Path, size: u64) -> Outcome {
    let doing = || format!("write {} of {size} bytes", path.display());
    let attempt = || -> std::io::Result<()> {
        let mut file = File::create_new(path)?;
        let zeros = vec![0; 1 << 20];
        let mut left = size;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
            file.write_all(&zeros[..part])?;
            left -= part as u64;
        }
        file.sync_all()
    };
    attempt().map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull => Trouble::Skip(format!(
            "no room for {}: ask for less with --size, or another --backing",
            path.display()
        )),
        _ => Trouble::Io { doing: doing(), error },
    })
}

/// Makes a mount point in the run's directory.
pub(super) fn mount_point(site: &Site, name: &str) -> Outcome<PathBuf> {
    let path = site.scratch.join(name);
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).doing(|| format!("make {}", path.display()))
        }
        _ => Ok(path),
    }
}
