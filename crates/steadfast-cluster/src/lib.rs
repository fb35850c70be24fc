//! High availability of one volume. Of several machines, one at a time *owns* the volume and mounts
//! it. Another takes over when the owner ends, hangs or is cut off.
//!
//! - [`address`]: `cluster://ETCD/NAME`; [`record`]: keys and values in etcd;
//! - [`election`]: when a node that stands by takes over; [`tenure`]: how long an owner knows that
//!   it is the owner. Both are pure: time and answers come from outside;
//! - [`duplex`]: connections between nodes that share a volume;
//! - [`owner`]: the two with threads and etcd; [`cluster`]: commands of an administrator.
//!
//! # Invariants
//! - **The fence comes before the log.** A new owner reads nothing of the volume before its storage
//!   refuses all earlier owners. The caller fences, because only it knows the storage: all of
//!   [`owner::Term::unfenced`], then [`owner::Term::fenced`], then it opens. The record in etcd
//!   lists every node that is not fenced yet. So a new owner that dies before its fence leaves the
//!   list to the next one.
//! - Every change of the record is one transaction on the revision that it was decided on, so an
//!   epoch has one owner.
//! - Clocks of two machines are never compared. A node that stands by measures silence with its own
//!   clock, from its own first sight of a revision. An owner counts from the moment when it *sent*
//!   a beat that etcd took.
//! - Deposed is for ever: a process that has lost an epoch never acts under it again.

pub mod address;
pub mod cluster;
pub mod duplex;
pub mod election;
mod error;
pub mod owner;
pub mod record;
pub mod tenure;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use address::{ClusterAddress, is_address};
pub use cluster::{Cluster, Status};
pub use error::ClusterError;

/// Time between two beats of an owner.
pub const BEAT: Duration = Duration::from_millis(200);
/// An owner has been silent for this long: another node takes over.
pub const SILENCE: Duration = Duration::from_millis(800);
/// From sending a beat that etcd took, an owner is surely the owner for this long. Less than
/// [`SILENCE`], so that clocks may run apart by a tenth.
pub const LEASE: Duration = Duration::from_millis(700);
/// Time between two looks of a node that stands by.
pub const LOOK: Duration = Duration::from_millis(100);
/// Time limit for one answer of a member of etcd.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// After a handover other nodes wait this long for the node that was asked for.
pub const PREFERENCE: Duration = Duration::from_secs(2);
