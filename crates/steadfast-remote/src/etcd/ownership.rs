//! Ownership: one client at a time may write to an array, namely the client with the newest token.

use super::EtcdError;
use super::claims::{Client, until_done};
use super::hold::Hold;
use super::records::{ArrayRecord, array_key, owner_key, text};
use super::store::{Change, Store, StoreError, Transaction};

/// Opens an array for writing under a new token, which invalidates all older ones. While another
/// client's lease lives, `takeover` is required.
///
/// # Errors
/// [`EtcdError::NoArray`], [`EtcdError::InUse`], and errors of etcd.
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

/// Notes stamp and epoch of a client's superblock: from now on the epoch may have consequences.
///
/// # Errors
/// [`EtcdError::Fenced`], and errors of etcd.
pub fn note(store: &impl Store, hold: &Hold, order: (u64, u64)) -> Result<(), EtcdError> {
    until_done(store, |listing| {
        let array = listing.held(hold)?;
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

/// Records again that a client has the array open, even after its lease has ended. If its token is
/// still the newest, no other client has taken the array meanwhile.
///
/// # Errors
/// [`EtcdError::Fenced`], and errors of etcd.
pub fn keep(store: &impl Store, hold: &Hold, client: &Client) -> Result<(), EtcdError> {
    let name = hold.name.as_str();
    until_done(store, |listing| {
        let array = listing.held(hold)?;
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
