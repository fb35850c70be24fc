//! A medium on the memory of several servers, which survives the loss of some of them.
//!
//! One engine for every policy: blocks go into **records**, a record is cut into `k` data shards,
//! `m` parity shards are computed, and shard and header go to the servers in one write each, behind
//! what they hold already. Mirroring is `k = 1`, no redundancy `m = 0`, parity `m = 1`.
//!
//! # Invariants
//! - Nothing that was flushed is overwritten while it is needed: records are appended to
//!   **segments** of the servers, and a segment is used again only once everything in it has newer
//!   versions that are flushed. There is no write hole.
//! - Where blocks have homes besides ([`home`]) the log is the journal of these: a home is
//!   overwritten only while the log has all of its stripe ([`bring`]). Whole groups of homes go
//!   without it to where no group is ([`group`]).
//! - Every block is read against a checksum that the client holds, every header against its own.
//!   What a server says is never believed without.
//! - Who belongs to the array, and in which state, is written to every good server under a growing
//!   **epoch** before anything depends on it. A server of an older epoch, or of none, is rebuilt,
//!   not read.
//! - What is in the client's memory alone is what no flush was asked for; what else is kept there
//!   ([`hold`]) is on the servers, too, and nothing depends on it.
//! - A record is there when `k` of its shards are. Found incomplete after a crash of the client, it
//!   is completed before anything else is written, or it and what is newer never counts again.
//! - The engine does no I/O of its own: servers are behind [`Fleet`], time and randomness come from
//!   the caller.

mod bring;
mod checksum;
mod clean;
mod close;
mod code;
mod fleet;
mod flush;
mod group;
mod hold;
mod home;
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
mod runs;
mod scan;
mod seal;
mod send;
mod shape;
mod sums;
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
    /// Who changes anything holds this; taken before the others.
    log: Mutex<Log>,
    /// Who is in which state. Changed only by who holds the log.
    members: RwLock<Members>,
    /// Where every block is. Changed only by who holds the log.
    map: RwLock<Map>,
    tally: options::Tally,
    lates: read::Lates,
}

impl<F> Array<F> {
    /// Its servers.
    pub fn fleet(&self) -> &F {
        &self.fleet
    }

    /// Whether it was opened only to be looked at.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }
}
