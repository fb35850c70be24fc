//! Options that callers set, the status that they get, and errors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Policy, State};

/// Remembers the newest epoch outside the servers. With it an array can be opened without the
/// servers that might hold a later state.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Stores an epoch and the stamp of its session durably. The stamp is compared first.
    ///
    /// # Errors
    /// A message for the user.
    fn note(&self, uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String>;

    /// The newest stamp and epoch noted for this array. The epoch alone is not enough: a client
    /// that was cut off may have continued an earlier session with higher epochs.
    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)>;
}

/// Whether the client that opens an array for writing keeps its write-behind log up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogUse {
    /// Not stated. The open is refused if the array has a log: the log would fall behind unnoticed.
    #[default]
    Unsaid,
    /// The client keeps the log up to date.
    Kept,
    /// The client deliberately stops using the log.
    Left,
}

/// How an array is used.
#[derive(Debug, Clone)]
pub struct ArrayOptions {
    /// Milliseconds that a server may take to answer; a call is tried twice.
    pub patience_ms: u64,
    /// Milliseconds without an answer after which a read is made from other servers, if there are
    /// enough.
    pub hedge_ms: u64,
    /// Open although servers that do not answer might hold a later state.
    pub degraded: bool,
    /// Read-only. Nothing is written to any server and no epoch begins. Recovery of what an earlier
    /// client left incomplete happens in memory only. A concurrent writer is not disturbed; reads
    /// of blocks that it moves away then fail.
    pub read_only: bool,
    /// Milliseconds since an origin that all clients share. Of two clients that open an array
    /// unaware of each other, the later one must have the larger number.
    pub now: u64,
    /// Milliseconds to wait before an array is used that was not closed. Requests of its last
    /// client arrive within this time or never.
    pub late_ms: u64,
    /// Bytes of blocks from partly filled stripes to keep in memory, so that cleaning need not read
    /// them.
    pub hold_bytes: u64,
    /// Whether the write-behind log is kept up to date. The superblock records the setting until an
    /// open changes it.
    pub log: LogUse,
    /// Remembers the newest epoch.
    pub witness: Option<Arc<dyn Witness>>,
}

impl Default for ArrayOptions {
    fn default() -> ArrayOptions {
        ArrayOptions {
            patience_ms: 400,
            hedge_ms: 50,
            degraded: false,
            read_only: false,
            now: 0,
            late_ms: 2000,
            hold_bytes: 16 << 20,
            log: LogUse::Unsaid,
            witness: None,
        }
    }
}

/// Options of a new array.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// How blocks are spread.
    pub policy: Policy,
    /// Identity.
    pub uuid: [u8; 16],
    /// Number of servers kept as spares, the last ones.
    pub spares: usize,
}

/// Why an array cannot be made, opened or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A required server does not answer.
    #[error("server {0}: {1}")]
    Unreachable(usize, String),
    /// Servers do not answer, and those that do have no superblock.
    #[error("{}", of_silence(*.silent, *.servers))]
    Silent {
        /// How many do not answer.
        silent: usize,
        /// How many there are.
        servers: usize,
    },
    /// All servers answer, and none has a superblock.
    #[error("no array on these servers")]
    NoArray,
    /// The array has parity in place, which is gone.
    #[error("this array has parity in place, which is gone: make a new one with policy=parity")]
    InPlace,
    /// A restore of the array was begun and not completed.
    #[error("a restore of this array has not ended: run 'steadfast remote restore' again")]
    Unfinished,
    /// The array has a write-behind log, and would be changed without it.
    #[error(
        "the array has a write-behind log: name it with log=PATH, or leave it behind with log=none"
    )]
    Logged,
    /// The servers belong to different arrays.
    #[error("server {0} belongs to another array")]
    Mixed(usize),
    /// More servers are lost than the policy survives.
    #[error("more servers are lost than the policy survives")]
    TooManyLost,
    /// Another client has taken the array over.
    #[error("another client has opened the array: this one is fenced and does nothing more")]
    Fenced,
    /// Enough servers answer, but the missing ones might hold a later state.
    #[error(
        "{0} server(s) that may hold a later state do not answer or are empty; if they are gone for good, open with degraded=yes"
    )]
    Unsure(usize),
    /// No server can supply the block.
    #[error("block {0} can not be read from any server")]
    Unreadable(u32),
    /// No room.
    #[error("no room on the servers")]
    NoSpace,
    /// The newest epoch could not be noted.
    #[error("the witness: {0}")]
    Witness(String),
    /// The array is open read-only.
    #[error("the array is open read-only")]
    ReadOnly,
    /// This client has closed the array.
    #[error("the array is closed")]
    Closed,
    /// The operation needs the member to be in another state.
    #[error("member {0} is not in a state for that")]
    WrongState(usize),
}

fn of_silence(silent: usize, servers: usize) -> String {
    match servers - silent.min(servers) {
        0 => format!("none of the {servers} servers answers"),
        _ => format!(
            "{silent} of {servers} servers do not answer, and there is no array on the others"
        ),
    }
}

/// Counters of an array.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    losses: AtomicU64,
    reconstructed: AtomicU64,
    repaired: AtomicU64,
    cleaned: AtomicU64,
    moved: AtomicU64,
    packed: AtomicU64,
    records: AtomicU64,
    hedged: AtomicU64,
    trimmed: AtomicU64,
}

macro_rules! count {
    ($($name:ident),+) => {$(
        pub(crate) fn $name(&self, count: u64) {
            self.$name.fetch_add(count, Ordering::Relaxed);
        }
    )+};
}

impl Tally {
    count!(losses, reconstructed, repaired, cleaned, moved, packed, records, hedged, trimmed);

    pub(crate) fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn written(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> steadfast_media::MediumCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        steadfast_media::MediumCounters {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            flushes: get(&self.flushes),
            discards: 0,
            failures: get(&self.losses),
        }
    }

    pub(crate) fn fill(&self, status: &mut Status) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        status.losses = get(&self.losses);
        status.reconstructed = get(&self.reconstructed);
        status.repaired = get(&self.repaired);
        status.cleaned = get(&self.cleaned);
        status.moved = get(&self.moved);
        status.packed = get(&self.packed);
        status.records = get(&self.records);
        status.hedged = get(&self.hedged);
        status.trimmed = get(&self.trimmed);
    }
}

/// Status of an open array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Identity.
    pub uuid: [u8; 16],
    /// How blocks are spread.
    pub policy: Policy,
    /// Newest epoch.
    pub epoch: u64,
    /// State and server of each member.
    pub members: Vec<(State, usize)>,
    /// More members were lost than the policy survives.
    pub failed: bool,
    /// Bytes of the medium.
    pub size: u64,
    /// Free segments of each server, and all segments.
    pub segments: (u32, u32),
    /// Bytes of a segment on one server.
    pub segment_bytes: u32,
    /// Members lost since the array was opened.
    pub losses: u64,
    /// Blocks computed from other servers.
    pub reconstructed: u64,
    /// Blocks repaired on a server that had wrong data.
    pub repaired: u64,
    /// Segments cleaned for reuse.
    pub cleaned: u64,
    /// Blocks that cleaning moved.
    pub moved: u64,
    /// Blocks that cleaning moved from memory, without reading a server.
    pub packed: u64,
    /// Blocks on the servers that are also held in memory.
    pub held: u64,
    /// Records written.
    pub records: u64,
    /// Reads answered without waiting for a slow server.
    pub hedged: u64,
    /// Bytes of each server that were trimmed.
    pub trimmed: u64,
}
