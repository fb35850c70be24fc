//! FUSE file systems that show another directory: the cost of other FUSE programs.
//!
//! bindfs passes everything through unchanged, gocryptfs encrypts names and data. Below both is an
//! ext4 volume of the run's size on a loop device, made and mounted like the target `ext4`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::image::mount_point;
use super::kernel::{KernelTarget, Recipe, not_made, options_of};
use super::mounted::{self, Mounted, processes_with};
use super::system::SystemFiles;
use super::tool::{run_tool, version_of};
use super::{Files, Site, Target, cleanup};
use crate::result::{self, Access, Status};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

/// The kind of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The directory unchanged; with bindfs's default options, so on one thread.
    Bindfs,
    /// The directory encrypted.
    Gocryptfs,
}

impl Layer {
    fn id(self) -> &'static str {
        match self {
            Layer::Bindfs => "bindfs",
            Layer::Gocryptfs => "gocryptfs",
        }
    }

    fn version_option(self) -> &'static str {
        match self {
            Layer::Bindfs => "--version",
            Layer::Gocryptfs => "-version",
        }
    }
}

/// The volume below, and the layer over it.
pub struct StackedTarget {
    layer: Layer,
    site: Site,
    // The fields are dropped in this order.
    mounted: Option<Mounted>,
    below: Option<KernelTarget>,
    directory: Option<PathBuf>,
    options: String,
}

/// The password from which gocryptfs derives its key. Nothing here is secret.
const PASSWORD: &[u8] = b"steadfast lab\n";
/// How long a daemon may take to end.
const ENDING: Duration = Duration::from_secs(10);
/// The directory in the volume that the layer shows.
const SHOWN: &str = "shown";

impl StackedTarget {
    /// A target without a volume yet.
    pub fn new(layer: Layer, site: &Site) -> StackedTarget {
        let name = match layer {
            Layer::Bindfs => "bindfs.below",
            Layer::Gocryptfs => "gocryptfs.below",
        };
        let below = Recipe::by_name("ext4").map(|recipe| KernelTarget::named(recipe, name, site));
        let site = site.clone();
        StackedTarget { layer, site, mounted: None, below, directory: None, options: String::new() }
    }

    fn below(&mut self) -> Outcome<&mut KernelTarget> {
        let id = self.layer.id();
        self.below.as_mut().ok_or_else(|| not_made(id))
    }

    /// The directory that the layer shows.
    fn shown(&self) -> Outcome<PathBuf> {
        let below = self.below.as_ref().and_then(KernelTarget::mount_point);
        Ok(below.ok_or_else(|| not_made(self.layer.id()))?.join(SHOWN))
    }

    fn password_file(&self) -> PathBuf {
        self.site.scratch.join("gocryptfs.password")
    }

    fn prepare(&self) -> Outcome {
        let shown = self.shown()?;
        std::fs::create_dir(&shown).doing(|| format!("make {}", shown.display()))?;
        if self.layer == Layer::Gocryptfs {
            let password = self.password_file();
            std::fs::write(&password, PASSWORD)
                .doing(|| format!("write {}", password.display()))?;
            // The cheapest key derivation: its cost occurs only at mount, and is not measured.
            let words = ["-init", "-q", "-scryptn", "10", "-passfile"].map(Path::new);
            run_tool("gocryptfs", &[&words[..], &[&password, &shown]].concat())?;
        }
        Ok(())
    }

    fn mount_command(&self, directory: &Path) -> Outcome {
        let shown = self.shown()?;
        match self.layer {
            Layer::Bindfs => run_tool("bindfs", &[&shown, directory])?,
            Layer::Gocryptfs => {
                let words = ["-q", "-allow_other", "-passfile"].map(Path::new);
                run_tool(
                    "gocryptfs",
                    &[&words[..], &[&self.password_file(), &shown, directory]].concat(),
                )?
            }
        };
        Ok(())
    }
}

impl Target for StackedTarget {
    fn id(&self) -> &str {
        self.layer.id()
    }

    fn describe(&self) -> result::TargetDescription {
        let id = self.layer.id();
        result::TargetDescription {
            id: id.into(),
            name: format!("{id} over ext4"),
            access: Access::Fuse,
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: match self.layer {
                Layer::Bindfs => "a directory of an ext4 volume".into(),
                Layer::Gocryptfs => "gocryptfs -init in a directory of an ext4 volume".into(),
            },
            mount_options: self.options.clone(),
            version: version_of(id, self.layer.version_option()).unwrap_or_default(),
            remarks: vec!["another FUSE file system over a volume of ext4".into()],
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        let id = self.layer.id();
        if version_of(id, self.layer.version_option()).is_none() {
            return Err(Trouble::Skip(format!("{id} is not installed: install {id}")));
        }
        self.below()?.make()?;
        self.directory = Some(mount_point(&self.site, id)?);
        self.prepare()?;
        self.mount().map(|_| ())
    }

    fn unmount(&mut self) -> Outcome {
        mounted::unmount(&mut self.mounted, |directory| run_tool("umount", &[directory]))?;
        let Some(below) = &mut self.below else { return Ok(()) };
        // The daemon releases the volume a moment after its own mount has gone.
        let start = Instant::now();
        loop {
            match below.unmount() {
                Err(_) if start.elapsed() < ENDING => std::thread::sleep(Duration::from_millis(10)),
                unmounted => return unmounted,
            }
        }
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let id = self.layer.id();
        let below = self.below()?;
        let mut time = if below.files().is_ok() { Duration::ZERO } else { below.mount()? };
        let Some(directory) = &self.directory else { return Err(not_made(id)) };
        let guard = cleanup::mount(directory);
        let start = Instant::now();
        if let Err(trouble) = self.mount_command(directory) {
            guard.done();
            return Err(trouble);
        }
        time += start.elapsed();
        self.options = options_of(directory);
        let daemon = processes_with(directory);
        self.mounted = Some(Mounted::new(guard, SystemFiles::new(directory), daemon));
        Ok(time)
    }

    fn files(&self) -> Outcome<&dyn Files> {
        let mounted = self.mounted.as_ref().map(|mounted| mounted.files() as &dyn Files);
        mounted.ok_or_else(|| not_made(self.layer.id()))
    }

    fn processes(&self) -> Vec<u32> {
        self.mounted.as_ref().map_or_else(Vec::new, |mounted| mounted.daemon().to_vec())
    }

    fn device(&self) -> Option<String> {
        self.below.as_ref().and_then(Target::device)
    }
}
