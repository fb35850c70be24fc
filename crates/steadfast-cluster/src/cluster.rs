//! [`Cluster`]: a volume in etcd, as an administrator and the nodes see it.

use steadfast_remote::etcd::Gateway;
use steadfast_remote::etcd::store::{Change, Entry, Store, Transaction};

use crate::record::{
    Node, OwnerRecord, Seen, VolumeRecord, Wish, find, node_key, node_prefix, owner_key, prefix,
    text, volume_key,
};
use crate::{ClusterAddress, ClusterError, PATIENCE};

/// How often a change is decided again because the record has changed meanwhile. An owner changes
/// it five times a second.
const ATTEMPTS: usize = 32;

/// A volume of a cluster.
pub struct Cluster<S = Gateway> {
    store: S,
    volume: String,
}

/// What etcd knows of a volume, at one revision.
#[derive(Debug, Clone)]
pub struct Status {
    /// The volume.
    pub volume: VolumeRecord,
    /// Its owner.
    pub owner: Seen<OwnerRecord>,
    /// The processes that take part, the owner too.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// The volume at an address. No connection is made yet.
    ///
    /// # Errors
    /// A certificate or key is unusable.
    pub fn at(address: &ClusterAddress) -> Result<Cluster, ClusterError> {
        let store = Gateway::new(&address.members, &address.tls, PATIENCE)?;
        Ok(Cluster::new(store, &address.volume))
    }
}

impl<S: Store> Cluster<S> {
    /// A volume in a store.
    pub fn new(store: S, volume: &str) -> Cluster<S> {
        Cluster { store, volume: volume.to_owned() }
    }

    /// Name of the volume.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Records a volume under this name.
    ///
    /// # Errors
    /// `Exists`; errors of etcd.
    pub fn create(&self, record: &VolumeRecord) -> Result<(), ClusterError> {
        let key = volume_key(&self.volume);
        let made = self.store.commit(&Transaction {
            conditions: vec![(key.clone(), 0)],
            changes: vec![Change::Put(key.clone(), text(record), 0)],
        })?;
        // The answer of an earlier attempt may have been lost.
        let mine = || -> Result<bool, ClusterError> {
            let found = find::<VolumeRecord>(&self.store.get(&prefix(&self.volume))?, &key)?;
            Ok(found.is_some_and(|found| found.value == *record))
        };
        if made || mine()? { Ok(()) } else { Err(ClusterError::Exists(self.volume.clone())) }
    }

    /// Removes the name. The volume itself stays on its medium.
    ///
    /// # Errors
    /// `NoVolume`, `Owned`; errors of etcd.
    pub fn remove(&self) -> Result<(), ClusterError> {
        self.change(|status| {
            let record = &status.owner.value;
            // An owner that is not fenced could write to a volume that has a new name by then.
            if let Some(node) = record.node.as_ref().or(record.unfenced.first()) {
                return Err(ClusterError::Owned(node.to_string()));
            }
            let key = volume_key(&self.volume);
            Ok(vec![Change::Delete(key), Change::Delete(owner_key(&self.volume))])
        })
    }

    /// What etcd knows of the volume.
    ///
    /// # Errors
    /// `NoVolume`; errors of etcd.
    pub fn status(&self) -> Result<Status, ClusterError> {
        let entries = self.store.get(&prefix(&self.volume))?;
        let volume = find(&entries, &volume_key(&self.volume))?;
        let volume: Seen<VolumeRecord> =
            volume.ok_or_else(|| ClusterError::NoVolume(self.volume.clone()))?;
        let nodes = node_prefix(&self.volume);
        let node = |entry: &Entry| {
            serde_json::from_str(&entry.value).map_err(|_| ClusterError::Garbled(entry.key.clone()))
        };
        Ok(Status {
            volume: volume.value,
            owner: self.owner_in(&entries)?,
            nodes: entries
                .iter()
                .filter(|entry| entry.key.starts_with(&nodes))
                .map(node)
                .collect::<Result<_, _>>()?,
        })
    }

    /// The record of the owner; without one, the record of a volume that had none yet.
    ///
    /// # Errors
    /// Errors of etcd.
    pub fn owner(&self) -> Result<Seen<OwnerRecord>, ClusterError> {
        self.owner_in(&self.store.get(&owner_key(&self.volume))?)
    }

    fn owner_in(&self, entries: &[Entry]) -> Result<Seen<OwnerRecord>, ClusterError> {
        let none = Seen { value: OwnerRecord::default(), revision: 0 };
        Ok(find(entries, &owner_key(&self.volume))?.unwrap_or(none))
    }

    /// Stores a record of the owner if the revision is still this one.
    ///
    /// # Errors
    /// Errors of etcd. If no member answered, the record may have been stored.
    pub fn replace(&self, revision: i64, record: &OwnerRecord) -> Result<bool, ClusterError> {
        let key = owner_key(&self.volume);
        Ok(self.store.commit(&Transaction {
            conditions: vec![(key.clone(), revision)],
            changes: vec![Change::Put(key, text(record), 0)],
        })?)
    }

    /// Asks the owner to unmount, so that `next` takes over; any node that stands by if `None`.
    ///
    /// # Errors
    /// `NoVolume`, `NotOwned`, `NoNode`; errors of etcd.
    pub fn hand_over(&self, next: Option<&str>) -> Result<(), ClusterError> {
        self.change(|status| {
            let record = &status.owner.value;
            let Some(owner) = &record.node else { return Err(ClusterError::NotOwned) };
            let stands_by =
                |name: &str| status.nodes.iter().any(|node| node.name == name && node != owner);
            if let Some(name) = next.filter(|name| !stands_by(name)) {
                return Err(ClusterError::NoNode(name.to_owned()));
            }
            let wish = Some(Wish::HandOver(next.unwrap_or_default().to_owned()));
            Ok(vec![self.put(&OwnerRecord { wish, ..record.clone() })])
        })
    }

    /// Takes the volume away from its owner. The next owner fences it before it reads anything.
    /// Returns the owner that was evicted.
    ///
    /// # Errors
    /// `NoVolume`, `NotOwned`; errors of etcd.
    pub fn evict(&self) -> Result<Node, ClusterError> {
        let mut evicted = None;
        self.change(|status| {
            let record = status.owner.value.clone();
            let Some(node) = record.node else { return Err(ClusterError::NotOwned) };
            evicted = Some(node.clone());
            let mut unfenced = record.unfenced;
            unfenced.push(node);
            let OwnerRecord { epoch, opened, closed, .. } = record;
            let free = OwnerRecord { epoch, opened, closed, unfenced, ..OwnerRecord::default() };
            Ok(vec![self.put(&free)])
        })?;
        evicted.ok_or(ClusterError::NotOwned)
    }

    /// Forgets that nodes are not fenced, because the administrator knows that they write no more.
    ///
    /// # Errors
    /// `NoVolume`; errors of etcd.
    pub fn confirm_fenced(&self) -> Result<Vec<Node>, ClusterError> {
        let mut fenced = Vec::new();
        self.change(|status| {
            fenced = status.owner.value.unfenced.clone();
            let record = OwnerRecord { unfenced: Vec::new(), ..status.owner.value.clone() };
            Ok(vec![self.put(&record)])
        })?;
        Ok(fenced)
    }

    /// Adds a node to the list, as long as its lease lives. It replaces a process of the same name
    /// that has ended on the same host.
    ///
    /// # Errors
    /// `NameTaken`; errors of etcd.
    pub fn join(&self, node: &Node, lease: i64) -> Result<(), ClusterError> {
        let key = node_key(&self.volume, &node.name);
        let found: Option<Seen<Node>> = find(&self.store.get(&key)?, &key)?;
        let revision = match found {
            Some(found) if found.value != *node && !found.value.is_gone(node) => {
                let Node { name, host, process, .. } = found.value;
                let place = format!("process {process} on {host}");
                return Err(ClusterError::NameTaken(name, place));
            }
            found => found.map_or(0, |found| found.revision),
        };
        let joined = self.store.commit(&Transaction {
            conditions: vec![(key.clone(), revision)],
            changes: vec![Change::Put(key, text(node), lease)],
        })?;
        if joined { Ok(()) } else { Err(ClusterError::Busy) }
    }

    fn put(&self, record: &OwnerRecord) -> Change {
        Change::Put(owner_key(&self.volume), text(record), 0)
    }

    /// Decides changes until none of the records has changed meanwhile.
    fn change(
        &self,
        mut decide: impl FnMut(&Status) -> Result<Vec<Change>, ClusterError>,
    ) -> Result<(), ClusterError> {
        for _ in 0..ATTEMPTS {
            let status = self.status()?;
            let conditions = vec![(owner_key(&self.volume), status.owner.revision)];
            let changes = decide(&status)?;
            if self.store.commit(&Transaction { conditions, changes })? {
                return Ok(());
            }
        }
        Err(ClusterError::Busy)
    }
}
