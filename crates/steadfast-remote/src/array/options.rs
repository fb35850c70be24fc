//! What callers set, what they are told, and how things go wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Policy, State};

/// Remembers the newest epoch outside the servers, so that an array can be opened without those
/// that may know better.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Remembers an epoch, with the stamp of its session before it, durably.
    ///
    /// # Errors
    /// A line for people.
    fn note(&self, uuid: &[u8; 16], order: (u64, u64)) -> Result<(), String>;

    /// The newest stamp and epoch noted for this array. An epoch alone would not do: who was cut
    /// off may have gone on with later ones of an earlier session.
    fn newest(&self, uuid: &[u8; 16]) -> Option<(u64, u64)>;
}

/// Whether whoever opens an array for writing keeps its write-behind log up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogUse {
    /// He says nothing, and is refused where there is one: it would be left behind, and nobody
    /// would know on the day on which it is all that is left.
    #[default]
    Unsaid,
    /// He does.
    Kept,
    /// He does not, and knows that.
    Left,
}

/// How an array is used.
#[derive(Debug, Clone)]
pub struct ArrayOptions {
    /// How long a server may take for an answer, milliseconds; a call is tried twice.
    pub patience_ms: u64,
    /// After so many milliseconds without an answer a read is made from other servers, where there
    /// are enough.
    pub hedge_ms: u64,
    /// Open although servers that do not answer might know of a later state.
    pub degraded: bool,
    /// Only look: nothing is written to any server, no epoch begins, and what an earlier client
    /// left behind is settled in memory alone. Whoever writes meanwhile is not disturbed; what it
    /// moves away then fails to be read here.
    pub read_only: bool,
    /// Milliseconds since any time that is the same for all clients: of two that open an array
    /// without having seen each other, the later one has to have the larger number.
    pub now: u64,
    /// So many milliseconds pass before an array is used that nobody has closed: what its last
    /// client had sent arrives within them, or never.
    pub late_ms: u64,
    /// Bytes of blocks of partly filled stripes that may be kept in memory, so that cleaning need
    /// not read them.
    pub hold_bytes: u64,
    /// Whether its write-behind log is kept up to date. The superblock has it until somebody says
    /// otherwise.
    pub log: LogUse,
    /// Who remembers the newest epoch.
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

/// What a new array is.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// How blocks are spread.
    pub policy: Policy,
    /// Identity.
    pub uuid: [u8; 16],
    /// How many of the servers are kept as spares, the last ones.
    pub spares: usize,
}

/// Why an array can not be made, opened or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Invalid(String),
    /// A server that is needed does not answer.
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
    /// Somebody has begun to restore it, and not ended.
    #[error("a restore of this array has not ended: run 'steadfast remote restore' again")]
    Unfinished,
    /// It has a write-behind log, and would be changed without it.
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
    /// Enough servers are there, but those that are not might know of a later state.
    #[error(
        "{0} server(s) that may hold a later state do not answer or are empty; if they are gone for good, open with degraded=yes"
    )]
    Unsure(usize),
    /// A block can not be read from anywhere.
    #[error("block {0} can not be read from any server")]
    Unreadable(u32),
    /// No room.
    #[error("no room on the servers")]
    NoSpace,
    /// The newest epoch could not be noted.
    #[error("the witness: {0}")]
    Witness(String),
    /// Opened read-only.
    #[error("the array is open read-only")]
    ReadOnly,
    /// It was closed here.
    #[error("the array is closed")]
    Closed,
    /// What was to be done is for another state of the member.
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
    groups: AtomicU64,
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
    count!(
        losses,
        reconstructed,
        repaired,
        cleaned,
        moved,
        packed,
        groups,
        records,
        hedged,
        trimmed
    );

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
        status.groups = get(&self.groups);
        status.records = get(&self.records);
        status.hedged = get(&self.hedged);
        status.trimmed = get(&self.trimmed);
    }
}

/// What there is to know about an open array.
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
    /// More were lost than can be.
    pub failed: bool,
    /// Bytes of the medium.
    pub size: u64,
    /// Segments of each server that are free, and all of them.
    pub segments: (u32, u32),
    /// Bytes of a segment on one server.
    pub segment_bytes: u32,
    /// Members lost since it was opened.
    pub losses: u64,
    /// Blocks computed from other servers.
    pub reconstructed: u64,
    /// Blocks put right on a server that had them wrong.
    pub repaired: u64,
    /// Segments emptied to be used again.
    pub cleaned: u64,
    /// Blocks that were in them and are elsewhere now.
    pub moved: u64,
    /// Of those, the ones that no server was asked for.
    pub packed: u64,
    /// Groups of homes that were written without the log.
    pub groups: u64,
    /// Blocks on the servers that are in memory as well.
    pub held: u64,
    /// Records written.
    pub records: u64,
    /// Reads that did not wait for a slow server.
    pub hedged: u64,
    /// Bytes of each server that were given back.
    pub trimmed: u64,
}
