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

/// An image file with a loop device (direct I/O) on it, both of which go when it is dropped; or a
/// block device that was given.
#[derive(Debug)]
pub struct Image {
    medium: Medium,
    sparse: bool,
}

#[derive(Debug)]
enum Medium {
    // In the order in which they are taken away.
    Loop { device: Guard, file: Guard },
    Given(PathBuf),
}

impl Image {
    /// Makes `NAME.img`, written full so that no file system pays for the allocation below it, and
    /// attaches it.
    ///
    /// # Errors
    /// `Skip` when there is no room or no right to use loop devices.
    pub fn new(site: &Site, name: &str) -> Outcome<Image> {
        if let Some(device) = &site.device {
            return Ok(Image { medium: Medium::Given(device.clone()), sparse: false });
        }
        let path = site.scratch.join(format!("{name}.img"));
        let guard = cleanup::file(&path);
        fill(&path, site.volume_size)?;
        Ok(Image { medium: Medium::Loop { device: attach(&path)?, file: guard }, sparse: false })
    }

    /// Makes `NAME.img` of another size, as a sparse file: only what is written takes room.
    ///
    /// # Errors
    /// `Skip` on a block device that was given, where the backing file system has no such large
    /// files, and as [`Image::new`].
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
        Ok(Image { medium: Medium::Loop { device: attach(&path)?, file: guard }, sparse: true })
    }

    /// Whether it was made by [`Image::sparse`].
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// What the image holds at this moment, in a file beside it: what a power cut would leave on a
    /// medium that keeps everything it was sent. Nobody writes to it meanwhile.
    ///
    /// # Errors
    /// `Skip` on a block device that was given, and without room for a copy.
    pub fn copy(&self) -> Outcome<Guard> {
        let Medium::Loop { file, .. } = &self.medium else {
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

    /// The image with a copy in its place. The device is not in use.
    ///
    /// # Errors
    /// When it cannot be done; the image is gone then.
    pub fn replaced(self, copy: Guard) -> Outcome<Image> {
        let Medium::Loop { device, file } = self.medium else { return Ok(self) };
        let path = file.path().to_owned();
        // While the file has its name: by it the device is known as ours.
        drop(device);
        std::fs::rename(copy.path(), &path).doing(|| format!("replace {}", path.display()))?;
        copy.done();
        Ok(Image { medium: Medium::Loop { device: attach(&path)?, file }, ..self })
    }

    /// The block device.
    pub fn device(&self) -> &Path {
        match &self.medium {
            Medium::Loop { device, .. } => device.path(),
            Medium::Given(path) => path,
        }
    }

    /// The kernel's name of it: `loop3`.
    pub fn device_name(&self) -> Option<String> {
        Some(self.device().file_name()?.to_str()?.to_owned())
    }
}

/// A loop device with direct I/O on a file.
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
