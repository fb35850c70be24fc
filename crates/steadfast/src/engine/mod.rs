//! The engine: one ordered map in a copy-on-write tree, free space, intent log and checkpoints.
//!
//! It knows keys and blocks, not files: [`keyspace`] is what the file system above sees of the map.
//!
//! # States
//! - *working*: what operations see and change, in memory and in nodes of the working generation;
//! - *committed*: the state of the newest transaction point. A power cut or a rollback returns to
//!   it;
//! - *frozen*: the state that a checkpoint is writing;
//! - *checkpointed*: the newest metaroot. The log after it leads to the committed state. Right
//!   after opening, readers combine the two, because the log is not yet in the tree
//!   ([`recovery::overlay`]).
//!
//! A freeze follows the sealing of a commit record. Otherwise the checkpoint is a transaction point
//! itself: its caller holds the commit lock until the checkpoint is durable.
//!
//! # Locks
//! docs/ARCHITECTURE.md ("Threads and locks") has their order.

mod activity;
mod apply;
mod background;
mod budget;
mod checkpoint;
mod close;
mod commit;
pub(crate) mod deltas;
mod info;
mod inspect;
pub(crate) mod kept_block;
pub(crate) mod keyspace;
mod lifecycle;
mod lookup;
mod mkfs;
mod multi_mount;
mod nodes;
mod parameters;
mod pins;
mod reader;
mod reads;
mod recovery;
mod reference_counts;
mod sharing;
mod size;
mod snapshots;
mod spare;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;
use steadfast_media::sync::atomic::AtomicU32;

use crate::format::{Root, Superblock};
use crate::io::Device;
use crate::memory::Boxed;
use crate::newer::NewerState;
use crate::platform::Platform;
use crate::tree::Store;
use crate::types::BlockRun;

pub use activity::{Activity, CacheUse, SpaceUse};
use background::BackgroundWork;
pub(crate) use background::Turn;
pub(crate) use budget::Shortage;
use commit::group_commit::Committers;
pub(crate) use commit::transaction::NO_TRANSACTION;
use deltas::Observer;
pub use info::{Statistics, VolumeInfo};
use kept_block::KeptBlock;
use lifecycle::LifecycleCell;
use multi_mount::MountWatch;
use parameters::LiveParameters;
pub(crate) use pins::PinGuard;
pub(crate) use reader::Reader;
use reader::View;
use reads::{AccessTimes, RepeatedReads};
use state::{CommitState, Working};
pub(crate) use writer::Writer;

/// The engine of an open volume. All methods take `&self` and may be called from several threads.
pub(crate) struct Engine<M: Medium, P: Platform> {
    store: Boxed<Store<M, P>>,
    pub(crate) lifecycle: LifecycleCell<P::Mutex>,
    read_only: bool,
    pub(crate) access_times: AccessTimes,
    replayed_records: u32,
    superblock_damaged: bool,
    /// Evidence that a newer state than the opened one was durable once.
    newer_state: Option<NewerState>,
    /// Other nodes keep what is not durable, see [`deltas`].
    keeps_deltas: bool,
    /// Is told of each batch of an operation.
    pub(crate) observer: Option<Observer>,
    pub(crate) parameters: LiveParameters,
    incarnation: AtomicU32,
    pub(crate) repeated_reads: RepeatedReads,
    /// The block that the last write to a part of a block has written.
    pub(crate) kept_block: Mutex<P::Mutex, KeptBlock>,
    pub(crate) background: BackgroundWork,
    pins: Mutex<P::Mutex, alloc::vec::Vec<BlockRun>>,
    pub(crate) committers: Committers,
    commit: Mutex<P::Mutex, CommitState>,
    checkpoint: Mutex<P::Mutex, ()>,
    watch: MountWatch<P>,
    working: Mutex<P::Mutex, Boxed<Working>>,
    view: RwLock<P::RwLock, View>,
    space_memory: usize,
    tally: Mutex<P::Mutex, activity::Tally>,
}

impl<M: Medium, P: Platform> Engine<M, P> {
    /// As it was when the volume was opened.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.store.device.superblock
    }

    /// The medium as blocks, and the platform.
    pub(crate) fn device(&self) -> &Device<M, P> {
        &self.store.device
    }

    /// Nodes and blocks, for the checker.
    pub(crate) fn store(&self) -> &Store<M, P> {
        &self.store
    }

    /// The tree that operations see, for the checker.
    pub(crate) fn working_root(&self) -> Root {
        self.view.read().root
    }

    /// Number of inodes, and the next inode number, of the working state.
    pub(crate) fn working_counts(&self) -> (u64, u64) {
        let working = self.working.lock();
        (working.inodes, working.next_inode)
    }
}
