//! From an address to servers: the connections, the witness, and what is known of an array without
//! opening it.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::address::Address;
use crate::array::{ArrayOptions, Call, Fleet, LogUse, Outcome, Superblock, Witness};
use crate::client::{Ask, ClientTls, Endpoint, FleetOptions, TcpFleet, client_config};
use crate::error::RemoteError;
use crate::etcd::records::ArrayRecord;
use crate::etcd::session::{gateway, resolved};
use crate::etcd::{Session, claims};
use crate::witness::DirectoryWitness;

/// Report of a server, without opening the array.
#[derive(Debug, Clone)]
pub struct ServerReport {
    /// Its address.
    pub address: String,
    /// Bytes that it lends, or why it does not answer.
    pub contact: Result<u64, String>,
    /// Its superblock.
    pub superblock: Option<Superblock>,
}

pub(crate) fn hex(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn fleet(address: &Address, session: Option<&Session>) -> Result<TcpFleet, RemoteError> {
    let tls = match address.tls.authorities {
        Some(_) => Some(ClientTls { config: client_config(&address.tls)?, server_name: None }),
        None => None,
    };
    let endpoints = address
        .servers
        .iter()
        .map(|server| Endpoint {
            address: server.clone(),
            export: address.export.clone(),
            tls: tls.clone(),
        })
        .collect();
    let options = FleetOptions {
        connections: address.connections,
        patience: address.timeout,
        fenced: session.map(Session::fenced),
    };
    Ok(TcpFleet::new(endpoints, options))
}

/// The witness directory: that of the address, or one below the state directory of this machine or
/// user.
pub(crate) fn witness(address: &Address) -> Result<Option<Arc<DirectoryWitness>>, RemoteError> {
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

pub(crate) fn options(
    address: &Address,
    witness: Option<Arc<dyn Witness>>,
    now: u64,
    read_only: bool,
) -> ArrayOptions {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ArrayOptions {
        patience_ms: ms(address.timeout),
        hedge_ms: ms(address.hedge),
        degraded: address.degraded,
        read_only,
        now,
        // Servers that know a newer token refuse the late requests of a dead client.
        late_ms: if address.etcd.is_some() { 0 } else { ms(address.late) },
        hold_bytes: address.hold,
        log: match &address.log {
            Some(_) => LogUse::Kept,
            None if address.log_left => LogUse::Left,
            None => LogUse::Unsaid,
        },
        witness,
    }
}

/// Identifies sessions if there are no tokens. A wrong clock matters only between clients that are
/// unaware of each other.
pub(crate) fn clock() -> u64 {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms)
}

/// The record of an array in etcd, without opening it.
pub(crate) fn recorded(address: &Address) -> Result<Option<(ArrayRecord, Address)>, RemoteError> {
    let Some(etcd) = &address.etcd else { return Ok(None) };
    let gateway = gateway(etcd)?;
    let record = claims::list(&gateway)?.array(&etcd.array)?.value.clone();
    let address = resolved(address, &gateway, &record, None)?;
    Ok(Some((record, address)))
}

/// The same witness in the form that the engine takes.
pub(crate) fn as_witness<W: Witness + 'static>(witness: &Arc<W>) -> Arc<dyn Witness> {
    Arc::clone(witness) as Arc<dyn Witness>
}

/// The epoch that etcd had noted when the array was opened read-only.
#[derive(Debug)]
pub(crate) struct Noted(pub(crate) (u64, u64));

impl Witness for Noted {
    fn note(&self, _uuid: &[u8; 16], _order: (u64, u64)) -> Result<(), String> {
        Err("a reader notes nothing".to_owned())
    }

    fn newest(&self, _uuid: &[u8; 16]) -> Option<(u64, u64)> {
        Some(self.0)
    }
}

/// The address with its servers, which etcd may supply.
pub(crate) fn servers_of(address: &Address) -> Result<Cow<'_, Address>, RemoteError> {
    Ok(recorded(address)?.map_or(Cow::Borrowed(address), |(_, address)| Cow::Owned(address)))
}

/// Trims all memory of a server, as far as it answers.
pub(crate) fn trim_all(fleet: &TcpFleet, server: usize, size: u64, patience: Duration) {
    /// Most bytes of one request.
    const PIECE: u64 = 1 << 30;
    let mut offset = 0;
    while offset < size {
        let length = PIECE.min(size - offset);
        let mut calls = [Call::new(server, offset, Ask::Trim(length))];
        fleet.round(&mut calls, u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
        if calls[0].outcome != Outcome::Done {
            return;
        }
        offset += length;
    }
}

/// The identity of the array at an address, if it can be found out.
pub(crate) fn known_uuid(address: &Address) -> Option<[u8; 16]> {
    match recorded(address).ok()? {
        Some((record, _)) => uuid_from(&record.uuid),
        None => uuid_of(&fleet(address, None).ok()?, address),
    }
}

/// An identity from its 32 hexadecimal digits.
pub(crate) fn uuid_from(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(u128::to_be_bytes)
}

/// The identity of the array on the servers, from the first server that knows it.
pub(crate) fn uuid_of(fleet: &TcpFleet, address: &Address) -> Option<[u8; 16]> {
    (0..fleet.servers()).find_map(|server| Some(look(fleet, address, server).superblock?.uuid))
}

pub(crate) fn look(fleet: &TcpFleet, address: &Address, server: usize) -> ServerReport {
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
