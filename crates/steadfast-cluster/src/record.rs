//! Keys and values of a volume in etcd: JSON, readable with
//! `etcdctl get --prefix steadfast/1-cluster/`.

use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steadfast_remote::etcd::store::Entry;

use crate::ClusterError;

/// Prefix of all keys; the number is the version of this layout.
const PREFIX: &str = "steadfast/1-cluster/";

/// A volume: what does not change while it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Address of the medium, such as `rados://POOL/NAME`.
    pub medium: String,
    /// Command that fences a node, for a medium that fences nothing itself. It gets name, host and
    /// process of the node, and succeeds only if that node surely writes no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// All nodes mount the volume, and the owner serves the others. Otherwise they stand by.
    #[serde(default)]
    pub shared: bool,
}

/// A process that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node; by default that of its host.
    pub name: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// Distinguishes this process from earlier ones with the same number.
    pub instance: String,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Node { name, host, process, .. } = self;
        write!(f, "node {name} (process {process} on {host})")
    }
}

impl Node {
    /// Whether this process ran on the host of `here` and is gone. A number that another process
    /// has by now makes it seem to run.
    pub fn is_gone(&self, here: &Node) -> bool {
        self.host == here.host && !Path::new(&format!("/proc/{}", self.process)).exists()
    }
}

/// What an administrator asks of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// Unmount, and let the named node take over; any node if the name is empty.
    HandOver(String),
}

/// The owner of a volume. Each change of this record is a transaction on its revision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    /// Number of the term; it grows with each owner.
    pub epoch: u64,
    /// The owner; none after it gave the volume up or was evicted.
    pub node: Option<Node>,
    /// The owner has opened the volume.
    #[serde(default)]
    pub serves: bool,
    /// Where the owner of a shared volume serves the other nodes, or takes what they keep before it
    /// serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The last term whose owner has opened the volume for all nodes. What nodes have of that owner
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<u64>,
    /// That owner has closed it, with all changes.
    #[serde(default)]
    pub closed: bool,
    /// Changes with each beat.
    pub beat: u64,
    /// Earlier owners that are perhaps not fenced yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfenced: Vec<Node>,
    /// What an administrator has asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<Wish>,
    /// The node that shall own the volume next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The last owner that has opened a volume for all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predecessor {
    /// Its term.
    pub epoch: u64,
    /// It has closed the volume, with all changes.
    pub closed: bool,
}

impl OwnerRecord {
    /// The owner of which nodes may have something.
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.opened.map(|epoch| Predecessor { epoch, closed: self.closed })
    }

    /// Whether this process is the owner in this epoch.
    pub fn is_of(&self, node: &Node, epoch: u64) -> bool {
        self.epoch == epoch && self.node.as_ref() == Some(node)
    }

    /// The next epoch, owned by `node`. All earlier owners have to be fenced.
    #[must_use]
    pub fn taken_by(&self, node: &Node) -> OwnerRecord {
        let mut unfenced = self.unfenced.clone();
        unfenced.extend(self.node.clone());
        OwnerRecord {
            epoch: self.epoch + 1,
            node: Some(node.clone()),
            unfenced,
            opened: self.opened,
            closed: self.closed,
            ..OwnerRecord::default()
        }
    }
}

/// A record with the revision of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<T> {
    /// The record.
    pub value: T,
    /// Its revision; 0: there is none yet.
    pub revision: i64,
}

/// Key prefix of a volume.
pub fn prefix(volume: &str) -> String {
    format!("{PREFIX}{volume}/")
}

/// Key of a [`VolumeRecord`].
pub fn volume_key(volume: &str) -> String {
    format!("{}volume", prefix(volume))
}

/// Key of an [`OwnerRecord`].
pub fn owner_key(volume: &str) -> String {
    format!("{}owner", prefix(volume))
}

/// Prefix of the keys of the nodes that take part. Each is bound to a lease.
pub fn node_prefix(volume: &str) -> String {
    format!("{}node/", prefix(volume))
}

/// Key of a [`Node`].
pub fn node_key(volume: &str, node: &str) -> String {
    format!("{}{node}", node_prefix(volume))
}

/// The value of a record.
pub fn text<T: Serialize>(record: &T) -> String {
    // Plain structures with text keys can always be encoded.
    serde_json::to_string(record).unwrap_or_default()
}

/// Reads the record with exactly this key.
///
/// # Errors
/// [`ClusterError::Garbled`].
pub fn find<T: DeserializeOwned>(
    entries: &[Entry],
    key: &str,
) -> Result<Option<Seen<T>>, ClusterError> {
    let Some(entry) = entries.iter().find(|entry| entry.key == key) else { return Ok(None) };
    let value =
        serde_json::from_str(&entry.value).map_err(|_| ClusterError::Garbled(entry.key.clone()))?;
    Ok(Some(Seen { value, revision: entry.revision }))
}
