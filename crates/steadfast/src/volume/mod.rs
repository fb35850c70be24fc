//! A volume, as everything above the engine holds it.
//!
//! [`Volume`] is the engine with what the file system keeps in memory beside it: how often each
//! inode is open, and the locks of inodes. This layer opens and closes it, returns it to earlier
//! states, begins [transactions](Transaction), and passes on what the engine does (`points`,
//! `snapshots`, `about`). The
//! operations on files are in [`crate::fs`], those on whole volumes in [`crate::tools`].

mod about;
mod points;
mod snapshots;
mod transaction;

use alloc::vec::Vec;

use hashbrown::HashMap;
use lock_api::{Mutex, MutexGuard};
use steadfast_media::Medium;

use crate::engine::Engine;
use crate::error::Result;
use crate::format::{Metaroot, Superblock};
use crate::memory::{self, Boxed};
use crate::options::{FormatOptions, OpenOptions};
use crate::platform::Platform;
use crate::types::InodeNumber;

pub use self::transaction::Transaction;
pub use crate::engine::deltas::{Delta, KeptDeltas, Observer, Place, Reached};
pub use crate::engine::{Activity, CacheUse, SpaceUse, Statistics, VolumeInfo};

/// Number of inode data locks; inodes share them by number.
const INODE_LOCKS: usize = 64;

/// A mounted volume. All methods take `&self` and may be called from several threads.
pub struct Volume<M: Medium, P: Platform> {
    pub(crate) engine: Boxed<Engine<M, P>>,
    open_counts: Mutex<P::Mutex, HashMap<InodeNumber, u32>>,
    inode_locks: [Mutex<P::Mutex, ()>; INODE_LOCKS],
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// Makes an empty volume on `medium`; its previous content is lost.
    ///
    /// # Errors
    /// `BadBlockSize`, `InvalidArgument`, `VolumeTooSmall`, or the medium's error.
    ///
    /// # Power cuts
    /// The superblocks are invalidated first and written last, so an unfinished volume is not
    /// recognised as one.
    pub fn format(medium: &M, options: &FormatOptions, platform: &P) -> Result<()> {
        Engine::format(medium, options, platform)
    }

    /// Opens a volume at its last durable transaction point.
    ///
    /// # Errors
    /// `NotSteadfast`, `SuperblockDamaged`, `UnsupportedVersion`, `UnsupportedFeatures`,
    /// `ReadOnlyFeatures`, `UnsupportedParameter`, `Truncated`, `NoMetaroot`, `NewerStateLost`,
    /// `CorruptMetadata`, or the medium's error.
    pub fn open(medium: M, options: OpenOptions, platform: P) -> Result<Self> {
        Engine::open(medium, options, platform).map(Self::with_engine)
    }

    /// Opens a volume whose owner in a cluster has died, with what the other nodes keep of its
    /// changes. The newest of these that lead on from the medium's state become part of it, and
    /// durable. From now on the volume gives [deltas](Self::delta). Returns for each node how the
    /// state compares with what the node was told of; what a rollback has dropped does not count.
    ///
    /// All deltas must be of the owner before. A node forgets them when another one serves it.
    ///
    /// # Errors
    /// As [`open`](Self::open). `Poisoned`: what a node keeps is no work of an owner, and broke the
    /// volume in memory. The volume opens without it. `OutOfMemory`, `NoSpace`: another try, or
    /// another machine, may succeed with the deltas.
    pub fn open_after(
        medium: M,
        options: OpenOptions,
        platform: P,
        nodes: &[KeptDeltas],
    ) -> Result<(Self, Vec<Reached>)> {
        let (engine, compared) = Engine::open_after(medium, options, platform, nodes)?;
        Ok((Self::with_engine(engine), compared))
    }

    /// As [`open`](Self::open), with a superblock that was read already, and whether one copy of it
    /// is damaged.
    pub(crate) fn open_found(
        medium: M,
        options: OpenOptions,
        platform: P,
        found: (Superblock, bool),
    ) -> Result<Self> {
        Engine::open_found(medium, options, platform, found).map(Self::with_engine)
    }

    /// The state of `metaroot` without the intent log, to examine a volume that does not open.
    pub(crate) fn at_checkpoint(
        medium: M,
        platform: P,
        superblock: Superblock,
        metaroot: &Metaroot,
        options: &OpenOptions,
    ) -> Result<Self> {
        let engine = Engine::at_checkpoint(medium, platform, superblock, metaroot, options)?;
        Ok(Self::with_engine(engine))
    }

    /// Opens a snapshot, always read-only, whatever `options` say. The volume itself may be open on
    /// the same medium.
    ///
    /// # Errors
    /// `NotFound` if there is no snapshot of this name; as [`open`](Self::open).
    pub fn open_snapshot(medium: M, platform: P, options: OpenOptions, name: &str) -> Result<Self> {
        Engine::open_snapshot(medium, platform, options, name).map(Self::with_engine)
    }

    fn with_engine(engine: Boxed<Engine<M, P>>) -> Self {
        Volume {
            engine,
            open_counts: Mutex::new(HashMap::new()),
            inode_locks: core::array::from_fn(|_| Mutex::new(())),
        }
    }

    /// Closes the volume. If the mask has `unmount`, a checkpoint is made; otherwise uncommitted
    /// changes are dropped. Every later operation fails.
    ///
    /// # Errors
    /// As [`transact`](Self::transact). The volume is closed in any case.
    pub fn close(&self) -> Result<()> {
        self.engine.close()
    }

    /// Returns the volume to its last durable transaction point: the newest metaroot and the log up
    /// to the last commit record.
    ///
    /// Everything accepted since, from all writers, is dropped. Callers must forget every cached
    /// fact. An inode number that they hold may no longer exist; it then answers `Stale` or
    /// `NotFound`.
    ///
    /// # Errors
    /// `Held`, `ReadOnly`, `Poisoned`, or the medium's error. If the metaroot or the log cannot be
    /// read, nothing has changed. If a part of the tree that the log changes cannot be read, the
    /// volume shows and accepts nothing. That lasts until a rollback succeeds or the volume is
    /// opened again. If the volume gives [deltas](Self::delta), also those of a checkpoint: the
    /// changes are dropped then, but the next owner in a cluster might take them from a node.
    pub fn rollback(&self) -> Result<()> {
        self.engine.lifecycle.check_not_held()?;
        self.engine.check_rollback()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.rollback()
    }

    /// As [`rollback`](Self::rollback), to the beginning of the open transaction.
    pub(crate) fn rollback_held(&self) -> Result<()> {
        self.engine.check_rollback()?;
        let _writers = self.lock_all_inodes()?;
        self.engine.roll_back_transaction()
    }

    /// Waits for writers between allocating and publishing blocks, which hold their inode's lock,
    /// and lets no new ones in. The state that they write to is about to go.
    fn lock_all_inodes(&self) -> Result<Vec<MutexGuard<'_, P::Mutex, ()>>> {
        let locks = memory::collect(self.inode_locks.iter().map(|lock| lock.lock()))?;
        self.engine.kept_block.lock().forget();
        Ok(locks)
    }

    /// Serialises changes of the data or the size of one inode, across their device I/O.
    pub(crate) fn inode_lock(&self, inode: InodeNumber) -> MutexGuard<'_, P::Mutex, ()> {
        self.inode_locks[self.inode_lock_index(inode)].lock()
    }

    /// Index of the lock of an inode; inodes share locks.
    pub(crate) fn inode_lock_index(&self, inode: InodeNumber) -> usize {
        (inode.0 % INODE_LOCKS as u64) as usize
    }

    /// How often each inode is open.
    pub(crate) fn open_counts(&self) -> &Mutex<P::Mutex, HashMap<InodeNumber, u32>> {
        &self.open_counts
    }
}
