//! A volume: the copy-on-write tree, free space, intent log and checkpoints behind the
//! [`crate::engine::keyspace`] seam.
//!
//! # States
//! - *working*: what operations see and change, in memory and in nodes of the working generation;
//! - *marked*: the newest log mark; what a power cut or a rollback returns to;
//! - *frozen*: the marked state that a checkpoint is writing;
//! - *durable*: the newest metaroot. Durable plus the log is the marked state, also right after
//!   opening, when readers put the two together and the log is not yet in the tree
//!   ([`unreplayed`]).
//!
//! A freeze happens only at a transaction point, so no checkpoint ever holds half of one.
//!
//! # Locks, in the order in which they are taken
//! 1. an inode's data lock (striped), across its device I/O;
//! 2. `commit`: one transaction point at a time; whoever waits for it finds its work done (group
//!    commit);
//! 3. `checkpoint`: one step of a checkpoint's device I/O at a time;
//! 4. `working`: one writer of metadata at a time; no device writes under it but for memory
//!    pressure;
//! 5. `view`: readers share it while they look things up; the writer takes it while it changes the
//!    tree;
//! 6. the node cache, for moments.
//!
//! [`others`] has one that is the innermost of all, across the writing of a mark or metaroot:
//! whoever finds it taken goes on.

mod activity;
mod apply;
mod background;
mod blocks;
mod budget;
mod checkpoint;
mod commit;
mod data;
mod fixed;
mod info;
pub(crate) mod keyspace;
mod map;
mod mkfs;
mod multi_mount;
mod reader;
mod recovery;
pub(crate) mod resize;
mod snapshots;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod trim;
mod writer;

use core::sync::atomic::{AtomicBool, AtomicU32};

use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;

use crate::newer::NewerState;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::BlockRun;

pub use activity::{Activity, CacheUse, SpaceUse};
pub(crate) use background::Turn;
pub(crate) use budget::Shortage;
use commit::group::Company;
pub(crate) use data::PinGuard;
pub use info::{Statistics, VolumeInfo};
pub use map::{MapCell, MapGeometry};
use multi_mount::Others;
pub(crate) use reader::Reader;
use reader::View;
use state::{CommitState, Working};
pub(crate) use writer::Writer;

/// The engine of an open volume. All methods take `&self` and may be called from several threads.
pub(crate) struct Engine<M: Medium, P: Platform> {
    store: Store<M, P>,
    read_only: bool,
    access_times: bool,
    replayed_records: u32,
    /// The view has a log that is not in the tree.
    unreplayed: AtomicBool,
    superblock_damaged: bool,
    /// What shows that a newer state than the one that was opened was durable once.
    newer_state: Option<NewerState>,
    mask: AtomicU32,
    timer_ms: AtomicU32,
    failed: AtomicBool,
    /// One caller alone sets transaction points, see [`hold`].
    held: AtomicBool,
    failure: Mutex<P::Mutex, Option<&'static str>>,
    closed: AtomicBool,
    /// The tree is on its way back to the marked state: readers wait for the writer's lock.
    rolling_back: AtomicBool,
    /// A rollback could not read all of the marked state: nothing is shown until another one can.
    lost: AtomicBool,
    incarnation: AtomicU32,
    /// Reads that were begun again because what they found did not match its checksum.
    reads_repeated: AtomicU32,
    /// Orphans may wait for being reclaimed.
    orphans: AtomicBool,
    /// Log marks since background work had a turn.
    marks_unattended: AtomicU32,
    /// Deleted snapshots may wait for their blocks to be freed.
    snapshots_waiting: AtomicBool,
    /// They wait for a transaction point.
    snapshots_starve: AtomicBool,
    pins: Mutex<P::Mutex, alloc::vec::Vec<BlockRun>>,
    company: Company,
    commit: Mutex<P::Mutex, CommitState>,
    checkpoint: Mutex<P::Mutex, ()>,
    others: Mutex<P::Mutex, Others>,
    /// When that was last looked at, milliseconds; 0: never.
    looked_ms: AtomicU32,
    working: Mutex<P::Mutex, Working>,
    view: RwLock<P::RwLock, View>,
    space_memory: usize,
    tally: Mutex<P::Mutex, activity::Tally>,
}
