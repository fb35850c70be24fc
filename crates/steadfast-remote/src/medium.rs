//! [`RemoteMedium`]: an array at an address, looked after: lost members are rebuilt while it is open.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use steadfast_media::{Geometry, Medium, MediumCounters, MediumError};

use crate::address::Address;
use crate::array::{
    Array, ArrayError, ArrayOptions, Call, CreateOptions, Fleet, Outcome, Policy, State, Status, Superblock,
};
use crate::client::{Ask, ClientTls, Endpoint, FleetOptions, TcpFleet, client_config};
use crate::latency::Latencies;
use crate::live::{self, Live, LiveMember, LiveSocket};
use crate::server::TlsError;
use crate::tender::{self, Shared};
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
    open: Arc<Open>,
    tender: Option<JoinHandle<()>>,
    /// Gone before the lock is.
    _socket: Option<LiveSocket>,
    _lock: Option<File>,
}

/// What those have in common who work on an open array.
struct Open {
    array: Array<TcpFleet>,
    shared: Shared,
    times: Times,
}

/// The numbers of an open array, for whoever shows them. Does not keep it open.
#[derive(Clone)]
pub struct Watch(Weak<Open>);

impl Watch {
    /// What the array is doing; `None` once it is closed.
    pub fn live(&self) -> Option<Live> {
        self.0.upgrade().map(|open| open.live())
    }
}

/// How long requests took.
struct Times {
    reads: Latencies,
    writes: Latencies,
    flushes: Latencies,
}

impl Open {
    fn live(&self) -> Live {
        let status = self.array.status();
        let counters = self.array.counters().unwrap_or_default();
        let members: Vec<LiveMember> = status
            .members
            .iter()
            .map(|(state, seat)| LiveMember {
                address: self.array.fleet().address(*seat).unwrap_or_default(),
                state: match state {
                    State::Good => "good",
                    State::Lost => "lost",
                    State::Rebuilding => "rebuilding",
                }
                .to_owned(),
            })
            .collect();
        Live {
            uuid: hex(&status.uuid),
            policy: status.policy.to_string(),
            epoch: status.epoch,
            degraded: status.members.iter().any(|(state, _)| *state != State::Good),
            members,
            failed: status.failed,
            rebuild: self.shared.rebuild(),
            size: status.size,
            segments: status.segments.1,
            segments_free: status.segments.0,
            reads: counters.reads,
            read_bytes: counters.read_bytes,
            writes: counters.writes,
            written_bytes: counters.written_bytes,
            flushes: counters.flushes,
            records: status.records,
            losses: status.losses,
            hedged: status.hedged,
            reconstructed: status.reconstructed,
            repaired: status.repaired,
            cleaned: status.cleaned,
            read_latency: self.times.reads.summary(),
            write_latency: self.times.writes.summary(),
            flush_latency: self.times.flushes.summary(),
        }
    }
}

fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
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
    let options = FleetOptions { connections: address.connections, patience: address.timeout, fenced: None };
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

fn options(address: &Address, witness: Option<&Arc<DirectoryWitness>>, read_only: bool) -> ArrayOptions {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ArrayOptions {
        patience_ms: ms(address.timeout),
        hedge_ms: ms(address.hedge),
        degraded: address.degraded,
        read_only,
        // A clock that is wrong matters only between clients that have not seen each other.
        now: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms),
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
        let array = Array::create(fleet, &create, options(address, witness.as_ref(), false))?;
        Self::attend(array, address, witness, None)
    }

    /// Opens the array on the servers of the address.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open(address: &Address) -> Result<RemoteMedium, RemoteError> {
        Self::open_as(address, false)
    }

    /// Opens the array to look at it: nothing is changed on the servers, so it can also be done while another machine uses
    /// it. What that one moves away meanwhile cannot be read here any more.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open_read_only(address: &Address) -> Result<RemoteMedium, RemoteError> {
        Self::open_as(address, true)
    }

    fn open_as(address: &Address, read_only: bool) -> Result<RemoteMedium, RemoteError> {
        let fleet = fleet(address)?;
        let witness = witness(address)?;
        let mut lock = None;
        if let Some(witness) = &witness
            && let Some(uuid) = uuid_of(&fleet, address)
        {
            // Before the epoch changes below whoever has it.
            let held =
                witness.lock(&uuid, read_only).map_err(|error| RemoteError::Host(error.to_string()))?;
            lock = Some(held.ok_or(RemoteError::InUse)?);
        }
        let array = Array::open(fleet, options(address, witness.as_ref(), read_only))?;
        Self::attend(array, address, witness, lock)
    }

    fn attend(
        array: Array<TcpFleet>,
        address: &Address,
        witness: Option<Arc<DirectoryWitness>>,
        lock: Option<File>,
    ) -> Result<RemoteMedium, RemoteError> {
        let socket = witness.as_ref().map(|witness| witness.socket(&array.status().uuid));
        let lock = match witness {
            _ if lock.is_some() => lock,
            Some(witness) => {
                let held = witness
                    .lock(&array.status().uuid, array.is_read_only())
                    .map_err(|error| RemoteError::Host(format!("the witness: {error}")))?;
                Some(held.ok_or(RemoteError::InUse)?)
            }
            None => None,
        };
        let times = Times { reads: Latencies::new(), writes: Latencies::new(), flushes: Latencies::new() };
        let open = Arc::new(Open { array, shared: Shared::default(), times });
        if open.array.is_read_only() {
            return Ok(RemoteMedium { open, tender: None, _socket: None, _lock: lock });
        }
        let tender = std::thread::Builder::new()
            .name("remote-tender".into())
            .spawn({
                let open = Arc::clone(&open);
                let (rate, spare_after) = (address.rebuild_rate, address.spare_after);
                move || tender::tend(&open.array, &open.shared, rate, spare_after)
            })
            .map_err(|error| RemoteError::Host(error.to_string()))?;
        // Without it the array is as good; only nobody sees what it does.
        let socket = socket.and_then(|path| {
            let watch = Watch(Arc::downgrade(&open));
            LiveSocket::serve(path, move || watch.live()).ok()
        });
        Ok(RemoteMedium { open, tender: Some(tender), _socket: socket, _lock: lock })
    }

    /// What there is to know, and how many segments of a rebuild are done while there is one.
    pub fn status(&self) -> (Status, Option<u64>) {
        let rebuild = self.open.shared.rebuild();
        (self.open.array.status(), rebuild.map(|rebuild| rebuild.done.into()))
    }

    /// The numbers, for whoever shows them.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.open))
    }

    /// What the process of this machine says that has the array open; `None` where nobody has it.
    pub fn live(address: &Address) -> Option<Live> {
        let (fleet, witness) = (fleet(address).ok()?, witness(address).ok()??);
        live::ask(&witness.socket(&uuid_of(&fleet, address)?))
    }

    /// Takes a good member out, for its server to be given back; a spare takes its place.
    ///
    /// # Errors
    /// When no more can be lost.
    pub fn drain(&self, member: usize) -> Result<(), RemoteError> {
        let array = &self.open.array;
        let seat = array.status().members.get(member).map(|(_, seat)| *seat);
        let Some(seat) = seat else { return Err(RemoteError::Array(ArrayError::WrongState(member))) };
        if array.spares().is_empty() {
            let why = "there is no spare to take its place: give one with spare=HOST:PORT".to_owned();
            return Err(RemoteError::Array(ArrayError::Invalid(why)));
        }
        // Before it is lost: its own server would be the first to be tried.
        self.open.shared.avoid(seat);
        Ok(array.drain(member)?)
    }

    /// Whether another process of this machine has the array open.
    pub fn is_in_use(address: &Address) -> bool {
        let (Ok(fleet), Ok(Some(witness))) = (fleet(address), witness(address)) else { return false };
        uuid_of(&fleet, address).is_some_and(|uuid| matches!(witness.lock(&uuid, false), Ok(None)))
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

/// Which array the servers belong to, by the first one that knows.
fn uuid_of(fleet: &TcpFleet, address: &Address) -> Option<[u8; 16]> {
    (0..fleet.servers()).find_map(|server| Some(look(fleet, address, server).superblock?.uuid))
}

fn look(fleet: &TcpFleet, address: &Address, server: usize) -> ServerReport {
    let contact = fleet.contact(server).map(|contact| contact.size);
    let mut bytes = vec![0; Superblock::AREA];
    let mut superblock = None;
    if contact.is_ok() {
        let mut calls = [Call::new(server, 0, Ask::Read(&mut bytes))];
        fleet.round(&mut calls, u64::try_from(address.timeout.as_millis()).unwrap_or(u64::MAX));
        if calls[0].outcome == Outcome::Done {
            superblock = Superblock::newest(&bytes);
        }
    }
    let address = fleet.address(server).unwrap_or_default();
    ServerReport { address, contact, superblock }
}

impl Drop for RemoteMedium {
    fn drop(&mut self) {
        self.open.shared.stop();
        if let Some(tender) = self.tender.take() {
            let _ = tender.join();
        }
    }
}

/// Carries `work` out and notes how long it took.
fn timed<T>(times: &Latencies, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    times.note(begun.elapsed());
    result
}

impl Medium for RemoteMedium {
    fn geometry(&self) -> Geometry {
        self.open.array.geometry()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        timed(&self.open.times.reads, || self.open.array.read(offset, buffer))
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        timed(&self.open.times.writes, || self.open.array.write(offset, data))
    }
    fn flush(&self) -> Result<(), MediumError> {
        timed(&self.open.times.flushes, || self.open.array.flush())
    }
    fn wants_discards(&self) -> bool {
        true
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.open.array.discard(offset, length)
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        timed(&self.open.times.flushes, || self.open.array.write_fua(offset, data))
    }
    fn counters(&self) -> Option<MediumCounters> {
        self.open.array.counters()
    }
}
