//! Arrays of remote memory (`remote://HOST:PORT,…`, `remote+etcd://HOST:PORT/NAME`) in place of an
//! image or block device.

use std::path::Path;
use std::sync::{Arc, Mutex};

use steadfast_remote::array::ArrayError;
use steadfast_remote::etcd::EtcdError;
use steadfast_remote::{Address, Live, RemoteError, RemoteMedium, Restored, Watch, is_address};

use crate::failure::{Exit, Failure, Outcome};
use crate::medium::HostMedium;

/// Whether the path is the address of an array.
pub fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(is_address)
}

/// Reads an address.
///
/// # Errors
/// What is wrong with it.
pub fn address(path: &Path) -> Outcome<Address> {
    let text = path.to_str().unwrap_or_default();
    text.parse().map_err(|line| {
        Failure::new(
            Exit::Usage,
            line,
            path.display(),
            "write remote://HOST:PORT,HOST:PORT?policy=mirror or remote+etcd://HOST:PORT/NAME",
        )
    })
}

/// Opens the array. With `read_only` this process changes nothing on the servers; another process
/// may still write to them.
///
/// # Errors
/// [`failure`].
pub fn open(path: &Path, read_only: bool) -> Outcome<HostMedium> {
    open_at(path, &address(path)?, read_only)
}

/// Opens the array for writing, also if another client has it open: the servers refuse that one.
///
/// # Errors
/// [`failure`].
pub fn take_over(path: &Path) -> Outcome<HostMedium> {
    let mut address = address(path)?;
    if let Some(etcd) = &mut address.etcd {
        etcd.takeover = true;
    }
    open_at(path, &address, false)
}

fn open_at(path: &Path, address: &Address, read_only: bool) -> Outcome<HostMedium> {
    let opened = match read_only {
        true => RemoteMedium::open_read_only(address),
        false => RemoteMedium::open(address),
    };
    let medium = opened.map_err(|error| failure(&error, path))?;
    if let Ok(mut watched) = WATCHED.lock() {
        *watched = Some(medium.watch());
    }
    Ok(Arc::new(medium))
}

/// The current state of the array at this address, if a process of this machine has that array
/// open.
pub fn live(path: &Path) -> Option<Live> {
    is_remote(path)
        .then(|| address(path).ok())
        .flatten()
        .and_then(|address| RemoteMedium::live(&address))
}

/// The array that this process has open, for its metrics.
static WATCHED: Mutex<Option<Watch>> = Mutex::new(None);

/// The current state of the array that this process opened last, if any.
pub fn watched() -> Option<Live> {
    WATCHED.lock().ok()?.as_ref()?.live()
}

/// Makes an array on the servers.
///
/// # Errors
/// [`failure`].
pub fn create(path: &Path) -> Outcome<HostMedium> {
    let medium =
        RemoteMedium::create(&address(path)?, uuid()?).map_err(|error| failure(&error, path))?;
    Ok(Arc::new(medium))
}

/// Rebuilds the array from its write-behind log.
///
/// # Errors
/// [`failure`].
pub fn restore(path: &Path, force: bool) -> Outcome<Restored> {
    RemoteMedium::restore(&address(path)?, uuid()?, force).map_err(|error| failure(&error, path))
}

/// An identity for a new array.
fn uuid() -> Outcome<[u8; 16]> {
    steadfast_host::random_uuid().map_err(|error| {
        let what = format!("no random bytes: {}", crate::failure::text_os(&error));
        Failure::new(Exit::Failed, what, "this machine", "make /dev/urandom available")
    })
}

/// Whether one of the servers belongs to an array, or a write-behind log exists.
///
/// # Errors
/// The address is wrong, or no server answers.
pub fn holds_data(path: &Path) -> Outcome<bool> {
    let reports = match RemoteMedium::look(&address(path)?) {
        // A released array has no servers any more; its log may be all that is left.
        Err(RemoteError::Etcd(EtcdError::NoArray(_))) => Vec::new(),
        reports => reports.map_err(|error| failure(&error, path))?,
    };
    let log = RemoteMedium::log_report(&address(path)?).map_err(|error| failure(&error, path))?;
    Ok(log.is_some() || reports.iter().any(|report| report.superblock.is_some()))
}

/// Whether a process of this machine has the array open.
pub fn is_locked(path: &Path) -> bool {
    address(path).is_ok_and(|address| RemoteMedium::is_in_use(&address))
}

/// The failure to make, open or use an array.
pub fn failure(error: &RemoteError, path: &Path) -> Failure {
    let (exit, advice) = match error {
        RemoteError::InUse => {
            (Exit::Busy, "it is mounted, or another command works on it: end that first")
        }
        RemoteError::Tls(_) => (Exit::Usage, "give PEM files that belong together"),
        RemoteError::Etcd(error) => match error {
            EtcdError::NoArray(_) => (
                Exit::NotAVolume,
                "see 'steadfast remote servers', or make it with 'steadfast mkfs'",
            ),
            EtcdError::Exists(_) => {
                (Exit::Busy, "use another name, or give it up with 'steadfast remote release'")
            }
            EtcdError::InUse(..) => (
                Exit::Busy,
                "end that first; takeover=yes ends it from here, if it is gone or cut off",
            ),
            EtcdError::Fenced(_) => {
                (Exit::Busy, "everything that was flushed is safe: open it again")
            }
            EtcdError::NoRoom(..) => {
                (Exit::NoSpace, "see 'steadfast remote servers'; start more, or release an array")
            }
            EtcdError::NameTaken(..) => (Exit::Busy, "give each server a --name of its own"),
            EtcdError::Store(_) => {
                (Exit::Failed, "check that etcd runs at this address and its certificates")
            }
            EtcdError::Garbled(_) | EtcdError::Busy => {
                (Exit::Failed, "see what else writes below 'steadfast/' there")
            }
        },
        RemoteError::Log(..) => (Exit::Failed, "see 'write-behind log' in docs/REMOTE.md"),
        RemoteError::Restorable(..) => (
            Exit::Damaged,
            "start the servers that are missing, if they have their state; it is the newer one",
        ),
        RemoteError::Alive(_) => (Exit::Busy, "mount it; --force gives up what the servers hold"),
        RemoteError::Occupied(_) => {
            (Exit::Busy, "give other servers; --force overwrites what is there")
        }
        RemoteError::Host(_) => {
            (Exit::Failed, "see the message; witness=DIRECTORY chooses another place")
        }
        RemoteError::Array(error) => match error {
            ArrayError::Invalid(_) => (Exit::Usage, "see docs/REMOTE.md for policies and sizes"),
            ArrayError::Unreachable(..) => (Exit::Failed, "start the server, or leave it out"),
            ArrayError::NoArray => {
                (Exit::NotAVolume, "check the addresses, or make one with 'steadfast mkfs'")
            }
            ArrayError::Silent { .. } => (
                Exit::Failed,
                "start the servers, or check the addresses and the network: the array may be whole",
            ),
            ArrayError::Unfinished => (Exit::Damaged, "the log still has everything"),
            ArrayError::Mixed(_) => (Exit::NotAVolume, "give the servers of one array only"),
            ArrayError::TooManyLost => {
                (Exit::Damaged, "start the servers that are missing, if they have their state")
            }
            ArrayError::Fenced => {
                (Exit::Busy, "everything that was flushed is safe: open it again")
            }
            ArrayError::Unsure(_) => (Exit::Degraded, "start the servers that are missing first"),
            _ => (Exit::Failed, "see 'steadfast remote status'"),
        },
    };
    Failure::new(exit, error.to_string(), path.display(), advice)
}
