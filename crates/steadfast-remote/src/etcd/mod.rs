//! Membership, claims and fencing through etcd: the list of servers, the owner of each server's
//! memory, and the writer of each array.
//!
//! - [`store`]: the interface to etcd, which a test can replace; [`gateway`]: etcd itself, through
//!   its JSON gateway;
//! - [`records`]: keys and values; [`claims`]: making, moving and releasing arrays; [`hold`] and
//!   [`ownership`]: one writer at a time;
//! - [`registration`]: the entry of a server in the list; [`session`]: an open array.
//!
//! # Invariants
//! - Every change is one transaction on the revisions that it was decided on. So two arrays never
//!   claim the same memory, and an array's record always agrees with its claims. An interrupted
//!   client has made either the whole change or none of it.
//! - A **token** is given to one client only, and the tokens of an array only grow. Servers refuse
//!   requests under an older token ([`crate::export`]). The token is also the session stamp in the
//!   superblock.
//! - An epoch has consequences only after the client with the newest token has noted it here. So of
//!   two clients that each reach a part of the servers, at most one continues.
//! - Lost replies are harmless: every step begins with a read, and so finds what is already done.

pub mod claims;
pub mod gateway;
pub mod hold;
pub mod ownership;
pub mod records;
pub mod registration;
pub(crate) mod session;
pub mod store;
mod wire;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use claims::{ListedServer, Listing};
pub use gateway::Gateway;
pub use registration::Registration;
pub(crate) use session::Session;
pub use store::StoreError;

/// Seconds until the key of a dead server or client is deleted.
pub const LEASE_SECONDS: u64 = 10;
/// Interval of lease renewals.
const RENEWAL: Duration = Duration::from_secs(LEASE_SECONDS / 3);
/// How often a change is decided again because another client was faster.
const ATTEMPTS: usize = 64;

/// Why an operation through etcd failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// An error of etcd.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No array has this name.
    #[error("etcd knows no array '{0}'")]
    NoArray(String),
    /// An array has this name already.
    #[error("there is an array '{0}' already")]
    Exists(String),
    /// Another client has the array open.
    #[error("array '{0}' is open on {1}")]
    InUse(String, String),
    /// Another client has opened the array since then.
    #[error("array '{0}' was opened by another client: this one is fenced")]
    Fenced(String),
    /// The servers have too little unclaimed memory.
    #[error("{0} server(s) with unclaimed memory are needed, {1} are registered")]
    NoRoom(usize, usize),
    /// Another server has this name.
    #[error("a server '{0}' is registered at {1}")]
    NameTaken(String, String),
    /// An unreadable record, written by another program.
    #[error("the record {0} in etcd cannot be read")]
    Garbled(String),
    /// Other clients were always faster.
    #[error("others change the records in etcd all the time")]
    Busy,
}
