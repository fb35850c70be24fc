//! Room for the pages that the kernel holds back.
//!
//! With the write-back cache write(2) only makes pages dirty. The volume hears of them seconds
//! later, which is too late to say that it is full. So the dirty pages of a mount never get far
//! beyond what the volume has room for:
//!
//! - *Far* from full the kernel's limit of dirty pages ([`CacheLimits`](crate::mount::CacheLimits))
//!   is at most a quarter of the room, and is set anew as the room shrinks. A write that meets the
//!   limit waits until pages are written back. Each thread goes beyond it by some MiB, for it looks
//!   only after so many pages (`nr_dirtied_pause`): what is near allows for that.
//! - *Near* full each write(2) asks. Before it makes a page of the cache dirty, the kernel sends
//!   GETATTR with the handle where it has no valid attributes (`fuse_cache_write_iter`). So files
//!   that are open for writing are kept without; that GETATTR is the *admission* of one write, and
//!   what it answers, write(2) returns.
//!
//! An admission is for one `unit` of room, for it does not say how long the write is. Where the
//! units given out would be more than the room, the control thread pulls the files that have some;
//! then the room is known again.
//!
//! The last unit of room is for writes that make no file longer: a full volume can be overwritten.
//! A file that grows there is told ENOSPC. Whether a file grows is seen from its last write, or
//! from how it was opened.
//!
//! What no admission can hold back: one write(2) longer than a unit, and stores into a mapping.
//! Where the volume has no room for those, `filesystem/lost.rs` tells.
//!
//! Invariants:
//! - Near full the kernel has no valid attributes of a file that is open for writing. A
//!   notification in front of an answer makes the kernel drop the attributes in that answer, as
//!   older than the notification. It keeps those of SETATTR, LINK and CREATE in every case: these
//!   are not valid for a moment.
//! - Only the control thread changes the phase.
//!
//! What decides is here, without a kernel or a volume ([`Surroundings`]), so that a model can be
//! put in their place; `filesystem/admitting.rs` joins it to them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use crate::open::Handle;

const MIB: u64 = 1 << 20;
/// The kernel's limit of dirty pages of a mount that root did not make, where it does not say.
const DIRTY_MAX_USUAL: u64 = 64 * MIB;

/// Room at which it is near full, bytes: an eighth of the volume within these bounds. The first has
/// space for the pages of six threads beyond a limit of a quarter, so a volume that is smaller is
/// always near.
const NEAR_MIN: u64 = 32 * MIB;
const NEAR_MAX: u64 = 256 * MIB;

/// The volume, and the kernel's cache above it.
pub(crate) trait Surroundings {
    /// Bytes that the volume has room for, whatever pieces they come in.
    fn room(&self) -> u64;

    /// Brings back what removed files still hold, until there is room for `bytes` or nothing is
    /// left to come back.
    fn make_room(&self, bytes: u64);

    /// Size of a file on the volume, bytes.
    ///
    /// # Errors
    /// There is no such file.
    fn size(&self, nodeid: u64) -> Result<u64, Errno>;

    /// Files that are open for writing.
    fn written(&self) -> Vec<u64>;

    /// Has the kernel ask before the next write to a file.
    fn have_ask(&self, nodeid: u64);

    /// Has the kernel write the dirty pages of a file. What cannot be written is lost, and told
    /// where that is.
    fn pull(&self, nodeid: u64);

    /// The error of a lost write that the caller tells now.
    fn lost(&self, nodeid: u64) -> Option<Errno>;

    /// Sets the kernel's limit of dirty pages, bytes, or takes it away. Whether it could be done.
    fn limit_dirty(&self, bytes: Option<u64>) -> bool;
}

/// What a file that meets the last unit of room has done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It had this size, bytes.
    Size(u64),
    /// It has become longer.
    Growing,
}

/// Units given out near a full volume.
#[derive(Debug, Default)]
struct Units {
    given: u64,
    /// Node ids of files that have some: they may have dirty pages.
    files: HashSet<u64>,
    last: HashMap<u64, Seen>,
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
    /// Whether the kernel caches writes at all.
    write_back: bool,
    /// Near full: each write asks.
    near: AtomicBool,
    /// Near full and all dirty pages have been pulled since: workers may admit.
    settled: AtomicBool,
    /// Room at which it is near full, bytes.
    near_below: AtomicU64,
    unit: u64,
    /// The limit of dirty pages that the kernel had by itself, bytes.
    dirty_max: AtomicU64,
    /// The control thread looks again where the room falls below, or rises above. Bytes.
    look_below: AtomicU64,
    look_above: AtomicU64,
    units: Mutex<Units>,
}

impl Admission {
    /// For a volume of `size` bytes.
    pub(crate) fn new(write_back: bool, size: u64) -> Admission {
        Admission {
            write_back,
            near: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            near_below: AtomicU64::new((size / 8).clamp(NEAR_MIN, NEAR_MAX)),
            // No less than what cp(1) and mv(1) write at a time.
            unit: (size / 64).clamp(MIB / 4, MIB).min(size / 8),
            dirty_max: AtomicU64::new(0),
            look_below: AtomicU64::new(0),
            look_above: AtomicU64::new(u64::MAX),
            units: Mutex::default(),
        }
    }

    /// From now on dirty pages are bounded; [`look`](Self::look) comes next. `dirty_max`: the
    /// kernel's own limit, bytes, where it is known. Whether there is anything to do.
    pub(crate) fn begin(&self, dirty_max: Option<u64>) -> bool {
        self.dirty_max.store(dirty_max.unwrap_or(DIRTY_MAX_USUAL), Ordering::Release);
        self.write_back
    }

    /// Whether each write has to ask.
    pub(crate) fn asks(&self) -> bool {
        self.near.load(Ordering::SeqCst)
    }

    /// Bytes that files cannot grow into.
    pub(crate) fn kept(&self) -> u64 {
        if self.write_back { self.unit } else { 0 }
    }

    /// A file is open for writing no longer.
    pub(crate) fn closed(&self, nodeid: u64) {
        if self.asks() {
            let mut units = self.units();
            units.last.remove(&nodeid);
        }
    }

    /// Whether the control thread has to [`look`](Self::look), now that a write or an open may have
    /// changed the room. One of all that find this is told so.
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

    /// On the control thread: goes from far to near or back, and sets the kernel's limit.
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
            // The kernel keeps to a limit of its own: near is where that many pages would be too
            // many.
            self.near_below.fetch_max(dirty_max.saturating_mul(2), Ordering::AcqRel);
            self.come_near(around);
        }
    }

    /// From here on each write asks. What is dirty already is pulled, so that the room is known.
    fn come_near(&self, around: &impl Surroundings) {
        self.look_at(0, u64::MAX);
        self.near.store(true, Ordering::SeqCst);
        let written = around.written();
        written.iter().for_each(|nodeid| around.have_ask(*nodeid));
        written.iter().for_each(|nodeid| around.pull(*nodeid));
        // The kernel may have had a file that was just being made in hand the first time.
        around.written().iter().for_each(|nodeid| around.have_ask(*nodeid));
        self.settled.store(true, Ordering::SeqCst);
    }

    /// Admits a write to a file, if there is a unit of room; else the control thread has to
    /// [`find_unit`](Self::find_unit).
    pub(crate) fn admit(&self, around: &impl Surroundings, nodeid: u64) -> bool {
        !self.asks() || self.settled.load(Ordering::SeqCst) && self.take(nodeid, around)
    }

    /// On the control thread: finds room for a write by what takes time.
    ///
    /// # Errors
    /// The write is not admitted: ENOSPC, or the error of an earlier one to that file.
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
        // Only now: what is being pulled is in the room no longer, and not yet out of it. Workers
        // may have given more meanwhile.
        {
            let mut units = self.units();
            units.given = units.given.saturating_sub(given);
        }
        around.make_room(self.unit);
        self.look(around);
        if let Some(errno) = around.lost(nodeid) {
            return Err(errno);
        }
        if self.admit(around, nodeid) || self.overwrites(nodeid, handle, around.size(nodeid)?) {
            return Ok(());
        }
        Err(Errno(libc::ENOSPC))
    }

    /// Takes a unit of room, if there is one.
    fn take(&self, nodeid: u64, around: &impl Surroundings) -> bool {
        // The room of the time at which the units are counted.
        let mut units = self.units();
        let room = around.room();
        let taken = units.given.saturating_add(1).saturating_mul(self.unit) <= room;
        if taken {
            units.give(nodeid);
        }
        taken
    }

    /// Whether a write may use the last unit of room: `handle` was opened for a file that is `size`
    /// bytes long now.
    fn overwrites(&self, nodeid: u64, handle: Handle, size: u64) -> bool {
        let mut units = self.units();
        let seen = units.last.entry(nodeid).or_insert(match size > 0 && !handle.starts_empty() {
            true => Seen::Size(size),
            false => Seen::Growing,
        });
        if *seen != Seen::Size(size) {
            *seen = Seen::Growing;
        }
        let overwrites = *seen != Seen::Growing && !handle.appends();
        if overwrites {
            units.give(nodeid);
        }
        overwrites
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
