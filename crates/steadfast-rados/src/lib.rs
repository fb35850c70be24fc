//! Images in a pool of Ceph's RADOS: `rados://POOL/NAME`.
//!
//! RADOS replicates the bytes, and it fences. An [image](RadosMedium) is striped over objects of
//! 4 MiB. A header object names its size and carries the lock of the writer:
//!
//! ```text
//! NAME.steadfast           header (JSON: version, size, size of the objects), and the lock
//! NAME.0000000000000000    bytes 0 to 4 Mi - 1; a missing object reads as zeros
//! NAME.0000000000000001    the next 4 MiB, and so on
//! ```
//!
//! Invariants:
//! - one process writes at a time. It holds the exclusive lock of the header, without expiry. A
//!   lock is taken away only after RADOS refuses its owner's requests (the blocklist) and every
//!   server that is asked later knows that. So nothing of an earlier writer arrives after the next
//!   opening;
//! - a write returns before RADOS has acknowledged it; a flush waits for all writes before it.
//!   After a failed write every later write and flush fails;
//! - a request that RADOS does not answer fails after the timeout of the address. It may still take
//!   effect later, so the lock then stays, and the next opener blocks its owner first.
//!
//! librados is loaded at run time ([`RadosError::NoLibrary`]). All unsafe code is in `library.rs`,
//! `cluster.rs` and `pool.rs`.

mod behind;
mod cluster;
mod error;
mod header;
mod library;
mod location;
mod medium;
mod owner;
mod pool;
mod stripes;

pub use error::RadosError;
pub use header::UNIT;
pub use location::{Location, is_location};
pub use medium::{RadosMedium, Status};
pub use owner::{Owner, Term};
