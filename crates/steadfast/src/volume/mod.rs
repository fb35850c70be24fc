//! A volume: the copy-on-write tree, free space, intent log and checkpoints behind the
//! [`crate::keyspace`] seam.
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
mod api;
mod apply;
mod background;
mod blocks;
mod checkpoint;
mod commit;
mod data;
mod dead;
#[cfg(test)]
mod fault_tests;
mod format;
mod gather;
mod hold;
mod identify;
#[cfg(test)]
mod log_tests;
mod map;
mod move_shared;
mod newer;
#[cfg(test)]
mod newer_tests;
mod open;
#[cfg(test)]
mod open_tests;
mod others;
#[cfg(test)]
mod others_tests;
mod pressure;
mod reader;
mod reclaim;
#[cfg(test)]
mod reclaim_tests;
mod resize;
mod rollback;
mod room;
mod room_check;
mod room_data;
#[cfg(test)]
mod room_data_tests;
#[cfg(test)]
mod room_tests;
mod scrub;
mod snapshot_delete;
mod snapshot_diff;
#[cfg(test)]
mod snapshot_limits;
#[cfg(test)]
mod snapshot_model;
mod snapshot_open;
mod snapshot_rollback;
#[cfg(test)]
mod snapshot_tests;
mod snapshots;
mod state;
mod steps;
#[cfg(test)]
mod steps_tests;
#[cfg(test)]
mod stress;
#[cfg(test)]
mod tamper;
#[cfg(test)]
pub(crate) mod tests;
mod trim;
mod tune;
#[cfg(test)]
mod unreadable_tests;
mod unreplayed;
#[cfg(test)]
mod unreplayed_tests;
mod writer;

use core::sync::atomic::{AtomicBool, AtomicU32};

use hashbrown::HashMap;
use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;

use crate::newer::NewerState;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::{BlockRun, InodeNumber};

pub use activity::{Activity, CacheUse, SpaceUse};
pub use api::VolumeInfo;
pub(crate) use data::PinGuard;
use gather::Company;
pub use identify::{Identity, identify};
pub(crate) use map::Survey;
pub use map::{MapCell, MapGeometry};
use others::Others;
pub(crate) use reader::Reader;
use reader::View;
pub use snapshot_diff::{InodeChange, SnapshotDiff};
use state::{CommitState, Working};
pub use tune::{Tune, tune};
pub(crate) use writer::Writer;

/// Number of inode data locks; inodes share them by number.
const INODE_LOCKS: usize = 64;

/// A mounted volume. All methods take `&self` and may be called from several threads.
pub struct Volume<M: Medium, P: Platform> {
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
    open_counts: Mutex<P::Mutex, HashMap<InodeNumber, u32>>,
    pins: Mutex<P::Mutex, alloc::vec::Vec<BlockRun>>,
    inode_locks: [Mutex<P::Mutex, ()>; INODE_LOCKS],
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
