//! The write-behind log of an address: a file or block device of this machine, and the thread that
//! keeps it up to date.

use std::path::Path;
use std::time::Duration;

use steadfast_host::{FileMedium, FileOptions, LockMode, OpenError};
use steadfast_media::Medium;

use crate::address::Address;
use crate::array::Array;
use crate::behind::{Kept, LogError, WriteBehind};
use crate::client::TcpFleet;
use crate::error::RemoteError;
use crate::live::LiveLog;
use crate::place::{clock, hex};
use crate::tender::TenderState;
use crate::witness::DirectoryWitness;

/// A log in use.
pub(crate) type HostLog = WriteBehind<FileMedium>;

/// How often the log is updated without a request.
const INTERVAL: Duration = Duration::from_millis(500);

fn failed(path: &Path) -> impl Fn(LogError) -> RemoteError + '_ {
    move |error| RemoteError::Log(path.display().to_string(), error)
}

/// The file, if it exists.
fn file(path: &Path, options: &FileOptions) -> Result<Option<FileMedium>, RemoteError> {
    match FileMedium::open(path, options) {
        Ok(medium) => Ok(Some(medium)),
        Err(OpenError::NotFound(_)) => Ok(None),
        Err(error) => Err(RemoteError::Host(error.to_string())),
    }
}

/// Opens the log at this path for use. `None` if the file is missing or holds only zeros.
///
/// # Errors
/// The file holds something else, or it is in use.
pub(crate) fn find(path: &Path) -> Result<Option<Kept<FileMedium>>, RemoteError> {
    match file(path, &FileOptions::default())? {
        Some(medium) => Kept::look(medium).map_err(failed(path)),
        None => Ok(None),
    }
}

/// The same without a lock: the log may be in use, and nothing is written to it.
///
/// # Errors
/// The file holds something else.
pub(crate) fn look(path: &Path) -> Result<Option<Kept<FileMedium>>, RemoteError> {
    let options = FileOptions { read_only: true, lock: LockMode::None, ..FileOptions::default() };
    match file(path, &options)? {
        Some(medium) => Kept::look(medium).map_err(failed(path)),
        None => Ok(None),
    }
}

/// Makes the log of an array. An existing log is lost.
///
/// # Errors
/// The file holds something else, or there is no room.
fn create(address: &Address, path: &Path, array: &Array<TcpFleet>) -> Result<HostLog, RemoteError> {
    let failed = failed(path);
    let size = HostLog::bytes_needed(array.geometry().size, address.log_behind).map_err(&failed)?;
    let host = |error: OpenError| RemoteError::Host(error.to_string());
    let (medium, blank) = match file(path, &FileOptions::default())? {
        None => (FileMedium::create(path, size, &FileOptions::default()).map_err(host)?, true),
        Some(medium) if medium.is_block_device() => (medium, false),
        // Old contents read as zeros afterwards.
        Some(medium) => {
            let sized = medium.set_size(0).and_then(|()| medium.set_size(size));
            sized.map_err(|error| failed(error.into()))?;
            (medium, true)
        }
    };
    WriteBehind::create(medium, array, address.log_behind, blank, clock).map_err(failed)
}

/// The log of an array that was just opened or, with `new`, made. `None` if the address names no
/// log.
///
/// # Errors
/// The log belongs to another array, or its disk fails.
pub(crate) fn attach(
    address: &Address,
    array: &Array<TcpFleet>,
    new: bool,
    witness: Option<&DirectoryWitness>,
) -> Result<Option<HostLog>, RemoteError> {
    let Some(path) = &address.log else { return Ok(None) };
    let log = match find(path)? {
        Some(kept) if !new => {
            WriteBehind::open(kept, array, address.log_behind, clock).map_err(failed(path))?
        }
        found => {
            drop(found);
            create(address, path, array)?
        }
    };
    if let Some(witness) = witness {
        // The log is in order again, or reports its own failure.
        witness.note_log(&array.status().uuid, None);
    }
    Ok(Some(log))
}

/// Keeps the log up to date until it is told to stop. Copying is limited to `rate` bytes a second.
pub(crate) fn keep(
    array: &Array<TcpFleet>,
    log: &HostLog,
    shared: &TenderState,
    rate: u64,
    witness: Option<&DirectoryWitness>,
) {
    let mut noted = false;
    while !shared.rest(Duration::ZERO) {
        while log.work() {}
        match log.copy(array) {
            Some(bytes) => {
                let pause =
                    Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / rate.max(1));
                if bytes > 0 && shared.rest(pause) {
                    break;
                }
            }
            None => log.wait(INTERVAL),
        }
        // A failed disk may not take the note of its failure, so the witness takes it too.
        if let (false, Some(witness), Some(why)) = (noted, witness, log.status().failed) {
            witness.note_log(&array.status().uuid, Some(&why));
            noted = true;
        }
    }
    while log.work() {}
}

/// Live numbers of a log in use.
pub(crate) fn live(path: &Path, log: &HostLog) -> LiveLog {
    let status = log.status();
    let state = match (&status.failed, status.complete) {
        (Some(_), _) => "failed",
        (None, true) => "complete",
        (None, false) => "copying",
    };
    LiveLog {
        path: path.display().to_string(),
        state: state.to_owned(),
        error: status.failed,
        behind: status.behind,
        bound: status.bound,
        copied: status.copied.0,
        blocks: status.copied.1,
        time_ms: status.time_ms,
        forced_flushes: status.forced,
    }
}

/// State of a log that is not in use.
#[derive(Debug, Clone)]
pub struct LogReport {
    /// The array, 32 hexadecimal digits.
    pub uuid: String,
    /// Time of its flush point in milliseconds since 1970, if it can be restored.
    pub time_ms: Option<u64>,
    /// Why it was given up.
    pub failed: Option<String>,
}

/// The state of the log of an address; `None` if there is no log.
///
/// # Errors
/// The path holds something else.
pub(crate) fn report(address: &Address) -> Result<Option<LogReport>, RemoteError> {
    let Some(path) = &address.log else { return Ok(None) };
    Ok(look(path)?.map(|kept| LogReport {
        uuid: hex(&kept.uuid()),
        time_ms: kept.newest().filter(|(_, complete)| *complete).map(|(point, _)| point.time_ms),
        failed: kept.failed().map(str::to_owned),
    }))
}
