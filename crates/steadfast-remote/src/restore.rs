//! Restore: all servers are lost, and a new array is made from the write-behind log.
//!
//! A server that holds an array, this one or another, is not overwritten without `force`.

use std::sync::Arc;

use crate::address::Address;
use crate::array::{Array, ArrayError, CreateOptions, Policy, Witness};
use crate::behind::{LogError, RestoreError};
use crate::error::RemoteError;
use crate::etcd::session::{gateway, resolved};
use crate::etcd::{Session, claims};
use crate::log_place;
use crate::medium::RemoteMedium;
use crate::place::{as_witness, clock, fleet, hex, options, witness};

/// Result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Time of the flush point in milliseconds since 1970.
    pub time_ms: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl RemoteMedium {
    /// Makes the array of the address again, as `uuid`, from its write-behind log. `force` also
    /// allows a log that is older than its limit promises, and servers that hold an array.
    ///
    /// # Errors
    /// [`RemoteError`]; the restore can be repeated.
    pub fn restore(
        address: &Address,
        uuid: [u8; 16],
        force: bool,
    ) -> Result<Restored, RemoteError> {
        let invalid = |why: &str| RemoteError::Array(ArrayError::Invalid(why.to_owned()));
        let path =
            address.log.as_deref().ok_or_else(|| invalid("the address names no log=PATH"))?;
        let failed = |error| RemoteError::Log(path.display().to_string(), error);
        let mut kept = log_place::find(path)?.ok_or_else(|| failed(LogError::NotALog))?;
        let witness = witness(address)?;
        let old = kept.uuid();
        let noted = witness.as_ref().and_then(|witness| witness.log_note(&old));
        if let Some(why) = noted.filter(|_| !force) {
            return Err(failed(LogError::Stale(why)));
        }
        let recorded = match &address.etcd {
            Some(etcd) => claims::newest(&gateway(etcd)?, &hex(&old))?,
            None => None,
        };
        let newest = recorded.max(witness.as_ref().and_then(|witness| witness.newest(&old)));
        let point = kept.restorable(newest, force).map_err(failed)?;
        if address.etcd.is_none() && !force {
            for report in Self::look(address)? {
                let Some(superblock) = &report.superblock else { continue };
                match superblock.uuid {
                    // Left over from an earlier restore: such an array cannot be opened, and its
                    // log has everything.
                    _ if superblock.unfinished => {}
                    uuid if uuid == old => return Err(RemoteError::Alive(report.address)),
                    _ => return Err(RemoteError::Occupied(report.address)),
                }
            }
        }
        kept.begin(uuid).map_err(failed)?;
        let (policy, address, session) = match &address.etcd {
            None => {
                let members = address.servers.len().saturating_sub(address.spares);
                let policy = address.policy.unwrap_or(if members > 1 {
                    Policy::Mirror
                } else {
                    Policy::None
                });
                (policy, address.clone(), None)
            }
            Some(etcd) => {
                let (policy, count) = address.new_members().map_err(ArrayError::Invalid)?;
                let (session, record) = Session::create(
                    gateway(etcd)?,
                    etcd,
                    &hex(&uuid),
                    &policy.to_string(),
                    count,
                    false,
                )?;
                (
                    policy,
                    resolved(address, &gateway(etcd)?, &record, Some(record.token))?,
                    Some(session),
                )
            }
        };
        let session = session.map(Arc::new);
        let mut made = || -> Result<Restored, RemoteError> {
            let create = CreateOptions { policy, uuid, spares: address.spares };
            let options = match &session {
                Some(session) => {
                    options(&address, Some(as_witness(session)), session.token().into(), false)
                }
                None => options(&address, witness.as_ref().map(as_witness), clock(), false),
            };
            let array =
                Array::create_unfinished(fleet(&address, session.as_deref())?, &create, options)?;
            let bytes = kept.restore(&array, clock()).map_err(|error| match error {
                RestoreError::Log(error) => failed(error),
                RestoreError::Array(error) => RemoteError::Array(error),
                error @ RestoreError::TooSmall(..) => invalid(&error.to_string()),
            })?;
            // Without the close the next client waits.
            let _ = array.close();
            Ok(Restored { time_ms: point.time_ms, bytes })
        };
        let restored = made();
        if let (Err(_), Some(session)) = (&restored, &session) {
            // The array there cannot be opened.
            let _ = session.release();
        }
        if let (Ok(_), Some(Ok(gateway))) = (&restored, address.etcd.as_ref().map(gateway)) {
            // The log belongs to the new array now.
            let _ = claims::forget_released(&gateway, &hex(&old));
        }
        restored
    }
}
