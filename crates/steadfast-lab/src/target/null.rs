//! The null file system through Steadfast's FUSE transport: the floor of FUSE on this machine.
//!
//! Names and data are in plain maps in a separate process; nothing is durable, and nothing is
//! checked ([`steadfast_fuse::null`]). Costs of Steadfast's mount beyond this are those of
//! Steadfast; the rest is FUSE.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::image::mount_point;
use super::kernel::{not_made, options_of};
use super::mounted::{self, Mounted};
use super::system::SystemFiles;
use super::tool::run_tool;
use super::{Files, Site, Target, cleanup};
use crate::result::{self, Access, Status};
use crate::trouble::Doing;
use crate::{Outcome, Trouble};

const ID: &str = "null";

/// The output of the daemon once it is mounted.
pub const READY: &str = "mounted";

/// A null file system, served by the `steadfast-lab` program.
pub struct NullTarget {
    site: Site,
    mounted: Option<Mounted>,
    daemon: Option<Child>,
    directory: Option<PathBuf>,
    options: String,
}

impl NullTarget {
    /// A target without a mount yet.
    pub fn new(site: &Site) -> NullTarget {
        NullTarget {
            site: site.clone(),
            mounted: None,
            daemon: None,
            directory: None,
            options: String::new(),
        }
    }

    /// Starts the daemon and waits until it reports that it is mounted.
    fn start(&self, directory: &std::path::Path) -> Outcome<Child> {
        let mut command = Command::new(&self.site.lab);
        command.args(["null", "--size", &self.site.volume_size.to_string()]).arg(directory);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.doing(|| format!("run {}", self.site.lab.display()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            // After any failure the line is missing.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        if line.trim() == READY {
            return Ok(child);
        }
        let _ = child.kill();
        let output = child.wait_with_output().doing(|| "wait for the null file system".into())?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = messages.lines().rfind(|line| !line.trim().is_empty());
        Err(Trouble::Tool {
            command: "steadfast-lab null".into(),
            output: last.map_or_else(|| output.status.to_string(), str::to_owned),
        })
    }
}

impl Target for NullTarget {
    fn id(&self) -> &str {
        ID
    }

    fn describe(&self) -> result::TargetDescription {
        result::TargetDescription {
            id: ID.into(),
            name: "null (FUSE)".into(),
            access: Access::Fuse,
            status: Status::Ok,
            volume_size: Some(self.site.volume_size),
            format: "in memory".into(),
            mount_options: self.options.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            remarks: vec![
                "the floor of FUSE: Steadfast's transport with maps in memory under it; nothing is durable"
                    .into(),
            ],
        }
    }

    fn make(&mut self) -> Outcome {
        self.unmount()?;
        self.directory = Some(mount_point(&self.site, ID)?);
        self.mount().map(|_| ())
    }

    fn unmount(&mut self) -> Outcome {
        mounted::unmount(&mut self.mounted, |directory| run_tool("umount", &[directory]))?;
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait().doing(|| "wait for the null file system".into())?;
        }
        Ok(())
    }

    fn mount(&mut self) -> Outcome<Duration> {
        let Some(directory) = &self.directory else { return Err(not_made(ID)) };
        let guard = cleanup::mount(directory);
        let start = Instant::now();
        let daemon = match self.start(directory) {
            Ok(daemon) => daemon,
            Err(trouble) => {
                guard.done();
                return Err(trouble);
            }
        };
        let time = start.elapsed();
        self.options = options_of(directory);
        self.mounted = Some(Mounted::new(guard, SystemFiles::new(directory), vec![daemon.id()]));
        self.daemon = Some(daemon);
        Ok(time)
    }

    fn files(&self) -> Outcome<&dyn Files> {
        self.mounted
            .as_ref()
            .map(|mounted| mounted.files() as &dyn Files)
            .ok_or_else(|| not_made(ID))
    }

    fn processes(&self) -> Vec<u32> {
        self.mounted.as_ref().map_or_else(Vec::new, |mounted| mounted.daemon().to_vec())
    }

    fn is_volatile(&self) -> bool {
        true
    }
}

impl Drop for NullTarget {
    fn drop(&mut self) {
        // Without its mount the daemon ends by itself; this only waits for it.
        drop(self.mounted.take());
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.wait();
        }
    }
}
