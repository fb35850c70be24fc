//! File systems that mkfs and mount(8) support, on a loop device: those of the kernel, and fuse2fs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cleanup;
use super::image::{Image, mount_point};
use super::mounted::{self, Mounted, kill, processes_with};
use super::system::SystemFiles;
use super::tool::{run_tool, version_of};
use super::{Files, Site, Target};
use crate::result::{self, Access, Status};
use crate::{Outcome, Trouble};

/// The way to make and mount a file system.
#[derive(Debug, Clone, Copy)]
pub struct Recipe {
    /// The name for `--on`.
    pub id: &'static str,
    mkfs: &'static str,
    /// Everything is initialised at once and nothing is discarded. So there is no background work
    /// in the first minutes, and the image stays allocated.
    mkfs_options: &'static [&'static str],
    /// The same for a large sparse volume: structures that grow with the size are left out, and
    /// nothing is initialised later.
    sparse_options: &'static [&'static str],
    kernel: bool,
    /// Option with which mkfs prints its version.
    version: &'static str,
    /// Smallest volume that mkfs accepts, bytes.
    size_least: u64,
}

const RECIPES: [Recipe; 4] = [
    Recipe {
        id: "ext4",
        mkfs: "mkfs.ext4",
        mkfs_options: &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        sparse_options: &["-N", "131072"],
        kernel: true,
        version: "-V",
        size_least: 2 << 20,
    },
    Recipe {
        id: "xfs",
        mkfs: "mkfs.xfs",
        mkfs_options: &["-q", "-f", "-K"],
        sparse_options: &[],
        kernel: true,
        version: "-V",
        size_least: 300 << 20,
    },
    Recipe {
        id: "btrfs",
        mkfs: "mkfs.btrfs",
        mkfs_options: &["-q", "-f", "-K"],
        sparse_options: &[],
        kernel: true,
        version: "--version",
        size_least: 110 << 20,
    },
    Recipe {
        id: "fuse2fs",
        mkfs: "mkfs.ext4",
        mkfs_options: &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
        sparse_options: &["-N", "131072"],
        kernel: false,
        version: "-V",
        size_least: 2 << 20,
    },
];

impl Recipe {
    /// The recipe with this name.
    pub fn by_name(name: &str) -> Option<Recipe> {
        RECIPES.into_iter().find(|recipe| recipe.id == name)
    }

    fn driver(&self) -> Outcome {
        if !self.kernel {
            return match version_of("fuse2fs", "-V") {
                Some(_) => Ok(()),
                None => Err(Trouble::Skip("fuse2fs is not installed: install fuse2fs".into())),
            };
        }
        let known = || {
            let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
            list.lines().any(|line| line.split_whitespace().last() == Some(self.id))
        };
        if !known() {
            // The file system may be a module that is not loaded yet; the list below shows whether
            // loading worked.
            let _ = run_tool("modprobe", &[self.id]);
        }
        if known() { Ok(()) } else { Err(Trouble::Skip(format!("this kernel has no {}", self.id))) }
    }
}

/// A volume of such a file system.
pub struct KernelTarget {
    recipe: Recipe,
    /// Name of its image and mount point.
    name: &'static str,
    site: Site,
    // The fields are dropped in this order.
    mounted: Option<Mounted>,
    image: Option<Image>,
    directory: Option<PathBuf>,
    options: String,
}

impl KernelTarget {
    /// A target without a volume yet.
    pub fn new(recipe: Recipe, site: &Site) -> KernelTarget {
        KernelTarget::named(recipe, recipe.id, site)
    }

    /// The volume below another file system, with an image and a mount point of this name.
    pub(super) fn named(recipe: Recipe, name: &'static str, site: &Site) -> KernelTarget {
        KernelTarget {
            recipe,
            name,
            site: site.clone(),
            mounted: None,
            image: None,
            directory: None,
            options: String::new(),
        }
    }

    /// The mount point, once the volume was made.
    pub(super) fn mount_point(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Makes the file system on the image, and mounts it.
    fn format(&mut self, more: &[&str]) -> Outcome {
        let Some(image) = &self.image else { return Err(not_made(self.recipe.id)) };
        let options = self.recipe.mkfs_options.iter().chain(more);
        let mut words: Vec<&std::ffi::OsStr> = options.map(|word| (*word).as_ref()).collect();
        words.push(image.device().as_os_str());
        run_tool(self.recipe.mkfs, &words)?;
        self.directory = Some(mount_point(&self.site, self.name)?);
        self.mount().map(|_| ())
    }

    fn mount_command(&self, device: &Path, directory: &Path) -> Outcome {
        if self.recipe.kernel {
            run_tool(
                "mount",
                &[
                    "-t".as_ref(),
                    self.recipe.id.as_ref(),
                    device.as_os_str(),
                    directory.as_os_str(),
                ],
            )?;
        } else {
            let options = ["-o", "fakeroot,allow_other"].map(std::ffi::OsStr::new);
            run_tool(
                "fuse2fs",
                &[&options[..], &[device.as_os_str(), directory.as_os_str()]].concat(),
            )?;
        }
        Ok(())
    }
}

impl Target for KernelTarget {
    fn id(&self) -> &str {
        self.recipe.id
    }

    fn describe(&self) -> result::TargetDescription {
        let tool = version_of(self.recipe.mkfs, self.recipe.version).unwrap_or_default();
        let daemon = if self.recipe.kernel { None } else { version_of("fuse2fs", "-V") };
        result::TargetDescription {
            id: self.recipe.id.into(),
            name: self.recipe.id.into(),
            access: if self.recipe.kernel { Access::Kernel } else { Access::Fuse },
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: format!("{} {}", self.recipe.mkfs, self.recipe.mkfs_options.join(" ")),
            mount_options: self.options.clone(),
            version: [Some(tool), daemon].into_iter().flatten().collect::<Vec<_>>().join(", "),
            remarks: Vec::new(),
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        self.recipe.driver()?;
        if self.site.volume_size < self.recipe.size_least {
            let least = self.recipe.size_least >> 20;
            return Err(Trouble::Skip(format!(
                "{} needs at least {least} MiB: use --size",
                self.recipe.id
            )));
        }
        if self.image.as_ref().is_none_or(Image::is_sparse) {
            // The new image has the same name as the previous one.
            self.image = None;
            self.image = Some(Image::new(&self.site, self.name)?);
        }
        self.format(&[])
    }

    fn make_sparse(&mut self, size: u64) -> Outcome {
        self.unmount()?;
        self.recipe.driver()?;
        self.image = None;
        self.image = Some(Image::sparse(&self.site, self.name, size)?);
        self.format(self.recipe.sparse_options)
    }

    fn mount_inside(&mut self) -> Outcome {
        use rustix::mount::MountFlags;
        if !self.recipe.kernel {
            return Err(Trouble::Skip(format!("{} is mounted by a program only", self.recipe.id)));
        }
        let (Some(image), Some(directory)) = (&self.image, &self.directory) else {
            return Err(not_made(self.recipe.id));
        };
        let guard = cleanup::mount(directory);
        let mounted = rustix::mount::mount(
            image.device(),
            directory,
            self.recipe.id,
            MountFlags::empty(),
            None,
        );
        if let Err(error) = mounted {
            guard.done();
            return Err(Trouble::Io {
                doing: format!("mount {}", self.recipe.id),
                error: error.into(),
            });
        }
        self.mounted = Some(Mounted::new(guard, SystemFiles::new(directory), Vec::new()));
        Ok(())
    }

    fn unmount(&mut self) -> Outcome {
        mounted::unmount(&mut self.mounted, |directory| run_tool("umount", &[directory]))
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let (Some(image), Some(directory)) = (&self.image, &self.directory) else {
            return Err(not_made(self.recipe.id));
        };
        let guard = cleanup::mount(directory);
        let start = Instant::now();
        if let Err(trouble) = self.mount_command(image.device(), directory) {
            guard.done();
            return Err(trouble);
        }
        let time = start.elapsed();
        self.options = options_of(directory);
        let daemon = if self.recipe.kernel { Vec::new() } else { processes_with(image.device()) };
        self.mounted = Some(Mounted::new(guard, SystemFiles::new(directory), daemon));
        Ok(time)
    }

    fn cut_power(&mut self) -> Outcome {
        let Some(mounted) = &self.mounted else { return Err(not_made(self.recipe.id)) };
        if !self.recipe.kernel {
            kill(mounted.daemon())?;
            return self.unmount();
        }
        match super::shutdown::shut_down(mounted.directory(), self.recipe.id) {
            Ok(()) => self.unmount(),
            // This file system has no such call. The present contents of the medium are kept, and
            // later writes are lost.
            Err(Trouble::Skip(_)) => {
                let Some(image) = &self.image else { return Err(not_made(self.recipe.id)) };
                let copy = image.copy()?;
                self.unmount()?;
                if let Some(image) = self.image.take() {
                    self.image = Some(image.replaced(copy)?);
                }
                Ok(())
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.mounted
            .as_ref()
            .map(|mounted| mounted.files() as &dyn Files)
            .ok_or_else(|| not_made(self.recipe.id))
    }

    fn processes(&self) -> Vec<u32> {
        self.mounted.as_ref().map_or_else(Vec::new, |mounted| mounted.daemon().to_vec())
    }

    fn device(&self) -> Option<String> {
        self.image.as_ref().and_then(Image::device_name)
    }
}

pub(super) fn not_made(id: &str) -> Trouble {
    Trouble::Skip(format!("{id} is not mounted"))
}

/// The options of the mount on a directory, as the kernel shows them.
pub(super) fn options_of(directory: &Path) -> String {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return String::new() };
    let found = mounts.lines().rev().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        (Path::new(words.next()?) == directory).then(|| words.nth(1).unwrap_or_default().to_owned())
    });
    found.unwrap_or_default()
}
