//! [`RemoteMedium`]: an array at an address, looked after: lost members are rebuilt while it is open.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use steadfast_media::{Geometry, Medium, MediumCounters, MediumError};

use crate::address::Address;
use crate::array::{
    Array, ArrayError, ArrayOptions, BLOCK, Call, CreateOptions, Fleet, Outcome, Policy, Progress, Status,
    Superblock,
};
use crate::client::{Ask, ClientTls, Endpoint, FleetOptions, TcpFleet, client_config};
use crate::server::TlsError;
use crate::witness::DirectoryWitness;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The array.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Another process of this machine has the array open.
    #[error("the array is in use by another process of this machine")]
    InUse,
    /// The witness's directory, or a thread.
    #[error("{0}")]
    Host(String),
}

/// What a server says, without the array being opened.
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// Where it is.
    pub address: String,
    /// Bytes that it lends, or why it does not answer.
    pub contact: Result<u64, String>,
    /// Its superblock.
    pub superblock: Option<Superblock>,
}

/// An array at an address, open.
pub struct RemoteMedium {
    array: Arc<Array<TcpFleet>>,
    tender: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    _lock: Option<File>,
}

#[derive(Default)]
struct Shared {
    stop: Mutex<bool>,
    wake: Condvar,
    rebuilding: AtomicBool,
    done: AtomicU64,
}

fn fleet(address: &Address) -> Result<TcpFleet, RemoteError> {
    let tls = match address.tls.authorities {
        Some(_) => Some(ClientTls { config: client_config(&address.tls)?, server_name: None }),
        None => None,
    };
    let endpoints = address
        .servers
        .iter()
        .map(|server| Endpoint { address: server.clone(), export: address.export.clone(), tls: tls.clone() })
        .collect();
    let options = FleetOptions { connections: address.connections, patience: address.timeout };
    Ok(TcpFleet::new(endpoints, options))
}

/// Where epochs are noted if the address does not say: below the state directory of this machine or user.
fn witness(address: &Address) -> Result<Option<Arc<DirectoryWitness>>, RemoteError> {
    if let Some(directory) = &address.witness {
        let made = DirectoryWitness::new(directory.clone())
            .map_err(|error| RemoteError::Host(format!("{}: {error}", directory.display())))?;
        return Ok(Some(Arc::new(made)));
    }
    let home = std::env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")));
    let candidates = [Some(PathBuf::from("/var/lib")), home];
    let made = candidates
        .into_iter()
        .flatten()
        .find_map(|state| DirectoryWitness::new(state.join("steadfast/remote")).ok());
    Ok(made.map(Arc::new))
}

fn options(address: &Address, witness: Option<&Arc<DirectoryWitness>>) -> ArrayOptions {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ArrayOptions {
        patience_ms: ms(address.timeout),
        hedge_ms: ms(address.hedge),
        degraded: address.degraded,
        witness: witness.map(|witness| Arc::clone(witness) as Arc<dyn crate::array::Witness>),
    }
}

impl RemoteMedium {
    /// Makes an array on the servers of the address; whatever they hold is gone.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn create(address: &Address, uuid: [u8; 16]) -> Result<RemoteMedium, RemoteError> {
        let fleet = fleet(address)?;
        let witness = witness(address)?;
        let members = address.servers.len().saturating_sub(address.spares);
        let policy = address.policy.unwrap_or(if members > 1 { Policy::Mirror } else { Policy::None });
        let create = CreateOptions { policy, uuid, spares: address.spares };
        let array = Array::create(fleet, &create, options(address, witness.as_ref()))?;
        Self::attend(array, address, witness)
    }

    /// Opens the array on the servers of the address.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open(address: &Address) -> Result<RemoteMedium, RemoteError> {
        let fleet = fleet(address)?;
        let witness = witness(address)?;
        if let Some(witness) = &witness
            && let Some(uuid) =
                (0..fleet.servers()).find_map(|server| Some(look(&fleet, address, server).superblock?.uuid))
        {
            // Before the epoch changes below whoever has it.
            let held = witness.lock(&uuid).map_err(|error| RemoteError::Host(error.to_string()))?;
            let lock = held.ok_or(RemoteError::InUse)?;
            drop(lock);
        }
        let array = Array::open(fleet, options(address, witness.as_ref()))?;
        Self::attend(array, address, witness)
    }

    fn attend(
        array: Array<TcpFleet>,
        address: &Address,
        witness: Option<Arc<DirectoryWitness>>,
    ) -> Result<RemoteMedium, RemoteError> {
        let lock = match witness {
            Some(witness) => {
                let held = witness
                    .lock(&array.status().uuid)
                    .map_err(|error| RemoteError::Host(format!("the witness: {error}")))?;
                Some(held.ok_or(RemoteError::InUse)?)
            }
            None => None,
        };
        let (array, shared) = (Arc::new(array), Arc::new(Shared::default()));
        let tender = std::thread::Builder::new()
            .name("remote-tender".into())
            .spawn({
                let (array, shared) = (Arc::clone(&array), Arc::clone(&shared));
                let (rate, spare_after) = (address.rebuild_rate, address.spare_after);
                move || tend(&array, &shared, rate, spare_after)
            })
            .map_err(|error| RemoteError::Host(error.to_string()))?;
        Ok(RemoteMedium { array, tender: Some(tender), shared, _lock: lock })
    }

    /// What there is to know, and how many segments of a rebuild are done while there is one.
    pub fn status(&self) -> (Status, Option<u64>) {
        let rebuilding = self.shared.rebuilding.load(Ordering::Relaxed);
        (self.array.status(), rebuilding.then(|| self.shared.done.load(Ordering::Relaxed)))
    }

    /// Takes a good member out, for its server to be given back; a spare takes its place.
    ///
    /// # Errors
    /// When no more can be lost.
    pub fn drain(&self, member: usize) -> Result<(), RemoteError> {
        if self.array.spares().is_empty() {
            let why = "there is no spare to take its place: give one with spare=HOST:PORT".to_owned();
            return Err(RemoteError::Array(ArrayError::Invalid(why)));
        }
        Ok(self.array.drain(member)?)
    }

    /// Whether another process of this machine has the array open.
    pub fn is_in_use(address: &Address) -> bool {
        let (Ok(fleet), Ok(Some(witness))) = (fleet(address), witness(address)) else { return false };
        let uuid =
            (0..fleet.servers()).find_map(|server| Some(look(&fleet, address, server).superblock?.uuid));
        uuid.is_some_and(|uuid| matches!(witness.lock(&uuid), Ok(None)))
    }

    /// What the servers of an address say, without opening the array: safe while somebody uses it.
    ///
    /// # Errors
    /// Certificates.
    pub fn look(address: &Address) -> Result<Vec<ServerReport>, RemoteError> {
        let fleet = fleet(address)?;
        Ok((0..fleet.servers()).map(|server| look(&fleet, address, server)).collect())
    }
}

fn look(fleet: &TcpFleet, address: &Address, server: usize) -> ServerReport {
    let contact = fleet.contact(server).map(|contact| contact.size);
    let mut bytes = vec![0; 2 * BLOCK];
    let mut superblock = None;
    if contact.is_ok() {
        let mut calls = [Call::new(server, 0, Ask::Read(&mut bytes))];
        fleet.round(&mut calls, u64::try_from(address.timeout.as_millis()).unwrap_or(u64::MAX));
        if calls[0].outcome == Outcome::Done {
            let copies = bytes.chunks_exact(BLOCK).filter_map(Superblock::decode);
            superblock = copies.max_by_key(|superblock| superblock.epoch);
        }
    }
    let address = fleet.address(server).unwrap_or_default().to_owned();
    ServerReport { address, contact, superblock }
}

/// Rebuilds what is lost: on its own server where that answers, or else on a spare.
fn tend(array: &Array<TcpFleet>, shared: &Shared, rate: u64, spare_after: Duration) {
    let mut since: Vec<Option<Instant>> = Vec::new();
    // Waits; whether it is over.
    let rest = |time: Duration| {
        let mut stop = shared.stop.lock();
        if !*stop {
            shared.wake.wait_for(&mut stop, time);
        }
        *stop
    };
    while !rest(Duration::from_millis(500)) {
        let lost = array.lost();
        since.resize(array.status().members.len().max(since.len()), None);
        for (member, since) in since.iter_mut().enumerate() {
            match lost.contains(&member) {
                true => drop(since.get_or_insert_with(Instant::now)),
                false => *since = None,
            }
        }
        for member in lost {
            let status = array.status();
            if status.failed {
                break;
            }
            let Some((_, own)) = status.members.get(member).copied() else { continue };
            let patient =
                since.get(member).copied().flatten().is_some_and(|since| since.elapsed() < spare_after);
            let begun = array.begin_rebuild(member, own).or_else(|error| match array.spares().first() {
                Some(spare) if !patient => array.begin_rebuild(member, *spare),
                _ => Err(error),
            });
            let Ok(mut rebuild) = begun else { continue };
            shared.rebuilding.store(true, Ordering::Relaxed);
            let mut before = 0;
            while let Ok(Progress::Going(done, _)) = array.rebuild_step(&mut rebuild) {
                shared.done.store(done.into(), Ordering::Relaxed);
                let given = rebuild.bytes - before;
                before = rebuild.bytes;
                let pause = Duration::from_micros(given.saturating_mul(1_000_000) / rate.max(1));
                if given > 0 && rest(pause) {
                    return;
                }
                if *shared.stop.lock() {
                    return;
                }
            }
            shared.rebuilding.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for RemoteMedium {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.wake.notify_all();
        if let Some(tender) = self.tender.take() {
            let _ = tender.join();
        }
    }
}

impl Medium for RemoteMedium {
    fn geometry(&self) -> Geometry {
        self.array.geometry()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.array.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.array.write(offset, data)
    }
    fn flush(&self) -> Result<(), MediumError> {
        self.array.flush()
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.array.discard(offset, length)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.array.write_fua(offset, data)
    }
    fn counters(&self) -> Option<MediumCounters> {
        self.array.counters()
    }
}
