//! A store in memory that always answers. The simulation loses and delays the answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use steadfast_remote::etcd::StoreError;
use steadfast_remote::etcd::store::{Change, Entry, Store, Transaction};

#[derive(Default)]
struct Keys {
    entries: BTreeMap<String, Entry>,
    revision: i64,
    lease_last: i64,
}

/// Keys in memory; clones share them.
#[derive(Clone, Default)]
pub struct Fake(Rc<RefCell<Keys>>);

impl Store for Fake {
    fn get(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        let keys = self.0.borrow();
        let entries = keys.entries.values().filter(|entry| entry.key.starts_with(prefix));
        Ok(entries.cloned().collect())
    }

    fn commit(&self, transaction: &Transaction) -> Result<bool, StoreError> {
        let mut keys = self.0.borrow_mut();
        let held = transaction.conditions.iter().all(|(key, revision)| {
            keys.entries.get(key).map_or(0, |entry| entry.revision) == *revision
        });
        if !held {
            return Ok(false);
        }
        keys.revision += 1;
        let revision = keys.revision;
        for change in &transaction.changes {
            match change {
                Change::Put(key, value, lease) => {
                    let (key, value, lease) = (key.clone(), value.clone(), *lease);
                    let entry = Entry { key: key.clone(), value, revision, lease };
                    keys.entries.insert(key, entry);
                }
                Change::Delete(key) => drop(keys.entries.remove(key)),
            }
        }
        Ok(true)
    }

    fn grant(&self, _seconds: u64) -> Result<i64, StoreError> {
        let mut keys = self.0.borrow_mut();
        keys.lease_last += 1;
        Ok(keys.lease_last)
    }

    fn renew(&self, _lease: i64) -> Result<bool, StoreError> {
        Ok(true)
    }

    fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        self.0.borrow_mut().entries.retain(|_, entry| entry.lease != lease);
        Ok(())
    }
}

mod tests {
    use super::*;
    use crate::record::{Node, VolumeRecord, Wish};
    use crate::{Cluster, ClusterError};

    fn node(name: &str) -> Node {
        Node { name: name.into(), host: "h".into(), process: 1, instance: name.into() }
    }

    #[test]
    fn an_administrator_creates_hands_over_evicts_and_removes() {
        let cluster = Cluster::new(Fake::default(), "v");
        assert!(matches!(cluster.status(), Err(ClusterError::NoVolume(_))));
        let record = VolumeRecord { medium: "rados://p/i".into(), fence: None, shared: false };
        cluster.create(&record).unwrap();
        cluster.create(&record).unwrap();
        let other = VolumeRecord { medium: "rados://p/j".into(), fence: None, shared: false };
        assert!(matches!(cluster.create(&other), Err(ClusterError::Exists(_))));
        assert!(matches!(cluster.hand_over(None), Err(ClusterError::NotOwned)));
        assert!(matches!(cluster.evict(), Err(ClusterError::NotOwned)));

        let (a, b) = (node("a"), node("b"));
        cluster.join(&a, 1).unwrap();
        cluster.join(&a, 1).unwrap();
        let again = Node { instance: "later".into(), ..a.clone() };
        assert!(matches!(cluster.join(&again, 2), Err(ClusterError::NameTaken(..))));
        let gone = Node { name: "g".into(), process: u32::MAX, ..a.clone() };
        cluster.join(&gone, 2).unwrap();
        cluster.join(&Node { process: 1, ..gone }, 2).unwrap();
        cluster.store().revoke(2).unwrap();
        let owner = cluster.owner().unwrap();
        assert!(cluster.replace(owner.revision, &owner.value.taken_by(&a)).unwrap());
        assert!(!cluster.replace(owner.revision, &owner.value.taken_by(&b)).unwrap());
        assert!(matches!(cluster.remove(), Err(ClusterError::Owned(_))));
        assert!(matches!(cluster.hand_over(Some("b")), Err(ClusterError::NoNode(_))));
        cluster.join(&b, 3).unwrap();
        cluster.hand_over(Some("b")).unwrap();
        assert_eq!(cluster.owner().unwrap().value.wish, Some(Wish::HandOver("b".into())));

        assert_eq!(cluster.evict().unwrap(), a);
        let status = cluster.status().unwrap();
        assert_eq!((status.owner.value.node, status.owner.value.epoch), (None, 1));
        assert_eq!((status.owner.value.unfenced, status.nodes.len()), (vec![a.clone()], 2));
        assert!(matches!(cluster.remove(), Err(ClusterError::Owned(_))), "a may still write");
        assert_eq!(cluster.confirm_fenced().unwrap(), [a]);
        cluster.remove().unwrap();
        assert!(matches!(cluster.status(), Err(ClusterError::NoVolume(_))));
    }
}
