//! The owner of a volume of a cluster: standing by, fencing, and opening the medium.
//!
//! Invariant: the medium is opened only after every earlier owner is fenced. RADOS and the servers
//! of an array fence at the opening, by the lock and by the token. For any other medium the
//! command fences that was given to `steadfast cluster create`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use steadfast::{Error, OpenOptions, Volume};
use steadfast_cluster::owner::{Event, Term, Watch, Watcher, stand_by};
use steadfast_cluster::record::{Node, OwnerRecord, Predecessor, VolumeRecord};
use steadfast_cluster::{Cluster, ClusterAddress, ClusterError};
use steadfast_fuse::UnmountHandle;
use steadfast_host::HostPlatform;
use steadfast_rados::{RadosMedium, Term as RadosTerm};

use crate::cluster::{address, failure, fences_itself};
use crate::daemon::Ready;
use crate::failure::{Exit, Failure, Outcome};
use crate::host::{self, Way};
use crate::logger::{Priority, message};
use crate::medium::{HostMedium, HostVolume};
use crate::mount_options::MountSettings;
use crate::{rados, remote};

/// A volume that this process owns.
pub struct Owned {
    term: Term,
    address: PathBuf,
    /// Name of the volume in the cluster.
    name: String,
    volume: VolumeRecord,
    /// This process has opened a medium that does not refuse it later: what the kernel has cached
    /// may be written after the process has ended.
    may_write_on: Cell<bool>,
    /// This process has opened the volume.
    has_opened: Cell<bool>,
}

/// The other nodes, as the next owner meets them.
pub trait Nodes {
    /// Where they find this node; `None`: they do not use the volume.
    fn address(&self) -> Option<String>;

    /// Waits for what up to `survivors` nodes keep, this one included.
    fn collect(&self, survivors: usize);

    /// Opens the volume, with what was collected.
    ///
    /// # Errors
    /// As [`Volume::open_after`].
    fn open(
        &self,
        medium: HostMedium,
        options: OpenOptions,
        platform: HostPlatform,
    ) -> Result<HostVolume, Error>;
}

/// No other node uses the volume.
pub struct NoNodes;

impl Nodes for NoNodes {
    fn address(&self) -> Option<String> {
        None
    }

    fn collect(&self, _survivors: usize) {}

    fn open(
        &self,
        medium: HostMedium,
        options: OpenOptions,
        platform: HostPlatform,
    ) -> Result<HostVolume, Error> {
        Volume::open(medium, options, platform)
    }
}

/// A node that is about to stand by.
pub struct Claim {
    cluster: Cluster,
    /// The address that was given.
    pub path: PathBuf,
    /// Its parts.
    pub address: ClusterAddress,
    /// The volume.
    pub volume: VolumeRecord,
    /// This process.
    pub node: Node,
}

/// Looks the volume up.
///
/// # Errors
/// [`failure`]; mount options that an owner cannot have.
pub fn claim(path: &Path, settings: &MountSettings) -> Outcome<Claim> {
    if settings.read_only || settings.snapshot.is_some() {
        return Err(Failure::new(
            Exit::Usage,
            "the owner of a volume writes, so it cannot be mounted read-only",
            path.display(),
            "mount its medium with -o ro, which 'steadfast cluster status' shows",
        ));
    }
    let at_path = |error| failure(&error, path);
    let address = address(path)?;
    let cluster = Cluster::at(&address).map_err(at_path)?;
    let volume = cluster.status().map_err(at_path)?.volume;
    let node = this_node(&address)?;
    Ok(Claim { cluster, path: path.to_owned(), address, volume, node })
}

/// What a node that stands by has seen, as a line for its log.
pub fn seen_text(seen: Result<&OwnerRecord, &ClusterError>) -> String {
    match seen {
        Ok(OwnerRecord { node: Some(owner), .. }) => format!("{owner} owns the volume"),
        Ok(_) => "no node owns the volume".to_owned(),
        Err(error) => error.to_string(),
    }
}

impl Claim {
    /// Stands by until this process owns the volume. `None`: `watch` has ended it.
    ///
    /// # Errors
    /// [`failure`].
    pub fn stand_by(self, watch: Watcher<'_>) -> Outcome<Option<Owned>> {
        let Claim { cluster, path: address, address: parts, volume, node } = self;
        let term = stand_by(cluster, &node, watch).map_err(|error| failure(&error, &address))?;
        let (name, may_write_on) = (parts.volume, Cell::new(false));
        let has_opened = Cell::new(false);
        Ok(term.map(|term| Owned { term, address, name, volume, may_write_on, has_opened }))
    }
}

/// Stands by until this process owns the volume. `None`: the process that waits for the mount has
/// ended.
///
/// # Errors
/// [`failure`].
pub fn own(claim: Claim, ready: &Ready) -> Outcome<Option<Owned>> {
    let mut told = String::new();
    let place = claim.path.display().to_string();
    claim.stand_by(&mut |seen| {
        let now = seen_text(seen);
        if now != told {
            let line = format!("{place}: standing by: {now}");
            ready.warn(&line);
            message(Priority::Info, &line);
            told = now;
        }
        !ready.is_abandoned()
    })
}

fn this_node(address: &ClusterAddress) -> Outcome<Node> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let instance = steadfast_host::random_uuid().map_err(|error| {
        let what = format!("no random bytes: {}", crate::failure::text_os(&error));
        Failure::new(Exit::Failed, what, "this machine", "make /dev/urandom available")
    })?;
    Ok(Node {
        name: address.node.clone().unwrap_or_else(|| host.clone()),
        host,
        process: std::process::id(),
        instance: crate::report::uuid_text(&instance),
    })
}

impl Owned {
    /// The address of the medium.
    pub fn medium(&self) -> &Path {
        Path::new(&self.volume.medium)
    }

    /// The number of the term.
    pub fn epoch(&self) -> u64 {
        self.term.epoch()
    }

    /// The earlier owner of which nodes may have something.
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.term.predecessor()
    }

    /// Tells whether the term goes on.
    pub fn standing(&self) -> Watch {
        self.term.watch()
    }

    /// Fences earlier owners and opens the volume, with what other nodes keep.
    ///
    /// # Errors
    /// A node that cannot be fenced; as [`host::open_volume`].
    pub fn open(&self, way: Way, options: OpenOptions, nodes: &dyn Nodes) -> Outcome<HostVolume> {
        let path = self.medium();
        for node in self.term.unfenced() {
            self.fence(node)?;
        }
        let volume = if fences_itself(path) {
            // Opening the medium fences. What is on it is read after that.
            let medium = self.take_medium()?;
            self.fenced(nodes)?;
            nodes
                .open(medium, options, HostPlatform::new())
                .map_err(|error| Failure::core(error, path.display()))?
        } else {
            self.fenced(nodes)?;
            let opened = host::open_volume_with(path, way, options, |medium, options| {
                nodes.open(medium, options, HostPlatform::new())
            });
            // A medium that another process has open was not opened here.
            let busy = opened.as_ref().is_err_and(|failure| failure.exit == Exit::Busy);
            self.may_write_on.set(!busy);
            opened?
        };
        self.has_opened.set(true);
        self.term.opened(nodes.address()).map_err(|error| failure(&error, &self.address))?;
        Ok(volume)
    }

    fn take_medium(&self) -> Outcome<HostMedium> {
        let path = self.medium();
        if !rados::is_rados(path) {
            return remote::take_over(path);
        }
        let term = RadosTerm { volume: self.name.clone(), epoch: self.term.epoch() };
        let medium = RadosMedium::open_in_term(&rados::location(path)?, term);
        Ok(Arc::new(medium.map_err(|error| rados::failure(&error, path))?))
    }

    fn fenced(&self, nodes: &dyn Nodes) -> Outcome {
        let at_address = |error| failure(&error, &self.address);
        self.term.fenced(nodes.address()).map_err(at_address)?;
        if nodes.address().is_none() {
            return Ok(());
        }
        if self.term.predecessor().is_some() {
            // Where etcd does not answer, the wait has its full length.
            nodes.collect(self.term.survivors().unwrap_or(usize::MAX));
        }
        self.term.opening().map_err(at_address)
    }

    fn fence(&self, node: &Node) -> Outcome {
        let cannot = |why: String| {
            Failure::new(
                Exit::Failed,
                format!("{node} cannot be fenced: {why}"),
                self.address.display(),
                "end it, then run 'steadfast cluster evict --fenced'",
            )
        };
        let Some(command) = &self.volume.fence else {
            // A record that 'cluster create' would have refused.
            let refused = || Err(cannot("the volume has no fencing command".to_owned()));
            return if fences_itself(self.medium()) { Ok(()) } else { refused() };
        };
        message(Priority::Info, format_args!("fencing {node}"));
        let status = Command::new("/bin/sh")
            .args(["-c", command])
            .env("STEADFAST_NODE", &node.name)
            .env("STEADFAST_HOST", &node.host)
            .env("STEADFAST_PROCESS", node.process.to_string())
            .stdin(Stdio::null())
            // The standard output of a daemon belongs to its caller.
            .stdout(Stdio::null())
            .status()
            .map_err(|error| cannot(crate::failure::text_os(&error)))?;
        if status.success() {
            Ok(())
        } else {
            Err(cannot(format!("the command ends with {status}")))
        }
    }

    /// Ends the mount when the cluster asks for it.
    pub fn watch(&self, mount: UnmountHandle) {
        let address = self.address.clone();
        let shared = self.volume.shared;
        self.term.on_event(move |event| match event {
            Event::HandOver => {
                message(Priority::Info, "a handover was asked for: unmounting");
                if let Err(error) = mount.unmount() {
                    let error = crate::failure::text_os(&error);
                    message(Priority::Warning, format_args!("cannot unmount: {error}"));
                }
            }
            Event::Deposed(by) => {
                let line = format!("{}: deposed by {by}: the mount ends", address.display());
                message(Priority::Error, line);
                mount.abandon();
            }
            Event::Sure(false) => {
                let line = match shared {
                    true => "etcd does not answer: requests wait until it does",
                    false => "etcd does not answer: this node serves on until another takes over",
                };
                message(Priority::Warning, line);
            }
            Event::Sure(true) => message(Priority::Info, "etcd answers again"),
        });
    }

    /// Gives the volume up before other nodes are served.
    ///
    /// # Errors
    /// [`failure`].
    pub fn give_up(self) -> Outcome {
        let address = self.address;
        let given_up = match self.has_opened.get() {
            true => self.term.release(true, None),
            false => self.term.give_up(),
        };
        given_up.map_err(|error| failure(&error, &address))
    }

    /// Gives the volume up. The last transaction point may have failed (not `ended`) while the
    /// kernel can still write what it has cached. Then the next owner fences this machine instead.
    /// `closed`: see [`Term::release`].
    ///
    /// # Errors
    /// [`failure`].
    pub fn release(self, ended: bool, closed: Option<bool>) -> Outcome {
        let address = self.address;
        self.term
            .release(ended || !self.may_write_on.get(), closed)
            .map_err(|error| failure(&error, &address))
    }
}
