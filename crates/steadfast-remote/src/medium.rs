//! [`RemoteMedium`]: an open array at an address. A thread rebuilds lost members while it is open.

use std::borrow::Cow;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use steadfast_media::{Geometry, Medium, MediumCounters, MediumError, WaitHook};

use crate::address::{Address, EtcdAddress};
use crate::array::{Array, ArrayError, CreateOptions, Fleet, Policy, State, Status};
use crate::client::TcpFleet;
use crate::error::RemoteError;
use crate::etcd::session::{gateway, resolved};
use crate::etcd::{Listing, Session, claims};
use crate::latency::Latencies;
use crate::live::{self, Live, LiveMember, LiveSocket};
use crate::log_place::{self, HostLog, LogReport};
use crate::place::{
    Noted, ServerReport, as_witness, clock, fleet, hex, known_uuid, look, options, recorded,
    servers_of, trim_all, uuid_from, uuid_of, witness,
};
use crate::tender::{self, TenderState};
use crate::witness::DirectoryWitness;

/// Reads of at least this many bytes do not call the hook. They use several servers at once, so two
/// such reads at a time are enough.
const LONG: usize = 256 << 10;

/// An array at an address, open.
pub struct RemoteMedium {
    open: Arc<Open>,
    tender: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    /// Called before a read waits for servers.
    before_waits: OnceLock<WaitHook>,
    /// Dropped before the lock.
    _socket: Option<LiveSocket>,
    _lock: Option<File>,
}

/// State shared by the threads that work on an open array.
struct Open {
    array: Array<TcpFleet>,
    /// The write-behind log, with its path.
    log: Option<(PathBuf, HostLog)>,
    shared: TenderState,
    times: Times,
    /// The etcd session that decides whether this client may write. Dropped after the array.
    session: Option<Arc<Session>>,
}

/// Read access to the numbers of an open array. Does not keep it open.
#[derive(Clone)]
pub struct Watch(Weak<Open>);

impl Watch {
    /// The numbers of the array; `None` after it is closed.
    pub fn live(&self) -> Option<Live> {
        self.0.upgrade().map(|open| open.live())
    }
}

/// Durations of requests.
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
            fenced: self.array.fleet().fenced(),
            etcd: self.session.as_ref().and_then(|session| session.trouble()),
            degraded: status.members.iter().any(|(state, _)| *state != State::Good),
            members,
            failed: status.failed,
            rebuild: self.shared.rebuild(),
            log: self.log.as_ref().map(|(path, log)| log_place::live(path, log)),
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
            moved: status.moved,
            packed: status.packed,
            held: status.held,
            read_latency: self.times.reads.summary(),
            write_latency: self.times.writes.summary(),
            flush_latency: self.times.flushes.summary(),
        }
    }
}

impl RemoteMedium {
    /// Makes an array on the servers of the address. Their previous contents are lost.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn create(address: &Address, uuid: [u8; 16]) -> Result<RemoteMedium, RemoteError> {
        let Some(etcd) = &address.etcd else {
            let members = address.servers.len().saturating_sub(address.spares);
            let policy =
                address.policy.unwrap_or(if members > 1 { Policy::Mirror } else { Policy::None });
            return Self::create_on(address, uuid, policy, None);
        };
        let (policy, count) = address.new_members().map_err(ArrayError::Invalid)?;
        let (session, record) = Session::create(
            gateway(etcd)?,
            etcd,
            &hex(&uuid),
            &policy.to_string(),
            count,
            address.log.is_some(),
        )?;
        let session = Arc::new(session);
        let made = resolved(address, &gateway(etcd)?, &record, Some(record.token))
            .map_err(RemoteError::from)
            .and_then(|address| {
                Self::create_on(&address, uuid, policy, Some(Arc::clone(&session)))
            });
        if made.is_err() {
            // The servers hold nothing yet.
            let _ = session.release();
        }
        made
    }

    fn create_on(
        address: &Address,
        uuid: [u8; 16],
        policy: Policy,
        session: Option<Arc<Session>>,
    ) -> Result<RemoteMedium, RemoteError> {
        if let Some(path) = &address.log {
            // A file that is no log is not overwritten; this is reported before any change.
            drop(log_place::find(path)?);
        }
        let fleet = fleet(address, session.as_deref())?;
        let witness = witness(address)?;
        let create = CreateOptions { policy, uuid, spares: address.spares };
        let options = match &session {
            Some(session) => {
                options(address, Some(as_witness(session)), session.token().into(), false)
            }
            None => options(address, witness.as_ref().map(as_witness), clock(), false),
        };
        let array = Array::create(fleet, &create, options)?;
        Self::attend(array, address, witness, None, session, true)
    }

    /// Opens the array on the servers of the address.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open(address: &Address) -> Result<RemoteMedium, RemoteError> {
        Self::open_as(address, false)
    }

    /// Opens the array read-only. Nothing is changed on the servers, so another machine may use the
    /// array at the same time. Reads fail for blocks that the other machine moves meanwhile.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn open_read_only(address: &Address) -> Result<RemoteMedium, RemoteError> {
        Self::open_as(address, true)
    }

    fn open_as(address: &Address, read_only: bool) -> Result<RemoteMedium, RemoteError> {
        let witness = witness(address)?;
        let lock = |uuid: &[u8; 16]| -> Result<Option<File>, RemoteError> {
            let Some(witness) = &witness else { return Ok(None) };
            let held = witness
                .lock(uuid, read_only)
                .map_err(|error| RemoteError::Host(error.to_string()))?;
            held.map(Some).ok_or(RemoteError::InUse)
        };
        // Locked on this machine first, before the token or the epoch changes for another process
        // that has the array open.
        let (address, options, session, lock) = match (&address.etcd, recorded(address)?) {
            (Some(etcd), Some((record, looked))) => {
                let lock = uuid_from(&record.uuid).map_or(Ok(None), |uuid| lock(&uuid))?;
                match read_only {
                    true => {
                        let noted = Arc::new(Noted(record.order()));
                        let options = options(&looked, Some(noted), clock(), true);
                        (Cow::Owned(looked), options, None, lock)
                    }
                    false => {
                        let (session, record) =
                            Session::open(gateway(etcd)?, etcd, address.log.is_some())?;
                        let address =
                            resolved(address, &gateway(etcd)?, &record, Some(record.token))?;
                        let session = Arc::new(session);
                        let options = options(
                            &address,
                            Some(as_witness(&session)),
                            session.token().into(),
                            false,
                        );
                        (Cow::Owned(address), options, Some(session), lock)
                    }
                }
            }
            _ => {
                let uuid =
                    witness.as_ref().and_then(|_| uuid_of(&fleet(address, None).ok()?, address));
                let lock = uuid.map_or(Ok(None), |uuid| lock(&uuid))?;
                let options =
                    options(address, witness.as_ref().map(as_witness), clock(), read_only);
                (Cow::Borrowed(address), options, None, lock)
            }
        };
        let fleet = fleet(&address, session.as_deref())?;
        let array = Array::open(fleet, options).map_err(|error| Self::lost(&address, error))?;
        Self::attend(array, &address, witness, lock, session, false)
    }

    fn attend(
        array: Array<TcpFleet>,
        address: &Address,
        witness: Option<Arc<DirectoryWitness>>,
        lock: Option<File>,
        session: Option<Arc<Session>>,
        new: bool,
    ) -> Result<RemoteMedium, RemoteError> {
        let socket = witness.as_ref().map(|witness| witness.socket(&array.status().uuid));
        let lock = match &witness {
            _ if lock.is_some() => lock,
            Some(witness) => {
                let held = witness
                    .lock(&array.status().uuid, array.is_read_only())
                    .map_err(|error| RemoteError::Host(format!("the witness: {error}")))?;
                Some(held.ok_or(RemoteError::InUse)?)
            }
            None => None,
        };
        let times =
            Times { reads: Latencies::new(), writes: Latencies::new(), flushes: Latencies::new() };
        let log = match array.is_read_only() {
            true => None,
            false => log_place::attach(address, &array, new, witness.as_deref())?,
        };
        let log = address.log.clone().zip(log);
        let open = Arc::new(Open { array, log, shared: TenderState::default(), times, session });
        if open.array.is_read_only() {
            return Ok(RemoteMedium {
                open,
                tender: None,
                keeper: None,
                before_waits: OnceLock::new(),
                _socket: None,
                _lock: lock,
            });
        }
        let rate = address.rebuild_rate;
        let keeper = open.log.is_some().then(|| {
            let (open, witness) = (Arc::clone(&open), witness.clone());
            std::thread::Builder::new().name("remote-log".into()).spawn(move || {
                if let Some((_, log)) = &open.log {
                    log_place::keep(&open.array, log, &open.shared, rate, witness.as_deref());
                }
            })
        });
        let host = |error: std::io::Error| RemoteError::Host(error.to_string());
        let keeper = keeper.transpose().map_err(host)?;
        let tender = std::thread::Builder::new()
            .name("remote-tender".into())
            .spawn({
                let open = Arc::clone(&open);
                let (rate, spare_after) = (address.rebuild_rate, address.spare_after);
                move || {
                    let session = open.session.as_deref();
                    tender::tend(&open.array, &open.shared, rate, spare_after, session);
                }
            })
            .map_err(host);
        // A drop after an error ends the other thread.
        let mut medium = RemoteMedium {
            open,
            tender: None,
            keeper,
            before_waits: OnceLock::new(),
            _socket: None,
            _lock: lock,
        };
        medium.tender = Some(tender?);
        let open = &medium.open;
        // The socket is optional: without it only the live numbers are missing.
        medium._socket = socket.and_then(|path| {
            let watch = Watch(Arc::downgrade(open));
            LiveSocket::serve(path, move || watch.live()).ok()
        });
        Ok(medium)
    }

    /// The error of an array that cannot be opened, if a log may have a state of it.
    fn lost(address: &Address, error: ArrayError) -> RemoteError {
        let gone = matches!(
            error,
            ArrayError::NoArray
                | ArrayError::Silent { .. }
                | ArrayError::TooManyLost
                | ArrayError::Unsure(_)
        );
        match (&address.log, log_place::report(address)) {
            (Some(path), Ok(Some(report))) if gone && report.time_ms.is_some() => {
                RemoteError::Restorable(error, path.display().to_string())
            }
            _ => RemoteError::Array(error),
        }
    }

    /// The state of the write-behind log of an address, without opening the array; `None` if there
    /// is no log.
    ///
    /// # Errors
    /// The path holds something else.
    pub fn log_report(address: &Address) -> Result<Option<LogReport>, RemoteError> {
        log_place::report(address)
    }

    /// Status of the array, and the finished segments of a rebuild in progress.
    pub fn status(&self) -> (Status, Option<u64>) {
        let rebuild = self.open.shared.rebuild();
        (self.open.array.status(), rebuild.map(|rebuild| rebuild.done.into()))
    }

    /// Read access to the numbers.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.open))
    }

    /// The live numbers of the process of this machine that has the array open; `None` if there is
    /// none.
    pub fn live(address: &Address) -> Option<Live> {
        let witness = witness(address).ok()??;
        live::ask(&witness.socket(&known_uuid(address)?))
    }

    /// Takes a good member out of the array, so that its server can be released. A spare takes its
    /// place.
    ///
    /// # Errors
    /// When no further member can be lost.
    pub fn drain(&self, member: usize) -> Result<(), RemoteError> {
        let array = &self.open.array;
        let seat = array.status().members.get(member).map(|(_, seat)| *seat);
        let Some(seat) = seat else {
            return Err(RemoteError::Array(ArrayError::WrongState(member)));
        };
        if array.spares().is_empty() && self.open.session.is_none() {
            let why =
                "there is no spare to take its place: give one with spare=HOST:PORT".to_owned();
            return Err(RemoteError::Array(ArrayError::Invalid(why)));
        }
        // Before the loss: the tender would try the member's own server first.
        self.open.shared.avoid(seat);
        Ok(array.drain(member)?)
    }

    /// Whether another process of this machine has the array open.
    pub fn is_in_use(address: &Address) -> bool {
        let Ok(Some(witness)) = witness(address) else { return false };
        known_uuid(address).is_some_and(|uuid| matches!(witness.lock(&uuid, false), Ok(None)))
    }

    /// Reports of the servers of an address, without opening the array. Safe while another client
    /// uses it.
    ///
    /// # Errors
    /// A certificate or key is unusable.
    pub fn look(address: &Address) -> Result<Vec<ServerReport>, RemoteError> {
        let address = servers_of(address)?;
        let fleet = fleet(&address, None)?;
        Ok((0..fleet.servers()).map(|server| look(&fleet, &address, server)).collect())
    }

    /// Releases an array that etcd knows: its memory is free again and its contents are lost. While
    /// a client has it open, the address must say `takeover=yes`.
    ///
    /// # Errors
    /// [`RemoteError`]. Servers that do not answer keep their bytes until the next array takes them
    /// over, or until they end.
    pub fn release(address: &Address) -> Result<(), RemoteError> {
        let Some(etcd) = &address.etcd else {
            let why = "only arrays that etcd knows can be released".to_owned();
            return Err(RemoteError::Array(ArrayError::Invalid(why)));
        };
        let (session, record) = Session::open(gateway(etcd)?, etcd, false)?;
        // The older client is fenced before the memory is released.
        let address = resolved(address, &gateway(etcd)?, &record, Some(record.token))?;
        let fleet = fleet(&address, Some(&session))?;
        for server in 0..fleet.servers() {
            let Ok(contact) = fleet.contact(server) else { continue };
            trim_all(&fleet, server, contact.size, address.timeout);
        }
        Ok(session.release()?)
    }

    /// Everything recorded in etcd: servers, arrays, and which client has each array open.
    ///
    /// # Errors
    /// An error of etcd, or an unusable certificate.
    pub fn registered(etcd: &EtcdAddress) -> Result<Listing, RemoteError> {
        Ok(claims::list(&gateway(etcd)?)?)
    }
}

impl Drop for RemoteMedium {
    fn drop(&mut self) {
        self.open.shared.stop();
        if let Some((_, log)) = &self.open.log {
            log.wake();
        }
        for thread in [self.tender.take(), self.keeper.take()].into_iter().flatten() {
            let _ = thread.join();
        }
        // With etcd the next client does not wait for a close, and etcd may be away. If the close
        // fails, the next client finds the array unclosed.
        if self.open.session.is_none() {
            let _ = self.open.array.close();
        }
    }
}

/// Runs `work` and notes its duration.
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
        if let (Some(about_to_wait), true) = (self.before_waits.get(), buffer.len() < LONG) {
            about_to_wait();
        }
        timed(&self.open.times.reads, || self.open.array.read(offset, buffer))
    }
    fn before_waits(&self, hook: WaitHook) {
        let _ = self.before_waits.set(hook);
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let Open { array, log, times, .. } = &*self.open;
        timed(&times.writes, || match log {
            Some((_, log)) => log.write(array, offset, data),
            None => array.write(offset, data),
        })
    }
    fn flush(&self) -> Result<(), MediumError> {
        let Open { array, log, times, .. } = &*self.open;
        timed(&times.flushes, || match log {
            Some((_, log)) => log.flush(array),
            None => array.flush(),
        })
    }
    fn wants_discards(&self) -> bool {
        true
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let Open { array, log, .. } = &*self.open;
        match log {
            Some((_, log)) => log.discard(array, offset, length),
            None => array.discard(offset, length),
        }
    }
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let Open { array, log, times, .. } = &*self.open;
        timed(&times.flushes, || match log {
            Some((_, log)) => log.write(array, offset, data).and_then(|()| log.flush(array)),
            None => array.write_fua(offset, data),
        })
    }
    fn counters(&self) -> Option<MediumCounters> {
        self.open.array.counters()
    }
}
