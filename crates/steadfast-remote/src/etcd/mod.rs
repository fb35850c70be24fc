//! Membership, claims and fencing through etcd: which servers there are, whose memory is whose, and
//! who may write.
//!
//! - [`store`]: what is needed of etcd, so that a test can take its place; [`gateway`]: etcd
//!   itself, by its JSON gateway;
//! - [`records`]: keys and values; [`claims`]: arrays come, move and go; [`ownership`]: one client
//!   writes at a time;
//! - [`registration`]: a server in the list; [`session`]: an array that is open.
//!
//! # Invariants
//! - Every change is one transaction on the revisions that it was decided on. So no two arrays
//!   claim the same memory, an array's record and its claims always agree, and whoever is cut off
//!   in the middle has changed everything or nothing.
//! - A **token** is given to one client only, and tokens of an array only grow. Servers refuse
//!   requests under an older one ([`crate::export`]), and the session in the superblock is the
//!   token.
//! - An epoch has consequences only once it is noted here by the client with the newest token. So
//!   of two clients that each reach a part of the servers one goes on at most.
//! - What was lost of a reply does not matter: every step begins with reading, and finds what it
//!   has done already.

pub mod claims;
pub mod gateway;
pub mod ownership;
pub mod records;
pub mod registration;
pub(crate) mod session;
pub mod store;
mod wire;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod gateway_tests;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use claims::{Listing, Server};
pub use gateway::Gateway;
pub use registration::Registration;
pub(crate) use session::Session;
pub use store::StoreError;

/// How long a key of a server or client that has died stays, seconds.
pub const LEASE_SECONDS: u64 = 10;
/// How often leases are renewed.
const RENEWAL: Duration = Duration::from_secs(LEASE_SECONDS / 3);
/// How often a change is decided anew because somebody else was faster.
const ATTEMPTS: usize = 64;

/// Why something cannot be done through etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// etcd itself.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No array has this name.
    #[error("etcd knows no array '{0}'")]
    NoArray(String),
    /// An array has this name already.
    #[error("there is an array '{0}' already")]
    Exists(String),
    /// Somebody has the array open.
    #[error("array '{0}' is open on {1}")]
    InUse(String, String),
    /// Somebody else has opened it since.
    #[error("array '{0}' was opened by another client: this one is fenced")]
    Fenced(String),
    /// Not enough memory is lent that nobody has claimed.
    #[error("{0} server(s) with unclaimed memory are needed, {1} are registered")]
    NoRoom(usize, usize),
    /// Another server has this name.
    #[error("a server '{0}' is registered at {1}")]
    NameTaken(String, String),
    /// A record that nobody of us has written.
    #[error("the record {0} in etcd cannot be read")]
    Garbled(String),
    /// Others were always faster.
    #[error("others change the records in etcd all the time")]
    Busy,
}
