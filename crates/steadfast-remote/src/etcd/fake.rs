//! A store in memory, driven by a seed. Replies are lost, members do not answer, leases end, and
//! other clients interfere.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use steadfast_media::Random;

use super::store::{Change, Entry, Store, StoreError, Transaction};

#[derive(Default)]
struct Keys {
    entries: BTreeMap<String, Entry>,
    revision: i64,
    leases: Vec<i64>,
    lease_last: i64,
}

/// The action of another client between two steps of this client.
pub(super) type Other<'a> = Box<dyn Fn(&Fake<'a>) + 'a>;

/// Keys in memory.
pub(super) struct Fake<'a> {
    keys: RefCell<Keys>,
    random: RefCell<Random>,
    /// Percentage of requests without an answer; half of them are carried out.
    pub(super) silent: Cell<u64>,
    /// The interfering client, which acts before `others` of 100 requests.
    pub(super) other: RefCell<Option<Other<'a>>>,
    pub(super) others: Cell<u64>,
    pub(super) silences: Cell<u64>,
}

fn silence() -> StoreError {
    StoreError::Unreachable("the fake is silent".to_owned())
}

impl Fake<'_> {
    pub(super) fn new(seed: u64) -> Self {
        Fake {
            keys: RefCell::default(),
            random: RefCell::new(Random::new(seed)),
            silent: Cell::new(0),
            other: RefCell::new(None),
            others: Cell::new(0),
            silences: Cell::new(0),
        }
    }

    /// A number below `limit`.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    /// Ends a lease and deletes its keys.
    pub(super) fn end(&self, lease: i64) {
        let mut keys = self.keys.borrow_mut();
        keys.leases.retain(|other| *other != lease);
        keys.entries.retain(|_, entry| entry.lease != lease);
        keys.revision += 1;
    }

    fn interlude(&self) {
        // The interfering client is not itself interrupted.
        if self.below(100) >= self.others.get() {
            return;
        }
        let other = self.other.borrow_mut().take();
        if let Some(other) = other {
            other(self);
            *self.other.borrow_mut() = Some(other);
        }
    }

    /// Whether the request is carried out, and whether that is answered.
    fn fate(&self) -> (bool, bool) {
        match self.below(100) < self.silent.get() {
            true => {
                self.silences.set(self.silences.get() + 1);
                (self.below(2) == 0, false)
            }
            false => (true, true),
        }
    }
}

impl Store for Fake<'_> {
    fn get(&self, prefix: &str) -> Result<Vec<Entry>, StoreError> {
        self.interlude();
        match self.fate() {
            (_, false) => Err(silence()),
            _ => {
                let keys = self.keys.borrow();
                Ok(keys
                    .entries
                    .values()
                    .filter(|entry| entry.key.starts_with(prefix))
                    .cloned()
                    .collect())
            }
        }
    }

    fn commit(&self, transaction: &Transaction) -> Result<bool, StoreError> {
        self.interlude();
        let (carried_out, answered) = self.fate();
        if !carried_out {
            return Err(silence());
        }
        let mut keys = self.keys.borrow_mut();
        let revision = |key: &String| keys.entries.get(key).map_or(0, |entry| entry.revision);
        let holds = transaction.conditions.iter().all(|(key, wanted)| revision(key) == *wanted);
        if holds {
            keys.revision += 1;
            let revision = keys.revision;
            for change in &transaction.changes {
                match change {
                    Change::Put(key, value, lease) => {
                        if *lease != 0 && !keys.leases.contains(lease) {
                            return Err(StoreError::Refused(
                                "requested lease not found".to_owned(),
                            ));
                        }
                        let entry = Entry {
                            key: key.clone(),
                            value: value.clone(),
                            revision,
                            lease: *lease,
                        };
                        keys.entries.insert(key.clone(), entry);
                    }
                    Change::Delete(key) => drop(keys.entries.remove(key)),
                }
            }
        }
        if answered { Ok(holds) } else { Err(silence()) }
    }

    fn grant(&self, _seconds: u64) -> Result<i64, StoreError> {
        let mut keys = self.keys.borrow_mut();
        keys.lease_last += 1;
        let lease = keys.lease_last;
        keys.leases.push(lease);
        Ok(lease)
    }

    fn renew(&self, lease: i64) -> Result<bool, StoreError> {
        Ok(self.keys.borrow().leases.contains(&lease))
    }

    fn revoke(&self, lease: i64) -> Result<(), StoreError> {
        self.end(lease);
        Ok(())
    }
}
