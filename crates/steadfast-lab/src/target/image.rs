//! The medium of a target: an image file of the run's size with a loop device on top, or the block
//! device of the run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Site;
use super::cleanup::{self, Guard};
use super::tool::run_tool;
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// An image file with a loop device (direct I/O) on it, both removed on drop; or a given block
/// device.
#[derive(Debug)]
pub struct Image {
    medium: ImageDevice,
    sparse: bool,
}

#[derive(Debug)]
enum ImageDevice {
    // The fields are dropped in this order.
    Loop { device: Guard, file: Guard },
    Given(PathBuf),
}

impl Image {
    /// Makes `NAME.img`, fully written so that no file system pays for the allocation below it, and
    /// attaches it.
    ///
    /// # Errors
    /// `Skip` if there is no room, or no permission to use loop devices.
    pub fn new(site: &Site, name: &str) -> Outcome<Image> {
        if let Some(device) = &site.device {
            return Ok(Image { medium: ImageDevice::Given(device.clone()), sparse: false });
        }
        let path = site.scratch.join(format!("{name}.img"));
        let guard = cleanup::file(&path);
        fill(&path, site.volume_size)?;
        Ok(Image {
            medium: ImageDevice::Loop { device: attach(&path)?, file: guard },
            sparse: false,
        })
    }

    /// Makes `NAME.img` of another size, as a sparse file: only written data takes room.
    ///
    /// # Errors
    /// `Skip` on a given block device, or if the backing file system does not support such large
    /// files; and as [`Image::new`].
    pub fn sparse(site: &Site, name: &str, size: u64) -> Outcome<Image> {
        if site.device.is_some() {
            return Err(Trouble::Skip("a block device that was given has one size only".into()));
        }
        let path = site.scratch.join(format!("{name}.img"));
        let guard = cleanup::file(&path);
        let made = File::create_new(&path).and_then(|file| file.set_len(size));
        made.map_err(|error| {
            Trouble::Skip(format!("no sparse file of {size} bytes below --backing ({error})"))
        })?;
        Ok(Image {
            medium: ImageDevice::Loop { device: attach(&path)?, file: guard },
            sparse: true,
        })
    }

    /// Whether it was made by [`Image::sparse`].
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Copies the present contents of the image to a file beside it. That is what a power cut would
    /// leave on a medium that keeps everything sent to it. The caller ensures that the image is not
    /// written meanwhile.
    ///
    /// # Errors
    /// `Skip` on a given block device, and without room for a copy.
    pub fn copy(&self) -> Outcome<Guard> {
        let ImageDevice::Loop { file, .. } = &self.medium else {
            return Err(Trouble::Skip("a block device that was given is not copied".into()));
        };
        let path = file.path().with_extension("cut");
        let guard = cleanup::file(&path);
        let words = ["--sparse=auto".as_ref(), file.path().as_os_str(), path.as_os_str()];
        run_tool("cp", &words).map_err(|trouble| match trouble {
            Trouble::Tool { output, .. } => {
                Trouble::Skip(format!("the image cannot be copied ({output})"))
            }
            other => other,
        })?;
        Ok(guard)
    }

    /// Replaces the image by a copy. The device must not be in use.
    ///
    /// # Errors
    /// The replacement fails; the image is lost then.
    pub fn replaced(self, copy: Guard) -> Outcome<Image> {
        let ImageDevice::Loop { device, file } = self.medium else { return Ok(self) };
        let path = file.path().to_owned();
        // The device is detached while the file has its name, because the name identifies the
        // device.
        drop(device);
        std::fs::rename(copy.path(), &path).doing(|| format!("replace {}", path.display()))?;
        copy.done();
        Ok(Image { medium: ImageDevice::Loop { device: attach(&path)?, file }, ..self })
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        match &self.medium {
            ImageDevice::Loop { device, .. } => device.path(),
            ImageDevice::Given(path) => path,
        }
    }

    /// The kernel's name of the device: `loop3`.
    pub fn device_name(&self) -> Option<String> {
        Some(self.device().file_name()?.to_str()?.to_owned())
    }
}

/// Attaches a loop device with direct I/O to a file.
fn attach(path: &Path) -> Outcome<Guard> {
    let words = ["--direct-io=on", "--find", "--show"].map(PathBuf::from);
    let attached = run_tool("losetup", &[&words[..], &[path.to_owned()]].concat());
    let device = attached.map_err(|trouble| match trouble {
        Trouble::Tool { output, .. } => Trouble::Skip(format!(
            "no loop device can be had ({output}): run as root, or use --dir"
        )),
        other => other,
    })?;
    Ok(cleanup::loop_device(Path::new(device.trim()), path))
}

/// Fills a file with zeros and makes it durable.
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
