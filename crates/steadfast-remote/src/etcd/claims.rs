//! Claims: an array claims memory of servers when it is made. It moves a claim when a server is
//! lost, and drops all claims when it is released.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::hold::Hold;
use super::records::{
    ArrayRecord, Claim, Claims, OwnerRecord, PREFIX, Place, ReleasedRecord, ServerRecord,
    array_key, claims_key, owner_key, released_key, text,
};
use super::store::{Change, Entry, Store, StoreError, Transaction};
use super::{ATTEMPTS, EtcdError};

/// A value, and the revision at which it was read: 0 if it does not exist.
#[derive(Debug, Clone, Default)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    pub(super) revision: i64,
    pub(super) lease: i64,
}

/// A server of the list.
#[derive(Debug, Clone, Default)]
pub struct ListedServer {
    /// The server's own record; `None` if the server is gone and only claims are left.
    pub record: Option<ServerRecord>,
    /// Revision and lease of the record.
    pub(super) registered: Versioned<()>,
    /// Claims on its memory.
    pub claims: Versioned<Claims>,
}

impl ListedServer {
    /// Unclaimed bytes.
    pub fn free(&self) -> u64 {
        let claimed =
            self.claims.value.values().fold(0_u64, |sum, claim| sum.saturating_add(claim.size));
        self.record.as_ref().map_or(0, |record| record.size.saturating_sub(claimed))
    }

    /// Bytes that a new array can claim here.
    fn room(&self) -> u64 {
        let quota = self.record.as_ref().map_or(0, |record| record.quota);
        if self.free() >= quota { quota } else { 0 }
    }

    /// Whether an array can claim this many bytes here.
    fn fits(&self, size: u64) -> bool {
        self.free() >= size && self.record.as_ref().is_some_and(|record| record.quota >= size)
    }
}

/// All our records in etcd, at one revision.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Servers by name.
    pub servers: BTreeMap<String, ListedServer>,
    /// Arrays by name.
    pub arrays: BTreeMap<String, Versioned<ArrayRecord>>,
    /// Clients that have arrays open, by the name of the array.
    pub owners: BTreeMap<String, Versioned<OwnerRecord>>,
}

impl Listing {
    /// The record of the array of `hold`, if no other client has taken it since then.
    pub(super) fn held(&self, hold: &Hold) -> Result<&Versioned<ArrayRecord>, EtcdError> {
        let found = self.arrays.get(&hold.name);
        let ours = |array: &&Versioned<ArrayRecord>| {
            array.value.token == hold.token && array.value.uuid == hold.uuid
        };
        found.filter(ours).ok_or_else(|| EtcdError::Fenced(hold.name.clone()))
    }
}

fn read<T: DeserializeOwned>(entry: &Entry) -> Result<Versioned<T>, EtcdError> {
    let value =
        serde_json::from_str(&entry.value).map_err(|_| EtcdError::Garbled(entry.key.clone()))?;
    Ok(Versioned { value, revision: entry.revision, lease: entry.lease })
}

/// Reads all records.
///
/// # Errors
/// An error of etcd, or an unreadable record.
pub fn list(store: &impl Store) -> Result<Listing, EtcdError> {
    let mut listing = Listing::default();
    for entry in store.get(PREFIX)? {
        let rest = entry.key.strip_prefix(PREFIX).unwrap_or_default();
        match rest.split_once('/') {
            Some(("servers", name)) => {
                let server = listing.servers.entry(name.to_owned()).or_default();
                server.record = Some(read(&entry)?.value);
                server.registered =
                    Versioned { value: (), revision: entry.revision, lease: entry.lease };
            }
            Some(("claims", name)) => {
                listing.servers.entry(name.to_owned()).or_default().claims = read(&entry)?;
            }
            Some(("arrays", name)) => drop(listing.arrays.insert(name.to_owned(), read(&entry)?)),
            Some(("owners", name)) => drop(listing.owners.insert(name.to_owned(), read(&entry)?)),
            // Keys of a later version are ignored.
            _ => {}
        }
    }
    Ok(listing)
}

impl Listing {
    /// The array with this name.
    ///
    /// # Errors
    /// [`EtcdError::NoArray`].
    pub fn array(&self, name: &str) -> Result<&Versioned<ArrayRecord>, EtcdError> {
        self.arrays.get(name).ok_or_else(|| EtcdError::NoArray(name.to_owned()))
    }

    /// The revision of an owner's key; 0 if there is no owner.
    pub(super) fn owner_revision(&self, array: &str) -> i64 {
        self.owners.get(array).map_or(0, |owner| owner.revision)
    }

    /// The `count` servers that fit best: on different machines as far as possible, and with most
    /// free memory.
    fn pick(
        &self,
        count: usize,
        fits: impl Fn(&ListedServer) -> bool,
    ) -> Option<Vec<(&str, &ServerRecord)>> {
        let mut open: Vec<(&str, &ListedServer, &ServerRecord)> = self
            .servers
            .iter()
            .filter(|(_, server)| fits(server))
            .filter_map(|(name, server)| Some((name.as_str(), server, server.record.as_ref()?)))
            .collect();
        let mut chosen: Vec<(&str, &ServerRecord)> = Vec::new();
        while chosen.len() < count {
            let beside = |record: &ServerRecord| {
                chosen
                    .iter()
                    .filter(|(_, other)| host(&other.address) == host(&record.address))
                    .count()
            };
            let best = (0..open.len()).min_by_key(|index| {
                let (name, server, record) = open[*index];
                (beside(record), Reverse(server.free()), name)
            })?;
            let (name, _, record) = open.swap_remove(best);
            chosen.push((name, record));
        }
        Some(chosen)
    }

    /// A change of the claims of `array` on a server, as part of a transaction.
    fn change_claim(
        &self,
        server: &str,
        array: &str,
        claim: Option<Claim>,
        into: &mut Transaction,
    ) {
        let known =
            self.servers.get(server).map(|server| server.claims.clone()).unwrap_or_default();
        let mut claims = known.value;
        match claim {
            Some(claim) => drop(claims.insert(array.to_owned(), claim)),
            None => drop(claims.remove(array)),
        }
        let key = claims_key(server);
        into.conditions.push((key.clone(), known.revision));
        into.changes.push(match claims.is_empty() {
            true => Change::Delete(key),
            false => Change::Put(key, text(&claims), 0),
        });
    }
}

/// The host of an address.
fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Decides and commits, and repeats both if another client was faster. `decide` sees all records
/// and returns either a result or a transaction that leads to one.
pub(super) fn until_done<S: Store, T>(
    store: &S,
    mut decide: impl FnMut(&Listing) -> Result<Result<T, Transaction>, EtcdError>,
) -> Result<T, EtcdError> {
    let mut silent = None;
    for _ in 0..ATTEMPTS {
        let transaction = match decide(&list(store)?)? {
            Ok(done) => return Ok(done),
            Err(transaction) => transaction,
        };
        match store.commit(&transaction) {
            Ok(_) => {}
            // The next read shows whether the commit was made. A second commit without an answer is
            // an error.
            Err(error @ StoreError::Unreachable(_)) if silent.is_none() => silent = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(silent.map_or(EtcdError::Busy, EtcdError::Store))
}

/// A client that makes or opens an array, with a lease of its own.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its lease.
    pub lease: i64,
    /// Host and process, for messages.
    pub owner: OwnerRecord,
}

/// Makes an array of `count` members on servers with room. The array is open for `client` under its
/// first token.
///
/// # Errors
/// [`EtcdError::Exists`], [`EtcdError::NoRoom`], and errors of etcd.
pub fn create(
    store: &impl Store,
    name: &str,
    uuid: &str,
    policy: &str,
    count: usize,
    client: &Client,
) -> Result<ArrayRecord, EtcdError> {
    until_done(store, |listing| {
        if let Some(found) = listing.arrays.get(name) {
            return match (found.value.uuid == uuid, found.value.token) {
                (true, 1) => Ok(Ok(found.value.clone())),
                // Made by this client, and opened by another one before the answer arrived.
                (true, _) => Err(EtcdError::Fenced(name.to_owned())),
                (false, _) => Err(EtcdError::Exists(name.to_owned())),
            };
        }
        let chosen = listing.pick(count, |server| server.room() > 0).ok_or_else(|| {
            let open = listing.servers.values().filter(|server| server.room() > 0).count();
            EtcdError::NoRoom(count, open)
        })?;
        let size = chosen.iter().map(|(_, record)| record.quota).min().unwrap_or(0);
        let place = |(server, record): &(&str, &ServerRecord)| Place {
            server: (*server).to_owned(),
            address: record.address.clone(),
        };
        let record = ArrayRecord {
            uuid: uuid.to_owned(),
            policy: policy.to_owned(),
            token: 1,
            stamp: 0,
            epoch: 0,
            size,
            members: chosen.iter().map(place).collect(),
            logged: false,
        };
        let mut transaction = Transaction {
            conditions: vec![(array_key(name), 0), (owner_key(name), listing.owner_revision(name))],
            changes: vec![
                Change::Put(array_key(name), text(&record), 0),
                Change::Put(owner_key(name), text(&client.owner), client.lease),
            ],
        };
        for (member, place) in record.members.iter().enumerate() {
            listing.change_claim(
                &place.server,
                name,
                Some(Claim { member, size }),
                &mut transaction,
            );
        }
        Ok(Err(transaction))
    })
}

/// Moves a lost member from the server `from` to another server with room. `None` if there is no
/// such server.
///
/// # Errors
/// [`EtcdError::Fenced`], and errors of etcd.
pub fn replace(
    store: &impl Store,
    hold: &Hold,
    member: usize,
    from: &str,
) -> Result<Option<Place>, EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        let array = listing.held(hold)?;
        let mut record = array.value.clone();
        let used = |server: &str| array.value.members.iter().any(|place| place.server == server);
        let Some(place) = record.members.get_mut(member) else { return Ok(Ok(None)) };
        if place.server != from {
            return Ok(Ok(Some(place.clone())));
        }
        let mut others = listing.clone();
        others.servers.retain(|server, _| !used(server));
        let Some(chosen) = others.pick(1, |server| server.fits(array.value.size)) else {
            return Ok(Ok(None));
        };
        let Some((server, found)) = chosen.first() else { return Ok(Ok(None)) };
        *place = Place { server: (*server).to_owned(), address: found.address.clone() };
        let mut transaction = Transaction {
            conditions: vec![(array_key(name), array.revision)],
            changes: vec![Change::Put(array_key(name), text(&record), 0)],
        };
        let size = record.size;
        listing.change_claim(from, name, None, &mut transaction);
        listing.change_claim(server, name, Some(Claim { member, size }), &mut transaction);
        Ok(Err(transaction))
    })
}

/// Removes an array and all its claims from the records.
///
/// # Errors
/// [`EtcdError::Fenced`], and errors of etcd.
pub fn release(store: &impl Store, hold: &Hold) -> Result<(), EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        if listing.arrays.get(name).is_none_or(|array| array.value.uuid != hold.uuid) {
            return Ok(Ok(()));
        }
        let array = listing.held(hold)?;
        let mut transaction = Transaction {
            conditions: vec![(array_key(name), array.revision)],
            changes: vec![Change::Delete(array_key(name)), Change::Delete(owner_key(name))],
        };
        if array.value.logged {
            let (stamp, epoch) = array.value.order();
            let left = text(&ReleasedRecord { stamp, epoch });
            transaction.changes.push(Change::Put(released_key(&hold.uuid), left, 0));
        }
        for (server, _) in
            listing.servers.iter().filter(|(_, server)| server.claims.value.contains_key(name))
        {
            listing.change_claim(server, name, None, &mut transaction);
        }
        Ok(Err(transaction))
    })
}

/// The newest stamp and epoch of an array with a log, released or not; `None` if unknown.
///
/// # Errors
/// Errors of etcd.
pub fn newest(store: &impl Store, uuid: &str) -> Result<Option<(u64, u64)>, EtcdError> {
    let listing = list(store)?;
    if let Some(array) = listing.arrays.values().find(|array| array.value.uuid == uuid) {
        return Ok(Some(array.value.order()));
    }
    let key = released_key(uuid);
    let found = store.get(&key)?.into_iter().find(|entry| entry.key == key);
    let record = found.map(|entry| read::<ReleasedRecord>(&entry)).transpose()?;
    Ok(record.map(|record| (record.value.stamp, record.value.epoch)))
}

/// Forgets a released array, because its log now belongs to another array.
///
/// # Errors
/// Errors of etcd.
pub fn forget_released(store: &impl Store, uuid: &str) -> Result<(), EtcdError> {
    let changes = vec![Change::Delete(released_key(uuid))];
    Ok(store.commit(&Transaction { conditions: Vec::new(), changes }).map(drop)?)
}
