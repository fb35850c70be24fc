//! A medium on the memory of several servers. It survives the loss of some of them.
//!
//! All policies share one engine. Blocks go into **records**, and a record is cut into `k` data
//! shards. `m` parity shards are computed from these. Each server gets its shard and the header in
//! one write, appended to what it already holds. Mirroring is `k = 1`, no redundancy is `m = 0`,
//! parity is `m = 1`.
//!
//! # Invariants
//! - A flushed block is not overwritten while it is needed. Records are appended to **segments** of
//!   the servers. A segment is reused only after every block in it has a newer version that is
//!   flushed. There is no write hole.
//! - Every block is verified against a checksum that the client holds, and every header against its
//!   own checksum. No answer of a server is used unverified.
//! - The list of members and their states is written to every good server, under a growing
//!   **epoch**, before any operation depends on it. A server with an older epoch, or with none, is
//!   rebuilt and not read.
//! - Only data that no flush has covered exists in the client's memory alone. The blocks that the
//!   client also keeps ([`hold`]) are on the servers too, and nothing depends on them.
//! - A record exists when `k` of its shards exist. An open after a client crash completes an
//!   incomplete record before any other write; otherwise that record and all newer ones are void.
//! - The engine does no I/O of its own: servers are behind [`Fleet`], time and randomness come from
//!   the caller.

mod checksum;
mod clean;
mod close;
mod code;
mod fleet;
mod flush;
mod hold;
mod location;
mod map;
mod mark;
mod medium;
mod members;
mod open;
mod options;
mod point;
mod policy;
mod read;
mod rebuild;
mod record;
mod recover;
mod resume;
mod scan;
mod seal;
mod send;
mod shape;
mod superblock;

use parking_lot::{Mutex, RwLock};

pub use fleet::{Call, Contact, Fleet, Outcome};
pub use members::State;
pub use options::{ArrayError, ArrayOptions, CreateOptions, LogUse, Status, Witness};
pub use point::Point;
pub use policy::Policy;
pub use rebuild::{Progress, Rebuild};
pub use superblock::Superblock;

pub(crate) use checksum::crc32c;
use code::Code;
use map::Map;
use members::Members;
use seal::Log;
use shape::Shape;

/// Bytes of a block: the atomic unit of the medium.
pub const BLOCK: usize = 4096;

/// An open array.
pub struct Array<F> {
    fleet: F,
    options: ArrayOptions,
    shape: Shape,
    code: Code,
    /// Every change holds this lock; it is taken before the others.
    log: Mutex<Log>,
    /// Server and state of every member. Changed only while the log is locked.
    members: RwLock<Members>,
    /// Location of every block. Changed only while the log is locked.
    map: RwLock<Map>,
    tally: options::Tally,
    lates: read::Lates,
}

impl<F> Array<F> {
    /// Its servers.
    pub fn fleet(&self) -> &F {
        &self.fleet
    }

    /// Whether the array was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }
}
