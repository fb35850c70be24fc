//! Claims: an array takes memory of servers when it is made, moves when a server is lost, and gives
//! all back when it is released.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::ownership::Hold;
use super::records::{
    ArrayRecord, Claim, Claims, OwnerRecord, PREFIX, Place, ReleasedRecord, ServerRecord,
    array_key, claims_key, owner_key, released_key, text,
};
use super::store::{Change, Entry, Store, StoreError, Transaction};
use super::{ATTEMPTS, EtcdError};

/// A value, and the revision that it was read at: 0 where there is none.
#[derive(Debug, Clone, Default)]
pub struct Versioned<T> {
    /// What it says.
    pub value: T,
    pub(super) revision: i64,
    pub(super) lease: i64,
}

/// A server of the list.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// What it says of itself; `None` where it is gone and only claims are left.
    pub record: Option<ServerRecord>,
    /// Revision and lease of that.
    pub(super) registered: Versioned<()>,
    /// Who has claimed memory of it.
    pub claims: Versioned<Claims>,
}

impl Server {
    /// Bytes that nobody has claimed.
    pub fn free(&self) -> u64 {
        let claimed =
            self.claims.value.values().fold(0_u64, |sum, claim| sum.saturating_add(claim.size));
        self.record.as_ref().map_or(0, |record| record.size.saturating_sub(claimed))
    }

    /// Bytes that one more array can have here.
    fn room(&self) -> u64 {
        let quota = self.record.as_ref().map_or(0, |record| record.quota);
        if self.free() >= quota { quota } else { 0 }
    }

    /// Whether an array can have so much here.
    fn fits(&self, size: u64) -> bool {
        self.free() >= size && self.record.as_ref().is_some_and(|record| record.quota >= size)
    }
}

/// Everything that etcd knows of us, at one revision.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Servers by name.
    pub servers: BTreeMap<String, Server>,
    /// Arrays by name.
    pub arrays: BTreeMap<String, Versioned<ArrayRecord>>,
    /// Who has arrays open, by the name of the array.
    pub owners: BTreeMap<String, Versioned<OwnerRecord>>,
}

fn read<T: DeserializeOwned>(entry: &Entry) -> Result<Versioned<T>, EtcdError> {
    let value =
        serde_json::from_str(&entry.value).map_err(|_| EtcdError::Garbled(entry.key.clone()))?;
    Ok(Versioned { value, revision: entry.revision, lease: entry.lease })
}

/// Reads everything.
///
/// # Errors
/// Those of etcd, and a record that cannot be read.
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
            // Of a later version: none of our business.
            _ => {}
        }
    }
    Ok(listing)
}

impl Listing {
    /// The array of this name.
    ///
    /// # Errors
    /// [`EtcdError::NoArray`].
    pub fn array(&self, name: &str) -> Result<&Versioned<ArrayRecord>, EtcdError> {
        self.arrays.get(name).ok_or_else(|| EtcdError::NoArray(name.to_owned()))
    }

    /// The revision of an owner's key, and so whether there is one.
    pub(super) fn owner_revision(&self, array: &str) -> i64 {
        self.owners.get(array).map_or(0, |owner| owner.revision)
    }

    /// The `count` servers that fit best: on machines of their own as far as there are so many, and
    /// with most memory free.
    fn pick(
        &self,
        count: usize,
        fits: impl Fn(&Server) -> bool,
    ) -> Option<Vec<(&str, &ServerRecord)>> {
        let mut open: Vec<(&str, &Server, &ServerRecord)> = self
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

    /// The claims on a server with those of `array` changed, as a part of a transaction.
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

/// Decides and commits until nobody else was faster. `decide` reads what there is, and either has a
/// result or a transaction that leads to one.
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
            // Made or not: what is read next says so. Who is silent twice is not asked a third
            // time.
            Err(error @ StoreError::Unreachable(_)) if silent.is_none() => silent = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(silent.map_or(EtcdError::Busy, EtcdError::Store))
}

/// Who makes or opens an array: his lease is nobody else's, and so his name.
#[derive(Debug, Clone)]
pub struct Client {
    /// His lease.
    pub lease: i64,
    /// Who he is, for people.
    pub owner: OwnerRecord,
}

/// Makes an array of `count` members on servers that have room, open for `client` under its first
/// token.
///
/// # Errors
/// [`EtcdError::Exists`], [`EtcdError::NoRoom`], and those of etcd.
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
                // Made, and opened by another client before this one heard of it.
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

/// Moves a lost member from the server `from` to another one that has room. `None`: there is none.
///
/// # Errors
/// [`EtcdError::Fenced`], and those of etcd.
pub fn replace(
    store: &impl Store,
    hold: &Hold,
    member: usize,
    from: &str,
) -> Result<Option<Place>, EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        let array = hold.find(listing)?;
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

/// Takes an array and all its claims off the records.
///
/// # Errors
/// [`EtcdError::Fenced`], and those of etcd.
pub fn release(store: &impl Store, hold: &Hold) -> Result<(), EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        if listing.arrays.get(name).is_none_or(|array| array.value.uuid != hold.uuid) {
            return Ok(Ok(()));
        }
        let array = hold.find(listing)?;
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

/// The newest stamp and epoch of an array with a log, whether it was released or not; `None` where
/// nobody knows.
///
/// # Errors
/// Those of etcd.
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

/// Forgets an array that was released: its log has become another array's.
///
/// # Errors
/// Those of etcd.
pub fn forget_released(store: &impl Store, uuid: &str) -> Result<(), EtcdError> {
    let changes = vec![Change::Delete(released_key(uuid))];
    Ok(store.commit(&Transaction { conditions: Vec::new(), changes }).map(drop)?)
}
