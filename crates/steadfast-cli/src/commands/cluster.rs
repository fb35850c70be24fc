//! `steadfast cluster`: volumes that several machines can mount, one at a time.

use std::path::{Path, PathBuf};

use serde::Serialize;
use steadfast_cluster::record::{Node, VolumeRecord};
use steadfast_cluster::{Cluster, SILENCE, Status};

use crate::cluster::{address, failure, fences_itself};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{self, Output};
use crate::{mounts, network};

/// Volumes with one owner among several machines, and others that stand by
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterCommand {
    /// Give a volume a name in a cluster
    ///
    /// Then 'steadfast mount cluster://ETCD/NAME DIR' mounts it on several machines. One of them
    /// owns it and serves the others. The volume must have been made with 'steadfast mkfs'.
    Create {
        /// Address of the volume, cluster://ETCD/NAME; commas separate members of etcd
        address: PathBuf,
        /// Its medium: rados://POOL/NAME or remote+etcd://ETCD/NAME, which fence their earlier
        /// owners; with --fence any medium that all machines reach
        medium: PathBuf,
        /// Shell command that fences a node: it succeeds only if the process STEADFAST_PROCESS on
        /// STEADFAST_HOST (node STEADFAST_NODE) surely writes no more
        #[arg(long, value_name = "COMMAND")]
        fence: Option<String>,
        /// Only the owner mounts the volume: its directory is empty on nodes that stand by, and
        /// its kernel caches as on one machine
        #[arg(long)]
        standby: bool,
    },
    /// Show medium, owner and nodes of a volume; changes nothing
    Status {
        /// Address of the volume
        address: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask the owner to unmount, so that another node takes over
    ///
    /// While files are open there, they are served until they are closed.
    Handover {
        /// Address of the volume
        address: PathBuf,
        /// Node that shall take over; by default any that stands by
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
    },
    /// Take the volume away from its owner
    ///
    /// The next owner fences it before it reads anything. What the evicted owner has made durable
    /// stays; what it has not is lost, as by a power cut.
    Evict {
        /// Address of the volume
        address: PathBuf,
        /// Confirm that earlier owners write no more, where the fencing command has failed
        #[arg(long)]
        fenced: bool,
    },
    /// Remove the name of a volume that no node owns; the volume stays on its medium
    Remove {
        /// Address of the volume
        address: PathBuf,
    },
}

/// The JSON document.
#[derive(Serialize)]
struct ClusterStatusJson<'a> {
    medium: &'a str,
    fence: Option<&'a str>,
    shared: bool,
    address: Option<&'a str>,
    epoch: u64,
    owner: Option<&'a Node>,
    serves: bool,
    beats: bool,
    nodes: &'a [Node],
    unfenced: &'a [Node],
}

/// Runs the command.
///
/// # Errors
/// What is wrong with the address, etcd or the volume.
pub fn run(args: &Args) -> Outcome {
    let path = match &args.command {
        ClusterCommand::Create { address, .. }
        | ClusterCommand::Status { address, .. }
        | ClusterCommand::Handover { address, .. }
        | ClusterCommand::Evict { address, .. }
        | ClusterCommand::Remove { address } => address.as_path(),
    };
    let at_path = |error| failure(&error, path);
    let cluster = Cluster::at(&address(path)?).map_err(at_path)?;
    let name = path.display();
    match &args.command {
        ClusterCommand::Create { medium, fence, standby, .. } => {
            let record = record(medium, fence.as_deref(), !standby)?;
            cluster.create(&record).map_err(at_path)?;
            output::line(format!("{name}: {}", record.medium))
        }
        ClusterCommand::Status { json, .. } => status(&cluster, path, *json),
        ClusterCommand::Handover { to, .. } => {
            cluster.hand_over(to.as_deref()).map_err(at_path)?;
            output::line(format!("{name}: the owner was asked to unmount"))
        }
        ClusterCommand::Evict { fenced: true, .. } => {
            let fenced = cluster.confirm_fenced().map_err(at_path)?;
            let count = fenced.len();
            output::line(format!("{name}: {count} node(s) count as fenced"))
        }
        ClusterCommand::Evict { fenced: false, .. } => {
            let node = cluster.evict().map_err(at_path)?;
            output::line(format!("{name}: {node} is evicted; the next owner fences it"))
        }
        ClusterCommand::Remove { .. } => {
            cluster.remove().map_err(at_path)?;
            output::line(format!("{name}: removed"))
        }
    }
}

fn record(medium: &Path, fence: Option<&str>, shared: bool) -> Outcome<VolumeRecord> {
    if crate::cluster::is_cluster(medium) {
        return Err(crate::cluster::only_mount(medium));
    }
    if fence.is_none() && !fences_itself(medium) {
        return Err(Failure::new(
            Exit::Usage,
            "this medium does not refuse the requests of an earlier owner",
            medium.display(),
            "use rados:// or remote+etcd://, or give a --fence command",
        ));
    }
    let absolute =
        mounts::absolute(medium).map_err(|error| Failure::host(&error, "open", medium))?;
    if !network::is_address(&absolute) && !absolute.exists() {
        return Err(Failure::new(
            Exit::NotAVolume,
            "no such image or device",
            medium.display(),
            "make the volume first with 'steadfast mkfs'",
        ));
    }
    let medium = absolute.to_str().ok_or_else(|| {
        Failure::new(Exit::Usage, "the path is not UTF-8", absolute.display(), "rename it")
    })?;
    Ok(VolumeRecord { medium: medium.to_owned(), fence: fence.map(str::to_owned), shared })
}

fn status(cluster: &Cluster, path: &Path, json: bool) -> Outcome {
    let at_path = |error| failure(&error, path);
    let status = cluster.status().map_err(at_path)?;
    let record = &status.owner.value;
    // An owner beats several times in this time.
    let beats = record.node.is_some() && {
        std::thread::sleep(SILENCE);
        cluster.owner().map_err(at_path)?.revision != status.owner.revision
    };
    let Status { volume, nodes, .. } = &status;
    if json {
        return output::json(&ClusterStatusJson {
            medium: &volume.medium,
            fence: volume.fence.as_deref(),
            shared: volume.shared,
            address: record.address.as_deref(),
            epoch: record.epoch,
            owner: record.node.as_ref(),
            serves: record.serves,
            beats,
            nodes,
            unfenced: &record.unfenced,
        });
    }
    let mut output = Output::new();
    output.line(format!("{}: {}", path.display(), volume.medium))?;
    output.line(match &record.node {
        Some(node) => {
            let state = match (beats, record.serves) {
                (false, _) => ", silent",
                (true, true) => "",
                (true, false) => ", not open yet",
            };
            let at =
                record.address.as_ref().map_or(String::new(), |at| format!(", serves at {at}"));
            format!("owned by {node} in epoch {}{at}{state}", record.epoch)
        }
        None => format!("not owned, after epoch {}", record.epoch),
    })?;
    for node in nodes.iter().filter(|node| Some(*node) != record.node.as_ref()) {
        let does = if volume.shared { "uses the volume, and stands by" } else { "stands by" };
        output.line(format!("{node} {does}"))?;
    }
    for node in &record.unfenced {
        output.line(format!("{node} is not fenced yet"))?;
    }
    output.finish()
}
