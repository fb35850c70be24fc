//! Room for the pages that the kernel holds back.
//!
//! With the write-back cache write(2) only makes pages dirty. The volume hears of them seconds later, which is too late to say
//! that it is full. So the dirty pages of a mount never get far beyond what the volume has room for:
//!
//! - *Far* from full the kernel's limit of dirty pages ([`CacheLimits`]) is at most half of the room, and is set anew as the
//!   room shrinks. A write that meets the limit waits until pages are written back.
//! - *Near* full each write(2) asks. Before it makes a page of the cache dirty, the kernel sends GETATTR with the handle where
//!   it has no valid attributes (`fuse_cache_write_iter`). So files that are open for writing are kept without; that GETATTR
//!   is the *admission* of one write, and what it answers, write(2) returns.
//!
//! An admission is for one `unit` of room, for it does not say how long the write is. Where the units given out would be more
//! than the room, the control thread pulls the files that have some; then the room is known again.
//!
//! The last unit of room is for writes that make no file longer: a full volume can be overwritten. A file that grows there is
//! told ENOSPC. Whether a file grows is seen from its last write, or from how it was opened.
//!
//! What no admission can hold back: one write(2) longer than a unit, and stores into a mapping. Where the volume has no room
//! for those, [`lost`](super::lost) tells.
//!
//! Invariants:
//! - Near full the kernel has no valid attributes of a file that is open for writing. A notification in front of an answer
//!   makes the kernel drop the attributes in that answer, as older than the notification. It keeps those of SETATTR and LINK in
//!   every case: there the notification follows, and a write in between is not asked for.
//! - Only the control thread changes the phase.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use steadfast::Platform;
use steadfast::fs::Attributes;
use steadfast_media::Medium;
use zerocopy::IntoBytes;

use super::attributes::attr_out;
use super::{Filesystem, Outcome, ready};
use crate::buffer::AnswerBuffer;
use crate::control::{Job, Ticket};
use crate::errno::Errno;
use crate::mount::CacheLimits;
use crate::open::Handle;
use crate::request::Request;
use crate::service::Later;

const MIB: u64 = 1 << 20;
/// The kernel's limit of dirty pages of a mount that root did not make, where it does not say.
const DIRTY_MAX_USUAL: u64 = 64 * MIB;

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
    /// Files made near full: the kernel knew no attributes that could have been made invalid.
    made: HashSet<u64>,
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
    limits: OnceLock<CacheLimits>,
    /// The limit of dirty pages that the kernel had by itself, bytes.
    dirty_max: AtomicU64,
    /// The control thread looks again where the room falls below, or rises above. Bytes.
    look_below: AtomicU64,
    look_above: AtomicU64,
    units: Mutex<Units>,
}

impl Admission {
    /// For a volume of `size` bytes.
    pub(super) fn new(write_back: bool, size: u64) -> Admission {
        let near_below = (size / 4).clamp(MIB, 16 * MIB);
        Admission {
            write_back,
            near: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            near_below: AtomicU64::new(near_below),
            // No less than what cp(1) and mv(1) write at a time.
            unit: (near_below / 16).max(MIB / 4).min(size / 8),
            limits: OnceLock::new(),
            dirty_max: AtomicU64::new(0),
            look_below: AtomicU64::new(0),
            look_above: AtomicU64::new(u64::MAX),
            units: Mutex::default(),
        }
    }

    /// Whether each write has to ask.
    pub(super) fn asks(&self) -> bool {
        self.near.load(Ordering::SeqCst)
    }

    /// Bytes that files cannot grow into.
    pub(super) fn kept(&self) -> u64 {
        if self.write_back { self.unit } else { 0 }
    }

    /// A file is open for writing no longer.
    pub(super) fn closed(&self, nodeid: u64) {
        if self.asks() {
            let mut units = self.units();
            units.last.remove(&nodeid);
            units.made.remove(&nodeid);
        }
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a unit out of `room`, if there is one.
    fn take(&self, nodeid: u64, room: u64) -> bool {
        let mut units = self.units();
        let taken = units.given.saturating_add(1).saturating_mul(self.unit) <= room;
        if taken {
            units.give(nodeid);
        }
        taken
    }

    /// Whether a write may use the last unit of room: `handle` was opened for a file that is `size` bytes long now.
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
}

impl<M: Medium, P: Platform> Filesystem<M, P> {
    /// From now on dirty pages are bounded. `limits`: where the kernel's limits are, if that is known.
    pub(crate) fn begin_admission(&self, limits: Option<CacheLimits>) {
        let admission = &self.admission;
        if !admission.write_back || self.volume.info().read_only {
            return;
        }
        let dirty_max = limits.as_ref().and_then(CacheLimits::dirty_max).unwrap_or(DIRTY_MAX_USUAL);
        admission.dirty_max.store(dirty_max, Ordering::Release);
        if let Some(limits) = limits {
            // The only one who sets it.
            let _ = admission.limits.set(limits);
        }
        self.send(Job::Room);
    }

    /// Bytes that the volume has room for.
    fn room(&self) -> u64 {
        // Where it cannot say, each write finds out by itself.
        self.volume.available_bytes().unwrap_or(0)
    }

    /// The room may have changed: has the control thread look where that matters.
    pub(super) fn room_changed(&self) {
        let admission = &self.admission;
        let (below, above) =
            (admission.look_below.load(Ordering::Relaxed), admission.look_above.load(Ordering::Relaxed));
        if below == 0 && above == u64::MAX {
            return;
        }
        let room = self.room();
        if room < below || room > above {
            // One look for all that find this.
            admission.look_below.store(0, Ordering::Relaxed);
            admission.look_above.store(u64::MAX, Ordering::Relaxed);
            self.send(Job::Room);
        }
    }

    /// On the control thread: goes from far to near or back, and sets the kernel's limit.
    pub(crate) fn look_at_room(&self) {
        let admission = &self.admission;
        let (room, near_below) = (self.room(), admission.near_below.load(Ordering::Acquire));
        if !admission.asks() {
            if room < near_below {
                self.come_near();
            } else {
                self.limit_dirty_pages(room);
            }
        } else if room > near_below / 4 * 5 {
            admission.settled.store(false, Ordering::SeqCst);
            admission.near.store(false, Ordering::SeqCst);
            *admission.units() = Units::default();
            self.limit_dirty_pages(room);
        }
    }

    fn limit_dirty_pages(&self, room: u64) {
        let admission = &self.admission;
        let dirty_max = admission.dirty_max.load(Ordering::Acquire);
        let limited = match admission.limits.get() {
            Some(limits) if room / 2 >= dirty_max => {
                limits.lift_dirty_max();
                true
            }
            Some(limits) => limits.set_dirty_max(room / 2),
            None => false,
        };
        if !limited && room / 2 < dirty_max {
            // The kernel keeps to a limit of its own: near is where that many pages would be too many.
            let near_below = admission.near_below.load(Ordering::Acquire);
            admission.near_below.store(near_below.max(dirty_max.saturating_mul(2)), Ordering::Release);
            return self.come_near();
        }
        let below = if room / 2 >= dirty_max { dirty_max.saturating_mul(2) } else { room / 8 * 7 };
        admission.look_below.store(below, Ordering::Relaxed);
        let above = if room / 2 >= dirty_max { u64::MAX } else { room.saturating_mul(2) };
        admission.look_above.store(above, Ordering::Relaxed);
    }

    /// From here on each write asks. What is dirty already is pulled, so that the room is known.
    fn come_near(&self) {
        let admission = &self.admission;
        admission.look_below.store(0, Ordering::Relaxed);
        admission.look_above.store(u64::MAX, Ordering::Relaxed);
        admission.near.store(true, Ordering::SeqCst);
        self.have_all_ask();
        // What cannot be written is lost, and told where that is.
        let _ = self.pull_all();
        // The kernel may have had a file that was just being made in hand the first time.
        self.have_all_ask();
        admission.settled.store(true, Ordering::SeqCst);
    }

    fn have_all_ask(&self) {
        for nodeid in self.files.written() {
            self.have_ask(nodeid);
        }
    }

    /// The next write to the file asks. Attributes alone never wait for pages.
    pub(crate) fn have_ask(&self, nodeid: u64) {
        let _ = self.device.invalidate_inode(nodeid, -1);
    }

    /// In front of an answer that has attributes of the file.
    pub(super) fn keep_asking(&self, nodeid: u64) {
        if self.admission.asks() && self.files.is_written(nodeid) {
            self.have_ask(nodeid);
        }
    }

    /// With an answer whose attributes the kernel keeps in every case.
    pub(super) fn ask_again(&self, nodeid: u64) {
        if self.admission.asks() && self.files.is_written(nodeid) {
            self.send(Job::Ask { nodeid });
        }
    }

    /// A file that the answer makes known to the kernel is about to be opened for writing; whether it has to do without
    /// attributes.
    pub(super) fn asks_when_made(&self, nodeid: u64) -> bool {
        let asks = self.admission.asks();
        if asks {
            self.admission.units().made.insert(nodeid);
        }
        asks
    }

    /// GETATTR with a handle that may write.
    pub(super) fn admit(
        &self,
        later: Later<'_>,
        request: &Request<'_>,
        handle: Handle,
        attributes: &Attributes,
        out: &mut AnswerBuffer,
    ) -> Outcome {
        let nodeid = request.header.nodeid;
        if let Some(errno) = self.lost.tell(nodeid) {
            return Err(errno);
        }
        if !self.admission.asks() {
            return ready(out.put(&attr_out(attributes)));
        }
        if self.admission.settled.load(Ordering::SeqCst) && self.admission.take(nodeid, self.room()) {
            self.admitted(nodeid);
            return ready(out.put(&attr_out(attributes)));
        }
        self.defer(Job::Admit { ticket: self.ticket(later, request)?, nodeid, handle })
    }

    /// On the control thread: an admission that takes pulling first.
    pub(crate) fn execute_admission(&self, ticket: Ticket, nodeid: u64, handle: Handle) {
        let result = self.find_unit(nodeid, handle).and_then(|()| {
            self.admitted(nodeid);
            Ok(attr_out(&self.volume.attributes(self.nodes.resolve(nodeid)?)?))
        });
        ticket.answer(result.as_ref().map(|out| out.as_bytes()).map_err(|errno| *errno));
    }

    fn find_unit(&self, nodeid: u64, handle: Handle) -> Result<(), Errno> {
        let admission = &self.admission;
        if !admission.asks() || admission.take(nodeid, self.room()) {
            return Ok(());
        }
        let files = {
            let mut units = admission.units();
            units.given = 0;
            std::mem::take(&mut units.files)
        };
        for file in files {
            // What cannot be written is lost, and told below or by the next call of that file.
            let _ = self.pull(file);
        }
        self.look_at_room();
        if let Some(errno) = self.lost.tell(nodeid) {
            return Err(errno);
        }
        if !admission.asks() || admission.take(nodeid, self.room()) {
            return Ok(());
        }
        let size = self.volume.attributes(self.nodes.resolve(nodeid)?)?.size;
        if admission.overwrites(nodeid, handle, size) { Ok(()) } else { Err(Errno(libc::ENOSPC)) }
    }

    /// The write after this one asks, too.
    fn admitted(&self, nodeid: u64) {
        if self.admission.asks() {
            if self.admission.units().made.remove(&nodeid) {
                // It gets the attributes that can be made invalid, once they are there.
                self.send(Job::Ask { nodeid });
            } else {
                self.have_ask(nodeid);
            }
        }
    }
}
