//! Ownership: one client at a time may write to an array, by the token that it was given last.

use super::EtcdError;
use super::claims::{Client, Listing, Versioned, until_done};
use super::records::{ArrayRecord, array_key, owner_key, text};
use super::store::{Change, Store, StoreError, Transaction};

/// What a client holds of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Name of the array.
    pub name: String,
    /// Identity: the name may have been given to another array since.
    pub uuid: String,
    /// The client's token.
    pub token: u32,
    /// He keeps a write-behind log.
    pub logged: bool,
}

impl Hold {
    /// What a client has who has made or taken the array.
    pub fn of(name: &str, record: &ArrayRecord) -> Hold {
        Hold {
            name: name.to_owned(),
            uuid: record.uuid.clone(),
            token: record.token,
            logged: false,
        }
    }

    /// The same, of one who keeps a write-behind log.
    #[must_use]
    pub fn with_log(self, logged: bool) -> Hold {
        Hold { logged, ..self }
    }

    /// The array, if nobody has taken it since.
    pub(super) fn find<'a>(
        &self,
        listing: &'a Listing,
    ) -> Result<&'a Versioned<ArrayRecord>, EtcdError> {
        let found = listing.arrays.get(&self.name);
        let ours = |array: &&Versioned<ArrayRecord>| {
            array.value.token == self.token && array.value.uuid == self.uuid
        };
        found.filter(ours).ok_or_else(|| EtcdError::Fenced(self.name.clone()))
    }
}

/// Opens an array for writing: a new token, which ends all older ones. While another client's lease
/// lives only with `takeover`.
///
/// # Errors
/// [`EtcdError::NoArray`], [`EtcdError::InUse`], and those of etcd.
pub fn take(
    store: &impl Store,
    name: &str,
    client: &Client,
    takeover: bool,
) -> Result<ArrayRecord, EtcdError> {
    until_done(store, |listing| {
        let array = listing.array(name)?;
        match listing.owners.get(name) {
            Some(owner) if owner.lease == client.lease => return Ok(Ok(array.value.clone())),
            Some(owner) if !takeover => {
                let who = format!("{}, process {}", owner.value.host, owner.value.process);
                return Err(EtcdError::InUse(name.to_owned(), who));
            }
            _ => {}
        }
        let token = array.value.token.checked_add(1);
        let token = token.ok_or_else(|| StoreError::Refused("no tokens are left".to_owned()))?;
        let record = ArrayRecord { token, ..array.value.clone() };
        Ok(Err(Transaction {
            conditions: vec![
                (array_key(name), array.revision),
                (owner_key(name), listing.owner_revision(name)),
            ],
            changes: vec![
                Change::Put(array_key(name), text(&record), 0),
                Change::Put(owner_key(name), text(&client.owner), client.lease),
            ],
        }))
    })
}

/// Notes stamp and epoch of a client's superblock: from now on it may have consequences.
///
/// # Errors
/// [`EtcdError::Fenced`], and those of etcd.
pub fn note(store: &impl Store, hold: &Hold, order: (u64, u64)) -> Result<(), EtcdError> {
    until_done(store, |listing| {
        let array = hold.find(listing)?;
        if array.value.order() >= order {
            return Ok(Ok(()));
        }
        let logged = array.value.logged || hold.logged;
        let record = ArrayRecord { stamp: order.0, epoch: order.1, logged, ..array.value.clone() };
        Ok(Err(Transaction {
            conditions: vec![(array_key(&hold.name), array.revision)],
            changes: vec![Change::Put(array_key(&hold.name), text(&record), 0)],
        }))
    })
}

/// Sees to it that a client is known to have the array open, also after its lease had ended: nobody
/// has taken the array meanwhile, if the token is still the newest.
///
/// # Errors
/// [`EtcdError::Fenced`], and those of etcd.
pub fn keep(store: &impl Store, hold: &Hold, client: &Client) -> Result<(), EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        let array = hold.find(listing)?;
        if listing.owners.get(name).is_some_and(|owner| owner.lease == client.lease) {
            return Ok(Ok(()));
        }
        Ok(Err(Transaction {
            conditions: vec![
                (array_key(name), array.revision),
                (owner_key(name), listing.owner_revision(name)),
            ],
            changes: vec![Change::Put(owner_key(name), text(&client.owner), client.lease)],
        }))
    })
}
