//! Opening. It reads the superblock, the metaroots and the bounded intent log with what is after
//! its end. It reads the data of the last record if that must be checked (4 MiB at
//! most). Without a log to replay it reads the key of the newest snapshot. The log is put into the
//! tree [when that is needed](crate::engine::recovery::overlay).
//!
//! Opening writes in these cases:
//! - bad copies of the metaroots are mended;
//! - the remains of an unfinished record are erased: a state that one mount has dropped must not
//!   come back at the next;
//! - a newer state that is damaged is [given up](Engine::give_up_newer) by a checkpoint, where the
//!   caller asks to recover;
//! - where the log must be replayed and changes more nodes than the cache holds, the replay
//!   [writes them out](Engine::throttle_replay) to free blocks.

use alloc::vec::Vec;

use lock_api::{Mutex, RwLock};
use steadfast_media::Medium;
use steadfast_media::sync::atomic::AtomicU32;

use crate::engine::Engine;
use crate::engine::apply::Origin;
use crate::engine::background::BackgroundWork;
use crate::engine::budget::futile::FutileCheckpoints;
use crate::engine::commit::group_commit::Committers;
use crate::engine::kept_block::KeptBlock;
use crate::engine::lifecycle::LifecycleCell;
use crate::engine::multi_mount::MountWatch;
use crate::engine::parameters::LiveParameters;
use crate::engine::reader::View;
use crate::engine::reads::{AccessTimes, RepeatedReads};
use crate::engine::recovery::damaged_newest::find_newer_records;
use crate::engine::snapshots::PendingDead;
use crate::engine::spare::SpareMemory;
use crate::engine::state::{CommitState, Pending, Working};
use crate::error::{Error, Result};
use crate::format::{FEATURES_READ_ONLY, Metaroot, Mutation, Slots, Superblock};
use crate::io::retry::Retry;
use crate::log::{Log, LogContent, scan};
use crate::memory::Boxed;
use crate::newer::NewerState;
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::profile::{NO_SNAPSHOTS, SNAPSHOTS};
use crate::sabotage::{Sabotage, planted};
use crate::space::Space;
use crate::tree::{NodePool, Scratch, Store};
use crate::types::{BlockAddress, Generation};

/// Share of the cache for allocation bitmaps: one part in this many.
const SPACE_SHARE: usize = 8;

/// Bytes at each end that hold the superblock and the metaroots with blocks of up to 4 KiB. Those
/// of larger blocks are read one by one.
const ENDS: u64 = 16 << 10;

/// Bytes of the log that are read ahead: more than a log usually holds after a checkpoint.
const LOG_AHEAD: u64 = 128 << 10;

/// No generation of a real volume comes near this.
pub(in crate::engine) const GENERATION_LIMIT: Generation = Generation(1 << 61);

impl<M: Medium, P: Platform> Engine<M, P> {
    /// Opens a volume at its last durable transaction point.
    pub(crate) fn open(medium: M, options: OpenOptions, platform: P) -> Result<Boxed<Self>> {
        // The superblock and the metaroots are at both ends, twice.
        medium.will_read(0, ENDS);
        medium.will_read(medium.geometry().size.saturating_sub(ENDS), ENDS);
        let found = Superblock::read(&Retry(&medium), &platform)?;
        Self::open_found(medium, options, platform, found)
    }

    /// As [`open`](Self::open), with a superblock that was read already, and whether one copy of it
    /// is damaged.
    pub(crate) fn open_found(
        medium: M,
        options: OpenOptions,
        platform: P,
        superblock: (Superblock, bool),
    ) -> Result<Boxed<Self>> {
        let (engine, found) = Self::read_state(medium, &options, platform, superblock)?;
        engine.finish_open(found, &options)?;
        Ok(engine)
    }

    /// Shows what the log has, or gives up what was damaged.
    #[inline(always)]
    pub(in crate::engine) fn finish_open(
        &self,
        found: LogContent,
        options: &OpenOptions,
    ) -> Result<()> {
        self.install_log(found)?;
        if self.newer_state.is_some() && !options.read_only { self.give_up_newer() } else { Ok(()) }
    }

    /// The volume as its newest metaroot says, and the log after it.
    // A frame of its own would have the superblock on the stack once more.
    #[inline(always)]
    pub(in crate::engine) fn read_state(
        medium: M,
        options: &OpenOptions,
        platform: P,
        (superblock, damaged): (Superblock, bool),
    ) -> Result<(Boxed<Self>, LogContent)> {
        let patient = Retry(&medium);
        let unknown = superblock.features_read_only & !FEATURES_READ_ONLY;
        if unknown != 0 && !options.read_only {
            return Err(Error::ReadOnlyFeatures(unknown));
        }
        let slots = Slots::read(&patient, &superblock, &platform)?;
        let metaroot = *slots.newest();
        let counts = metaroot.snapshots;
        let plain = counts.newest.0 | counts.keys | counts.blocks | counts.shared_extents == 0;
        if !SNAPSHOTS && !plain && !options.read_only {
            return Err(NO_SNAPSHOTS);
        }
        let mut engine = Self::with_state(medium, platform, superblock, &metaroot, options)?;
        will_read_state(&engine.store, &metaroot);
        engine.superblock_damaged = damaged;
        let found = read_log(&engine.store, &metaroot)?;
        engine.newer_state = match slots
            .newer_is_damaged()
            .then_some(NewerState::Metaroot { left: metaroot.generation })
        {
            None => find_newer_records(&engine.store, &found)?,
            newer => newer,
        };
        if let Some(newer) = engine.newer_state.filter(|_| !options.read_only && !options.recover) {
            // An unreadable medium may become readable again, so its error has precedence.
            return Err(found.unreadable.unwrap_or(Error::NewerStateLost(newer)));
        }
        // The remains of a newer state are the evidence of it until it is given up, so they are not
        // erased.
        if !options.read_only && engine.newer_state.is_none() {
            let store = &engine.store;
            slots.mend(
                &Retry(&store.device.medium),
                &store.device.superblock,
                &store.device.platform,
            )?;
        }
        drop(slots);
        engine.replayed_records = found.points();
        engine.commit.get_mut().last_ms = engine.store.device.platform.monotonic_ms();
        engine.continue_log_after(&mut engine.working.lock(), &found)?;
        engine.watch.begin(&engine.store, &engine.working.lock());
        Ok((engine, found))
    }

    /// The state of `metaroot` without the intent log, to examine a volume that does not open.
    pub(crate) fn at_checkpoint(
        medium: M,
        platform: P,
        superblock: Superblock,
        metaroot: &Metaroot,
        options: &OpenOptions,
    ) -> Result<Boxed<Self>> {
        let options = OpenOptions { read_only: true, ..options.clone() };
        Self::with_state(medium, platform, superblock, metaroot, &options)
    }

    /// A volume whose working state is the checkpointed one.
    #[inline(never)]
    pub(crate) fn with_state(
        medium: M,
        platform: P,
        superblock: Superblock,
        metaroot: &Metaroot,
        options: &OpenOptions,
    ) -> Result<Boxed<Self>> {
        let space_memory = options.cache_size / SPACE_SHARE;
        let node_memory = options.cache_size - space_memory;
        let store = Boxed::new(|| Store::new(medium, platform, superblock, node_memory))?;
        let working = working_state(&store, &store.device.superblock, metaroot, space_memory)?;
        let root = metaroot.root();
        Boxed::new(|| Engine {
            store,
            lifecycle: LifecycleCell::new(),
            read_only: options.read_only,
            access_times: AccessTimes::new(options.access_times, options.read_only),
            replayed_records: 0,
            superblock_damaged: false,
            newer_state: None,
            keeps_deltas: false,
            observer: None,
            parameters: LiveParameters::of(metaroot),
            incarnation: AtomicU32::new(0),
            repeated_reads: RepeatedReads::default(),
            kept_block: Mutex::new(KeptBlock::default()),
            background: BackgroundWork::after_opening(),
            pins: Mutex::new(Vec::new()),
            committers: Committers::default(),
            commit: Mutex::new(CommitState::default()),
            checkpoint: Mutex::new(()),
            watch: MountWatch::new(metaroot, options),
            working: Mutex::new(working),
            view: RwLock::new(View { root, log: None }),
            space_memory,
            tally: Mutex::default(),
        })
    }

    /// The working state that equals the checkpointed one of `metaroot`.
    pub(crate) fn working_at(&self, metaroot: &Metaroot) -> Result<Boxed<Working>> {
        working_state(&self.store, &self.store.device.superblock_now(), metaroot, self.space_memory)
    }

    /// Sets the end of the log after what [`read_log`] found.
    #[inline(never)]
    pub(crate) fn continue_log_after(
        &self,
        working: &mut Working,
        found: &LogContent,
    ) -> Result<()> {
        let atomic_unit = self.store.device.medium.geometry().atomic_unit;
        working.log = Log::new(&self.store.device.superblock, atomic_unit, found.end, found.blocks);
        if found.unfinished && !self.read_only && !planted(Sabotage::KeepUnfinishedRecord) {
            working.log.erase_unfinished(&self.store, found.spare)?;
        }
        Ok(())
    }

    /// Applies the records that [`read_log`] found. The checkpointed state stays as
    /// it is, so after an error the caller can go back to it.
    pub(crate) fn replay(&self, working: &mut Working, found: &LogContent) -> Result<()> {
        self.replay_with(working, found, Vec::new())
    }

    /// As [`replay`](Self::replay), with [deltas](crate::engine::deltas) as one more record. No
    /// commit record can hold these, so the next transaction point is a checkpoint.
    pub(in crate::engine) fn replay_with(
        &self,
        working: &mut Working,
        found: &LogContent,
        deltas: Vec<Mutation>,
    ) -> Result<()> {
        // What the log has is durable already, so it counts as no new batch.
        let sequence = working.sequence;
        working.space.keep_for_replay(&found.runs)?;
        // A checkpoint may have been in flight; the generation after it may have been in use
        // already.
        working.pass_births(&self.store.device.superblock, found.birth_max)?;
        for index in 0..found.len() {
            self.apply(working, found.mutations(&self.store, index)?, Origin::Replay)?;
            working.space.note_sealed();
            while working.pending_dead.len() > self.pending_dead_max()
                && self.put_dead_into_tree(working)?
            {}
        }
        if planted(Sabotage::ReplayTwice) && found.len() > 1 {
            self.apply(working, found.mutations(&self.store, 0)?, Origin::Replay)?;
        }
        let more = !deltas.is_empty();
        self.apply(working, deltas, Origin::Replay)?;
        // Addresses in the pool were set aside with the rest and are returned with it.
        working.pool.drain();
        working.space.end_replay();
        working.sequence = sequence;
        if more {
            working.pending.set_overflow();
            working.sequence += 1;
        }
        Ok(())
    }
}

impl Working {
    /// Advances the working generation so that no block is born after it.
    fn pass_births(&mut self, superblock: &Superblock, birth: Generation) -> Result<()> {
        if birth >= GENERATION_LIMIT {
            let address = superblock.log.start;
            return Err(Error::CorruptLog { address, reason: "extent born in the far future" });
        }
        self.raise_generation(birth);
        Ok(())
    }
}

/// Announces the next reads: the log, and the root of the tree.
fn will_read_state<M: Medium, P: Platform>(store: &Store<M, P>, metaroot: &Metaroot) {
    let superblock = &store.device.superblock;
    let byte = |block: u64| block.saturating_mul(u64::from(superblock.block_size));
    let left = superblock.log.count.saturating_sub(metaroot.log.block);
    if left > 0 {
        let start = superblock.log.start.0.saturating_add(metaroot.log.block);
        store.device.medium.will_read(byte(start), byte(left).min(LOG_AHEAD));
    }
    let root = metaroot.root().pointer.addresses[0];
    if root != BlockAddress::NONE {
        store.device.medium.will_read(byte(root.0), u64::from(superblock.node_size));
    }
}

/// Reads the intent log after `metaroot` up to its last commit record.
#[inline(never)]
pub(in crate::engine) fn read_log<M: Medium, P: Platform>(
    store: &Store<M, P>,
    metaroot: &Metaroot,
) -> Result<LogContent> {
    if store.device.superblock.log.count == 0 {
        return Ok(LogContent::empty(metaroot.log));
    }
    scan(store, metaroot.log, metaroot.generation)
}

fn working_state<M: Medium, P: Platform>(
    store: &Store<M, P>,
    superblock: &Superblock,
    metaroot: &Metaroot,
    space_memory: usize,
) -> Result<Boxed<Working>> {
    let cursors = (metaroot.data_cursor, metaroot.node_cursor);
    let space = Space::new(superblock, metaroot.used_blocks, cursors, space_memory)?;
    Boxed::new(|| Working {
        generation: Generation(metaroot.generation.0 + 1),
        nodes: metaroot.nodes,
        inodes: metaroot.inodes,
        next_inode: metaroot.next_inode,
        pool: NodePool::default(),
        scratch: Scratch::default(),
        spare: SpareMemory::default(),
        space,
        log: Log::new(superblock, store.device.medium.geometry().atomic_unit, metaroot.log, 0),
        pending: Pending::default(),
        sequence: 0,
        frozen: None,
        leaving: Vec::new(),
        checkpointed: *metaroot,
        parameters_changed: false,
        snapshots: metaroot.snapshots,
        shared_data: u64::MAX,
        pending_dead: PendingDead::default(),
        needs_later: None,
        futile: FutileCheckpoints::default(),
        changed: None,
    })
}
