//! Steadfast through FUSE: the `steadfast` program as the daemon, on a loop device like the file
//! systems of the kernel.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cleanup;
use super::image::{Image, mount_point};
use super::kernel::{not_made, options_of};
use super::mounted::{self, Mounted, kill, processes_with};
use super::system::SystemFiles;
use super::tool::{run_tool, version_of};
use super::{Files, Site, Target};
use crate::result::{self, Access, Status};
use crate::{Outcome, Trouble};

/// When changes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transactions {
    /// The default mask of a new volume: fsync, sync, unmount, timer.
    Default,
    /// Only on command: fsync returns at once, and no timer runs. The difference to the default is
    /// the cost of transactions.
    Manual,
}

/// A Steadfast volume, mounted by the `steadfast` program.
pub struct FuseTarget {
    site: Site,
    transactions: Transactions,
    // The fields are dropped in this order.
    mounted: Option<Mounted>,
    image: Option<Image>,
    directory: Option<PathBuf>,
    options: String,
}

impl FuseTarget {
    /// A target without a volume yet.
    pub fn new(transactions: Transactions, site: &Site) -> FuseTarget {
        FuseTarget {
            site: site.clone(),
            transactions,
            mounted: None,
            image: None,
            directory: None,
            options: String::new(),
        }
    }

    fn name(&self) -> &'static str {
        match self.transactions {
            Transactions::Default => "steadfast",
            Transactions::Manual => "steadfast-manual",
        }
    }

    /// Options of the mount: the loop device is not cached a second time.
    fn mount_options(&self) -> &'static str {
        match self.transactions {
            Transactions::Default => "rw",
            Transactions::Manual => "mask=manual",
        }
    }
}

/// Runs the `steadfast` program.
fn program(site: &Site, words: &[&OsStr]) -> Outcome<String> {
    let Some(program) = site.program.to_str() else {
        return Err(Trouble::Skip("the path of the steadfast program is not UTF-8".into()));
    };
    run_tool(program, words)
}

impl Target for FuseTarget {
    fn id(&self) -> &str {
        self.name()
    }

    fn describe(&self) -> result::TargetDescription {
        result::TargetDescription {
            id: self.name().into(),
            name: match self.transactions {
                Transactions::Default => "Steadfast (FUSE)".into(),
                Transactions::Manual => "Steadfast (FUSE, transactions masked out)".into(),
            },
            access: Access::Fuse,
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: "steadfast mkfs --force".into(),
            mount_options: format!("-o {}; kernel: {}", self.mount_options(), self.options),
            version: self
                .site
                .program
                .to_str()
                .and_then(|program| version_of(program, "--version"))
                .unwrap_or_default(),
            remarks: match self.transactions {
                Transactions::Default => {
                    vec![
                        "default transaction mask, timer 5 s; data and metadata are protected"
                            .into(),
                    ]
                }
                Transactions::Manual => {
                    vec!["no transaction point but on command: fsync makes nothing durable".into()]
                }
            },
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        if self.image.is_none() {
            self.image = Some(Image::new(&self.site, self.name())?);
        }
        let Some(image) = &self.image else { return Err(not_made(self.name())) };
        let device = OsString::from(image.device());
        program(&self.site, &["mkfs".as_ref(), "--force".as_ref(), &device])?;
        self.directory = Some(mount_point(&self.site, self.name())?);
        self.mount().map(|_| ())
    }

    fn unmount(&mut self) -> Outcome {
        let site = &self.site;
        mounted::unmount(&mut self.mounted, |directory| {
            program(site, &["umount".as_ref(), "--quiet".as_ref(), directory.as_os_str()])
        })
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let (Some(image), Some(directory)) = (&self.image, &self.directory) else {
            return Err(not_made(self.name()));
        };
        let guard = cleanup::mount(directory);
        let words: [&OsStr; 5] = [
            "mount".as_ref(),
            "-o".as_ref(),
            self.mount_options().as_ref(),
            image.device().as_ref(),
            directory.as_ref(),
        ];
        let start = Instant::now();
        if let Err(trouble) = program(&self.site, &words) {
            guard.done();
            return Err(trouble);
        }
        let time = start.elapsed();
        self.options = options_of(directory);
        let daemon = processes_with(image.device());
        self.mounted = Some(Mounted::new(guard, SystemFiles::of_steadfast(directory), daemon));
        Ok(time)
    }

    fn cut_power(&mut self) -> Outcome {
        let daemon = self.processes();
        if daemon.is_empty() {
            return Err(not_made(self.name()));
        }
        kill(&daemon)?;
        self.unmount()
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.mounted
            .as_ref()
            .map(|mounted| mounted.files() as &dyn Files)
            .ok_or_else(|| not_made(self.name()))
    }

    fn processes(&self) -> Vec<u32> {
        self.mounted.as_ref().map_or_else(Vec::new, |mounted| mounted.daemon().to_vec())
    }

    fn device(&self) -> Option<String> {
        self.image.as_ref().and_then(Image::device_name)
    }
}
