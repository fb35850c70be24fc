//! [`Session`]: an array that this process has open for writing, under a token of its own.
//!
//! The array continues without etcd as long as no epoch must begin. Its lease may end meanwhile and
//! another client may take over; then the servers refuse the requests of this client. Such a
//! refusal sets `fenced` permanently. So does a newer token in etcd, or an epoch that cannot be
//! noted because of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::claims::{self, Client, Listing};
use super::hold::Hold;
use super::records::{ArrayRecord, OwnerRecord};
use super::store::{Store, StoreError};
use super::{EtcdError, Gateway, LEASE_SECONDS, RENEWAL, ownership};
use crate::address::{Address, EtcdAddress};
use crate::array::Witness;
use crate::server::TlsError;

/// Time limit for an answer of an etcd member.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two tries to note an epoch.
const PAUSE: Duration = Duration::from_millis(250);

/// The gateway to the etcd cluster of an address.
///
/// # Errors
/// A certificate or key is unusable.
pub(crate) fn gateway(etcd: &EtcdAddress) -> Result<Gateway, TlsError> {
    Gateway::new(&etcd.members, &etcd.tls, PATIENCE)
}

/// An open array.
pub(crate) struct Session {
    common: Arc<Common>,
    thread: Option<JoinHandle<()>>,
}

struct Common {
    gateway: Gateway,
    hold: Hold,
    /// Set after another client has got a newer token.
    fenced: Arc<AtomicBool>,
    lease: AtomicI64,
    noted: Mutex<(u64, u64)>,
    /// Why the newest epoch could not be noted.
    trouble: Mutex<Option<String>>,
    wait: Duration,
    over: Mutex<bool>,
    wake: Condvar,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.common.hold.fmt(f)
    }
}

impl Session {
    /// Makes the array with this name on `count` servers with room.
    ///
    /// # Errors
    /// As [`claims::create`], and failure to start a thread.
    pub(crate) fn create(
        gateway: Gateway,
        etcd: &EtcdAddress,
        uuid: &str,
        policy: &str,
        count: usize,
        logged: bool,
    ) -> Result<(Session, ArrayRecord), EtcdError> {
        let client = client(&gateway)?;
        let record = claims::create(&gateway, &etcd.array, uuid, policy, count, &client)?;
        Ok((Session::begin(gateway, etcd, &record, &client, logged)?, record))
    }

    /// Opens the array with this name for writing.
    ///
    /// # Errors
    /// As [`ownership::take`], and failure to start a thread.
    pub(crate) fn open(
        gateway: Gateway,
        etcd: &EtcdAddress,
        logged: bool,
    ) -> Result<(Session, ArrayRecord), EtcdError> {
        let client = client(&gateway)?;
        let record = ownership::take(&gateway, &etcd.array, &client, etcd.takeover);
        if record.is_err() {
            let _ = gateway.revoke(client.lease);
        }
        let record = record?;
        Ok((Session::begin(gateway, etcd, &record, &client, logged)?, record))
    }

    fn begin(
        gateway: Gateway,
        etcd: &EtcdAddress,
        record: &ArrayRecord,
        client: &Client,
        logged: bool,
    ) -> Result<Session, EtcdError> {
        let common = Arc::new(Common {
            gateway,
            hold: Hold::of(&etcd.array, record).with_log(logged),
            fenced: Arc::default(),
            lease: AtomicI64::new(client.lease),
            noted: Mutex::new(record.order()),
            trouble: Mutex::default(),
            wait: etcd.wait,
            over: Mutex::new(false),
            wake: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("etcd".into()).spawn({
            let common = Arc::clone(&common);
            move || common.tend()
        });
        let thread =
            thread.map_err(|error| StoreError::Unreachable(format!("no thread: {error}")))?;
        Ok(Session { common, thread: Some(thread) })
    }

    /// The token of this client.
    pub(crate) fn token(&self) -> u32 {
        self.common.hold.token
    }

    /// Why an epoch cannot be noted.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.common.trouble.lock().clone()
    }

    /// Set after another client has taken over.
    pub(crate) fn fenced(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.common.fenced)
    }

    /// The present address of a member's server.
    ///
    /// # Errors
    /// Errors of etcd.
    pub(crate) fn whereabouts(&self, member: usize) -> Result<Option<String>, EtcdError> {
        let listing = claims::list(&self.common.gateway)?;
        let array = listing.held(&self.common.hold)?;
        Ok(addresses(&listing, &array.value).into_iter().nth(member))
    }

    /// Moves a lost member to another server with room, and returns its address.
    ///
    /// # Errors
    /// Errors of etcd.
    pub(crate) fn replace(&self, member: usize) -> Result<Option<String>, EtcdError> {
        let common = &self.common;
        let listing = claims::list(&common.gateway)?;
        let array = listing.held(&common.hold)?;
        let Some(from) = array.value.members.get(member) else { return Ok(None) };
        let place = claims::replace(&common.gateway, &common.hold, member, &from.server)?;
        Ok(place.map(|place| place.address))
    }

    /// Releases the array and all its memory.
    ///
    /// # Errors
    /// Errors of etcd.
    pub(crate) fn release(&self) -> Result<(), EtcdError> {
        claims::release(&self.common.gateway, &self.common.hold)
    }
}

/// Addresses of an array's members: from the list of servers, or else the last known ones.
pub(crate) fn addresses(listing: &Listing, array: &ArrayRecord) -> Vec<String> {
    let now = |place: &super::records::Place| {
        let server = listing.servers.get(&place.server).and_then(|server| server.record.as_ref());
        server.map_or_else(|| place.address.clone(), |record| record.address.clone())
    };
    array.members.iter().map(now).collect()
}

/// The address with the servers of the array, in the form that a client with this token uses.
///
/// # Errors
/// Errors of etcd.
pub(crate) fn resolved(
    address: &Address,
    gateway: &Gateway,
    record: &ArrayRecord,
    token: Option<u32>,
) -> Result<Address, EtcdError> {
    let listing = claims::list(gateway)?;
    Ok(Address {
        servers: addresses(&listing, record),
        export: match token {
            Some(token) => format!("{}@{token}", record.uuid),
            None => record.uuid.clone(),
        },
        ..address.clone()
    })
}

fn client(gateway: &Gateway) -> Result<Client, EtcdError> {
    Ok(Client { lease: gateway.grant(LEASE_SECONDS)?, owner: OwnerRecord::this_process() })
}

impl Common {
    fn judge<T>(&self, result: Result<T, EtcdError>) -> Result<T, EtcdError> {
        if matches!(result, Err(EtcdError::Fenced(_))) {
            self.fenced.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Renews the lease and checks the token, until the session ends or is fenced.
    fn tend(&self) {
        loop {
            {
                let mut over = self.over.lock();
                if !*over {
                    self.wake.wait_for(&mut over, RENEWAL);
                }
                if *over {
                    break;
                }
            }
            let lease = self.lease.load(Ordering::Relaxed);
            let renewed = match self.gateway.renew(lease) {
                Ok(true) => Ok(lease),
                Ok(false) => self.gateway.grant(LEASE_SECONDS),
                Err(error) => Err(error),
            };
            // A failure is harmless while no epoch must begin.
            let Ok(lease) = renewed else { continue };
            self.lease.store(lease, Ordering::Relaxed);
            let client = Client { lease, owner: OwnerRecord::this_process() };
            let kept = self.judge(ownership::keep(&self.gateway, &self.hold, &client));
            if matches!(kept, Err(EtcdError::Fenced(_))) {
                break;
            }
        }
        let _ = self.gateway.revoke(self.lease.load(Ordering::Relaxed));
    }
}

impl Witness for Session {
    /// Waits for etcd if it does not answer; everything that depends on the epoch waits too.
    fn note(&self, _uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String> {
        let common = &self.common;
        let deadline = Instant::now() + common.wait;
        loop {
            let noted = common.judge(ownership::note(&common.gateway, &common.hold, order));
            match &noted {
                Ok(()) => {
                    *common.trouble.lock() = None;
                    *common.noted.lock() = order;
                    return Ok(());
                }
                Err(EtcdError::Store(StoreError::Unreachable(_)) | EtcdError::Busy)
                    if Instant::now() < deadline && !*common.over.lock() =>
                {
                    *common.trouble.lock() = noted.err().map(|error| error.to_string());
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    *common.trouble.lock() = Some(error.to_string());
                    return Err(error.to_string());
                }
            }
        }
    }

    fn newest(&self, _uuid: &[u8; 16]) -> Option<(u64, u64)> {
        Some(*self.common.noted.lock())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        *self.common.over.lock() = true;
        self.common.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
