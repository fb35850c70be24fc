//! Admission of cached writes: keeps room for the pages that the kernel holds back.
//!
//! With the write-back cache write(2) only makes pages dirty. The volume receives the data seconds
//! later, which is too late to report that the volume is full. So this module never lets the dirty
//! pages of a mount exceed the room of the volume by much:
//!
//! - *Far* from full, the kernel's limit of dirty pages
//!   ([`CacheLimits`](crate::mount::CacheLimits)) is at most a quarter of the room. The limit is
//!   set again as the room shrinks. A write that reaches the limit waits for write-back. Each
//!   thread may exceed the limit by some MiB, because the kernel checks it only after a number of
//!   pages (`nr_dirtied_pause`). The threshold of the near phase allows for that.
//! - *Near* full, each write(2) asks the daemon. Before the kernel makes a cached page dirty, it
//!   sends GETATTR with the handle if it has no valid attributes (`fuse_cache_write_iter`). So the
//!   daemon gives the kernel no valid attributes of files that are open for writing. That GETATTR
//!   is the *admission* of one write, and write(2) returns its result.
//!
//! An admission gives one `unit` of room, because GETATTR does not contain the length of the
//! write. If the given units would exceed the room, the control thread pulls the files that have
//! units. Then the room is known exactly again.
//!
//! A file that is emptied and filled again, as a shell does with `>`, must not stay empty. So files
//! that grow leave one more unit. A file that was emptied near full may take it until the file is
//! as large as before. The emptying has brought back as much, so the unit stays.
//!
//! A new name takes room, too, and a tree that gets one level higher takes it for some ten nodes. A
//! volume that keeps a unit for emptied files keeps half of one for that. A smaller one
//! has a write-back cache only on demand, and keeps nothing. There a name that is made between a
//! write and its write-back can take the room of the last unit.
//!
//! The last unit of room is only for writes that do not extend a file, so a full volume can be
//! overwritten. A file that grows there gets ENOSPC. The last write of the file, or the flags of
//! its open, show whether it grows. Some overwrites need new blocks all the same, so they get
//! ENOSPC, too. Those are of a file that shares blocks with a snapshot or with another file. While
//! no transaction point may bring the replaced blocks back, all of them need new blocks.
//!
//! Nor can admission bound a write(2) longer than a unit, or stores into a mapping. If the volume
//! has no room for any of these, `filesystem/lost.rs` reports the loss.
//!
//! Invariants:
//! - Near full, the kernel has no valid attributes of a file that is open for writing. A
//!   notification before an answer makes the kernel drop the attributes in that answer, because
//!   they count as older than the notification. The kernel always keeps the attributes in answers
//!   to SETATTR, LINK and CREATE, so those answers give them a validity of zero.
//! - Only the control thread changes the phase.
//!
//! The decisions are in this module, without a kernel or a volume ([`Surroundings`]), so that a
//! model can replace both. `filesystem/admitting.rs` connects them.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use crate::open::Handle;

const MIB: u64 = 1 << 20;
/// The kernel's usual limit of dirty pages for a mount by a non-root user, used if the kernel
/// reports none.
const DIRTY_MAX_USUAL: u64 = 64 * MIB;

/// Room, in bytes, below which the volume is near full: an eighth of the volume, within these
/// bounds. The lower bound has space for the pages of six threads beyond a limit of a quarter, so a
/// smaller volume is always near full.
const NEAR_MIN: u64 = 32 * MIB;
const NEAR_MAX: u64 = 256 * MIB;
/// Size in bytes from which on a volume keeps a unit for emptied files: of a smaller one that would
/// be too large a part.
const REFILLED_MIN: u64 = 16 * MIB;

/// The volume, and the kernel's cache above it.
pub(crate) trait Surroundings {
    /// Bytes that the volume has room for, in pieces of any size.
    fn room(&self) -> u64;

    /// Frees space that removed files still hold, until `bytes` are available or no such space is
    /// left.
    fn make_room(&self, bytes: u64);

    /// Size of a file on the volume, bytes.
    ///
    /// # Errors
    /// No file has this node id.
    fn size(&self, nodeid: u64) -> Result<u64, Errno>;

    /// Whether blocks that an overwrite replaces come back when they are needed.
    fn brings_back(&self) -> bool;

    /// Whether a snapshot or another file has some of the blocks of a file.
    ///
    /// # Errors
    /// No file has this node id, or its map cannot be read.
    fn shares_blocks(&self, nodeid: u64) -> Result<bool, Errno>;

    /// Files that are open for writing.
    fn written(&self) -> Vec<u64>;

    /// Makes the kernel ask before the next write to a file.
    fn have_ask(&self, nodeid: u64);

    /// Makes the kernel write back the dirty pages of a file. Pages that cannot be written are
    /// lost, and the loss is recorded.
    fn pull(&self, nodeid: u64);

    /// The error of a lost write, which the caller now reports.
    fn lost(&self, nodeid: u64) -> Option<Errno>;

    /// Sets the kernel's limit of dirty pages in bytes, or removes it. Returns whether that worked.
    fn limit_dirty(&self, bytes: Option<u64>) -> bool;
}

/// What is known of a file that has written within the last unit of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The file had this size, in bytes.
    Size(u64),
    /// The file has grown.
    Growing,
}

/// Units that are given near a full volume.
#[derive(Debug, Default)]
struct Units {
    given: u64,
    /// Node ids of files with units: they may have dirty pages.
    files: BTreeSet<u64>,
    last: HashMap<u64, Seen>,
    /// Files that were emptied while they were open for writing, and their bytes before.
    emptied: HashMap<u64, u64>,
    /// Files that had all their blocks alone, and the [sharings](Admission::sharings) at that time.
    alone: HashMap<u64, u64>,
}

impl Units {
    fn give(&mut self, nodeid: u64) {
        self.given += 1;
        self.files.insert(nodeid);
    }
}

/// The admission of cached writes to one mount.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Whether the kernel caches writes.
    write_back: bool,
    /// Near full: each write asks.
    near: AtomicBool,
    /// Near full, and all older dirty pages have been pulled: workers may admit.
    settled: AtomicBool,
    /// Room in bytes below which the volume is near full.
    near_below: AtomicU64,
    unit: u64,
    /// Bytes of room that files leave when they grow beyond what they were.
    refilled: u64,
    /// Bytes of these that emptied files leave, too, for names that are made meanwhile.
    names: u64,
    /// The limit of dirty pages that the kernel had by default, in bytes.
    dirty_max: AtomicU64,
    /// The control thread looks again when the room falls below or rises above these values, in
    /// bytes.
    look_below: AtomicU64,
    look_above: AtomicU64,
    /// Counts events that may have made files share blocks.
    sharings: AtomicU64,
    units: Mutex<Units>,
}

impl Admission {
    /// Creates the admission for a volume of `size` bytes.
    pub(crate) fn new(write_back: bool, size: u64) -> Admission {
        // At least the size of one write of cp(1) and mv(1).
        let unit = (size / 64).clamp(MIB / 4, MIB).min(size / 8);
        let names = if size < REFILLED_MIN { 0 } else { unit / 2 };
        Admission {
            write_back,
            near: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            near_below: AtomicU64::new((size / 8).clamp(NEAR_MIN, NEAR_MAX)),
            unit,
            refilled: if size < REFILLED_MIN { 0 } else { unit + names },
            names,
            dirty_max: AtomicU64::new(0),
            look_below: AtomicU64::new(0),
            look_above: AtomicU64::new(u64::MAX),
            sharings: AtomicU64::new(0),
            units: Mutex::default(),
        }
    }

    /// Starts to bound dirty pages; the caller then calls [`look`](Self::look). `dirty_max`: the
    /// kernel's own limit in bytes, if known. Returns whether there is anything to bound.
    pub(crate) fn begin(&self, dirty_max: Option<u64>) -> bool {
        self.dirty_max.store(dirty_max.unwrap_or(DIRTY_MAX_USUAL), Ordering::Release);
        self.write_back
    }

    /// Whether each write has to ask.
    pub(crate) fn asks(&self) -> bool {
        self.near.load(Ordering::SeqCst)
    }

    /// Bytes of room that is not available to growing files.
    pub(crate) fn kept(&self) -> u64 {
        if self.write_back { self.unit + self.refilled } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether names may be made while pages wait.
    #[cfg(test)]
    pub(crate) fn leaves_room_for_names(&self) -> bool {
        self.names > 0
    }

    /// A file that is open for writing had `before` bytes, and has none now.
    pub(crate) fn emptied(&self, nodeid: u64, before: u64) {
        if self.asks() && before > 0 {
            self.units().emptied.insert(nodeid, before);
        }
    }

    /// The file is not open for writing any more.
    pub(crate) fn closed(&self, nodeid: u64) {
        if self.asks() {
            let mut units = self.units();
            units.last.remove(&nodeid);
            units.emptied.remove(&nodeid);
            units.alone.remove(&nodeid);
        }
    }

    /// Files may share blocks now. Called afterwards.
    pub(crate) fn shared(&self) {
        self.sharings.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the control thread has to [`look`](Self::look), because a write or an open may have
    /// changed the room. Of all concurrent callers that find this, only one gets `true`.
    pub(crate) fn is_due(&self, room: impl FnOnce() -> u64) -> bool {
        let (below, above) =
            (self.look_below.load(Ordering::Relaxed), self.look_above.load(Ordering::Relaxed));
        if below == 0 && above == u64::MAX {
            return false;
        }
        let room = room();
        let due = room < below || room > above;
        if due {
            self.look_at(0, u64::MAX);
        }
        due
    }

    fn look_at(&self, below: u64, above: u64) {
        self.look_below.store(below, Ordering::Relaxed);
        self.look_above.store(above, Ordering::Relaxed);
    }

    /// On the control thread: changes between far and near as the room requires, and sets the
    /// kernel's limit.
    pub(crate) fn look(&self, around: &impl Surroundings) {
        let (room, near_below) = (around.room(), self.near_below.load(Ordering::Acquire));
        if !self.asks() {
            if room < near_below {
                self.come_near(around);
            } else {
                self.limit_dirty(around, room);
            }
        } else if room > near_below / 4 * 5 {
            self.settled.store(false, Ordering::SeqCst);
            self.near.store(false, Ordering::SeqCst);
            *self.units() = Units::default();
            self.limit_dirty(around, room);
        }
    }

    fn limit_dirty(&self, around: &impl Surroundings, room: u64) {
        let dirty_max = self.dirty_max.load(Ordering::Acquire);
        if room / 2 >= dirty_max {
            around.limit_dirty(None);
            self.look_at(dirty_max.saturating_mul(2), u64::MAX);
        } else if around.limit_dirty(Some(room / 4)) {
            self.look_at(room / 8 * 7, room.saturating_mul(2));
        } else {
            // The kernel keeps its own limit. The near phase then begins at the room for which that
            // limit would be too high.
            self.near_below.fetch_max(dirty_max.saturating_mul(2), Ordering::AcqRel);
            self.come_near(around);
        }
    }

    /// From here on each write asks. The pages that are already dirty are pulled, so that the room
    /// is known.
    fn come_near(&self, around: &impl Surroundings) {
        self.look_at(0, u64::MAX);
        self.near.store(true, Ordering::SeqCst);
        let written = around.written();
        written.iter().for_each(|nodeid| around.have_ask(*nodeid));
        written.iter().for_each(|nodeid| around.pull(*nodeid));
        // At the first notification the kernel may still have been creating a file.
        around.written().iter().for_each(|nodeid| around.have_ask(*nodeid));
        self.settled.store(true, Ordering::SeqCst);
    }

    /// Admits a write to a file if a unit of room is left. Otherwise the control thread has to call
    /// [`find_unit`](Self::find_unit).
    pub(crate) fn admit(&self, around: &impl Surroundings, nodeid: u64) -> bool {
        !self.asks()
            || self.settled.load(Ordering::SeqCst) && self.take(nodeid, around, self.refilled)
    }

    /// On the control thread: finds room for a write by steps that take time.
    ///
    /// # Errors
    /// The write is not admitted: ENOSPC, or the error of an earlier write to that file.
    pub(crate) fn find_unit(
        &self,
        around: &impl Surroundings,
        nodeid: u64,
        handle: Handle,
    ) -> Result<(), Errno> {
        if self.admit(around, nodeid) {
            return Ok(());
        }
        let (files, given) = {
            let mut units = self.units();
            (std::mem::take(&mut units.files), units.given)
        };
        files.into_iter().for_each(|file| around.pull(file));
        // Subtract the units only after the pull: until then the pulled pages still need the
        // room. Workers may have given further units in the meantime.
        {
            let mut units = self.units();
            units.given = units.given.saturating_sub(given);
        }
        around.make_room(self.unit + self.refilled);
        self.look(around);
        if let Some(errno) = around.lost(nodeid) {
            return Err(errno);
        }
        if self.admit(around, nodeid) {
            return Ok(());
        }
        let size = around.size(nodeid)?;
        let refills = self.units().emptied.get(&nodeid).is_some_and(|before| size < *before);
        if refills && self.take(nodeid, around, self.names) {
            return Ok(());
        }
        let overwrites = self.overwrites(nodeid, handle, size);
        if !overwrites || !around.brings_back() || self.shares_blocks(around, nodeid)? {
            return Err(Errno(libc::ENOSPC));
        }
        self.units().give(nodeid);
        Ok(())
    }

    /// Whether a file shares blocks. The answer "no" holds until something is shared, so the file
    /// is not searched for each write.
    fn shares_blocks(&self, around: &impl Surroundings, nodeid: u64) -> Result<bool, Errno> {
        let sharings = self.sharings.load(Ordering::SeqCst);
        if self.units().alone.get(&nodeid) == Some(&sharings) {
            return Ok(false);
        }
        let shares = around.shares_blocks(nodeid)?;
        if !shares {
            self.units().alone.insert(nodeid, sharings);
        }
        Ok(shares)
    }

    /// Gives a unit of room, if one is left beside `left` bytes.
    fn take(&self, nodeid: u64, around: &impl Surroundings, left: u64) -> bool {
        // The room must be read while the units are locked.
        let mut units = self.units();
        let room = around.room();
        let wanted = units.given.saturating_add(1).saturating_mul(self.unit);
        let taken = wanted.saturating_add(left) <= room;
        if taken {
            units.give(nodeid);
        }
        taken
    }

    /// Whether a write may use the last unit of room. `handle` was opened for the file, which now
    /// has `size` bytes.
    fn overwrites(&self, nodeid: u64, handle: Handle, size: u64) -> bool {
        let mut units = self.units();
        let seen = units.last.entry(nodeid).or_insert(match size > 0 && !handle.starts_empty() {
            true => Seen::Size(size),
            false => Seen::Growing,
        });
        if *seen != Seen::Size(size) {
            *seen = Seen::Growing;
        }
        *seen != Seen::Growing && !handle.appends()
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
