//! [`Registration`]: the entry of a server in the list, as long as the server lives.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::records::{ServerRecord, server_key, text};
use super::store::{Change, Store, Transaction};
use super::{EtcdError, Gateway, LEASE_SECONDS, RENEWAL};

/// How long to wait for a name that a possibly dead server still has.
const NAME_WAIT: Duration = Duration::from_secs(2 * LEASE_SECONDS);

#[derive(Default)]
struct Stop {
    over: Mutex<bool>,
    wake: Condvar,
}

/// A server in the list. Removed when dropped, and some seconds after its process dies.
pub struct Registration {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Registration {
    /// Adds a server to the list; `used` returns its bytes in use.
    ///
    /// # Errors
    /// [`EtcdError::NameTaken`], errors of etcd, and failure to start a thread.
    pub fn start(
        gateway: Gateway,
        name: &str,
        record: ServerRecord,
        used: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Registration, EtcdError> {
        let deadline = Instant::now() + NAME_WAIT;
        let mut lease = gateway.grant(LEASE_SECONDS)?;
        loop {
            match register(&gateway, name, &record, lease) {
                Err(EtcdError::NameTaken(..)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(500));
                    if !gateway.renew(lease)? {
                        lease = gateway.grant(LEASE_SECONDS)?;
                    }
                }
                result => break result?,
            }
        }
        let stop = Arc::new(Stop::default());
        let thread = std::thread::Builder::new()
            .name("etcd".into())
            .spawn({
                let (stop, name) = (Arc::clone(&stop), name.to_owned());
                move || tend(&gateway, &name, record, lease, &stop, used)
            })
            .map_err(|error| super::StoreError::Unreachable(format!("no thread: {error}")))?;
        Ok(Registration { stop, thread: Some(thread) })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        *self.stop.over.lock() = true;
        self.stop.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Writes the record under the lease. An existing record with the same address is this server's
/// own: two servers cannot listen there.
pub(super) fn register(
    store: &impl Store,
    name: &str,
    record: &ServerRecord,
    lease: i64,
) -> Result<(), EtcdError> {
    super::claims::until_done(store, |listing| {
        let key = server_key(name);
        let server = listing.servers.get(name);
        let (known, registered) = server
            .map(|server| (server.record.as_ref(), server.registered.clone()))
            .unwrap_or_default();
        if registered.lease == lease && known == Some(record) {
            return Ok(Ok(()));
        }
        if let Some(known) = known
            && registered.lease != lease
            && known.address != record.address
        {
            return Err(EtcdError::NameTaken(name.to_owned(), known.address.clone()));
        }
        Ok(Err(Transaction {
            conditions: vec![(key.clone(), registered.revision)],
            changes: vec![Change::Put(key, text(record), lease)],
        }))
    })
}

/// Renews the lease, and adds the server to the list again if etcd has dropped it.
fn tend(
    gateway: &Gateway,
    name: &str,
    mut record: ServerRecord,
    mut lease: i64,
    stop: &Stop,
    used: impl Fn() -> u64,
) {
    loop {
        {
            let mut over = stop.over.lock();
            if !*over {
                stop.wake.wait_for(&mut over, RENEWAL);
            }
            if *over {
                break;
            }
        }
        record.used = used();
        let renewed = match gateway.renew(lease) {
            Ok(true) => Ok(lease),
            Ok(false) => gateway.grant(LEASE_SECONDS),
            Err(error) => Err(error),
        };
        // Errors of etcd do not stop the server; the next round tries again.
        if let Ok(renewed) = renewed {
            lease = renewed;
            let _ = register(gateway, name, &record, lease);
        }
    }
    let _ = gateway.revoke(lease);
}
