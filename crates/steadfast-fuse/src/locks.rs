//! Locks of files across all kernels of one volume: flock, and locks of ranges by fcntl. The latter
//! belong to a process or to an open file description.
//!
//! A kernel that hands its locks to the daemon keeps no record of them. It names an *owner*, which
//! is a process or an open file description, and sends FLUSH at each close and RELEASE at the last
//! one. An unlock ends a lock, and so does a FLUSH of its owner (fcntl). The RELEASE of the open
//! file through which it was taken ends it, too. The end of a kernel ends all of its locks.
//!
//! Invariants: locks of different owners overlap only if both are shared. flock and fcntl do not
//! see each other, as on Linux. A request waits only while a lock conflicts with it; each release
//! looks at the waiting requests in the order of their arrival. An fcntl lock that would close a
//! circle of waiting owners is refused with EDEADLK.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errno::Errno;
use crate::jobs::Ticket;

/// Most requests that are remembered as interrupted before they wait. They are few: the signal has
/// overtaken the request.
const INTERRUPTED_MAX: usize = 1024;

/// Holds a lock: a kernel, and the number by which it knows a process or open file description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) kernel: u64,
    pub(crate) number: u64,
}

/// A lock, held or wanted. `end` is the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) owner: Owner,
    pub(crate) flock: bool,
    pub(crate) exclusive: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) process: u32,
    /// Number of the open file through which it was taken.
    pub(crate) handle: u64,
}

impl Lock {
    fn is_of(&self, other: &Lock) -> bool {
        self.owner == other.owner && self.flock == other.flock
    }

    fn overlaps(&self, other: &Lock) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn conflicts(&self, other: &Lock) -> bool {
        self.flock == other.flock
            && self.owner != other.owner
            && self.overlaps(other)
            && (self.exclusive || other.exclusive)
    }
}

/// A request that waits. Without a ticket (in tests) nothing is answered.
struct Waiting {
    wanted: Lock,
    unique: u64,
    ticket: Option<Ticket>,
}

/// The locks that are held of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeldLocks(Vec<Lock>);

impl HeldLocks {
    /// All of them.
    pub(crate) fn all(&self) -> &[Lock] {
        &self.0
    }

    fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        self.0.iter().find(|held| held.conflicts(wanted)).copied()
    }

    /// Cuts the range out of what the owner holds.
    pub(crate) fn cut(&mut self, range: &Lock) {
        let mut rests = Vec::new();
        self.0.retain(|held| {
            if !held.is_of(range) || !held.overlaps(range) {
                return true;
            }
            if held.start < range.start {
                rests.push(Lock { end: range.start - 1, ..*held });
            }
            if held.end > range.end {
                rests.push(Lock { start: range.end + 1, ..*held });
            }
            false
        });
        self.0.append(&mut rests);
    }

    /// Stores a lock in place of what its owner held there. Conflicts are the caller's.
    pub(crate) fn hold(&mut self, mut wanted: Lock) {
        self.cut(&wanted);
        // One lock for neighbouring ranges of one kind, as long as one close ends both.
        self.0.retain(|held| {
            let joins = held.is_of(&wanted)
                && held.exclusive == wanted.exclusive
                && held.handle == wanted.handle
                && (held.end.checked_add(1) == Some(wanted.start)
                    || wanted.end.checked_add(1) == Some(held.start));
            if joins {
                wanted.start = wanted.start.min(held.start);
                wanted.end = wanted.end.max(held.end);
            }
            !joins
        });
        self.0.push(wanted);
    }

    /// Adds a lock that was held before, beside the others.
    pub(crate) fn restore(&mut self, held: Lock) {
        self.0.push(held);
    }

    /// Ends the fcntl locks of an owner that closes a descriptor of the file.
    pub(crate) fn closed(&mut self, owner: Owner) {
        self.0.retain(|held| held.owner != owner || held.flock);
    }

    /// Ends the locks that a kernel took through an open file.
    pub(crate) fn released(&mut self, kernel: u64, handle: u64) {
        self.0.retain(|held| held.owner.kernel != kernel || held.handle != handle);
    }
}

#[derive(Default)]
struct LockedFile {
    held: HeldLocks,
    waiting: VecDeque<Waiting>,
}

impl LockedFile {
    /// Grants what waits and conflicts with nothing any more.
    fn grant(&mut self, granted: &mut Vec<Waiting>) {
        let mut still = VecDeque::new();
        while let Some(waiting) = self.waiting.pop_front() {
            if self.held.conflict(&waiting.wanted).is_some() {
                still.push_back(waiting);
            } else {
                self.held.hold(waiting.wanted);
                granted.push(waiting);
            }
        }
        self.waiting = still;
    }

    fn is_empty(&self) -> bool {
        self.held.0.is_empty() && self.waiting.is_empty()
    }
}

#[derive(Default)]
struct LockTable {
    files: HashMap<u64, LockedFile>,
    /// Requests, by kernel and number, that a signal has ended before they began to wait.
    interrupted: HashSet<(u64, u64)>,
}

impl LockTable {
    /// Whether the holders of what blocks `wanted` wait for its owner, directly or through others.
    fn is_deadlock(&self, inode: u64, wanted: &Lock) -> bool {
        let mut blocked = vec![(inode, *wanted)];
        let mut seen = HashSet::new();
        while let Some((inode, lock)) = blocked.pop() {
            let Some(file) = self.files.get(&inode) else { continue };
            for holder in file.held.0.iter().filter(|held| held.conflicts(&lock)) {
                if holder.owner == wanted.owner {
                    return true;
                }
                if seen.insert(holder.owner) {
                    blocked.extend(self.waits_of(holder.owner));
                }
            }
        }
        false
    }

    fn waits_of(&self, owner: Owner) -> Vec<(u64, Lock)> {
        let of_file = |(inode, file): (&u64, &LockedFile)| -> Vec<(u64, Lock)> {
            let own = file.waiting.iter().map(|waiting| waiting.wanted);
            own.filter(|wanted| wanted.owner == owner && !wanted.flock)
                .map(|wanted| (*inode, wanted))
                .collect()
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// Changes what is held of one file by `end`, and grants what waited for it.
    fn release(
        &mut self,
        inode: u64,
        end: impl FnOnce(&mut HeldLocks),
        granted: &mut Vec<Waiting>,
    ) {
        let Some(file) = self.files.get_mut(&inode) else { return };
        end(&mut file.held);
        file.grant(granted);
        if file.is_empty() {
            self.files.remove(&inode);
        }
    }
}

/// The number of a request that may wait, and what makes its ticket.
type Wait<'a> = (u64, &'a dyn Fn() -> Result<Option<Ticket>, Errno>);

/// Result of a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Now,
    Later,
}

/// All locks of a volume.
#[derive(Default)]
pub(crate) struct Locks(Mutex<LockTable>);

impl Locks {
    fn table(&self) -> MutexGuard<'_, LockTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lock that conflicts with `wanted`.
    pub(crate) fn conflict(&self, inode: u64, wanted: &Lock) -> Option<Lock> {
        self.table().files.get(&inode)?.held.conflict(wanted)
    }

    /// Takes a lock. If another one conflicts, `wait` gives the number of the request and its
    /// ticket, which is answered when the lock is taken.
    ///
    /// # Errors
    /// EAGAIN: a lock conflicts, and there is no `wait`. EDEADLK; EINTR; those of the ticket.
    pub(crate) fn take(
        &self,
        inode: u64,
        wanted: Lock,
        wait: Option<Wait<'_>>,
    ) -> Result<Taken, Errno> {
        let mut granted = Vec::new();
        let result = self.take_or_wait(inode, wanted, wait, &mut granted);
        answer(granted, Ok(()));
        result
    }

    fn take_or_wait(
        &self,
        inode: u64,
        wanted: Lock,
        wait: Option<Wait<'_>>,
        granted: &mut Vec<Waiting>,
    ) -> Result<Taken, Errno> {
        let mut table = self.table();
        let file = table.files.entry(inode).or_default();
        if wanted.flock {
            // As on Linux a conversion first gives up what is held. So two of them at once do not
            // wait for each other for ever.
            let same = |held: &&Lock| held.is_of(&wanted) && held.exclusive == wanted.exclusive;
            if !file.held.0.iter().any(|held| same(&held)) {
                file.held.cut(&wanted);
                file.grant(granted);
            }
        }
        if file.held.conflict(&wanted).is_none() {
            file.held.hold(wanted);
            // A weaker lock than before may let others in.
            file.grant(granted);
            return Ok(Taken::Now);
        }
        let result = match wait {
            None => Err(Errno(libc::EAGAIN)),
            Some(_) if !wanted.flock && table.is_deadlock(inode, &wanted) => {
                Err(Errno(libc::EDEADLK))
            }
            Some((unique, _)) if table.interrupted.remove(&(wanted.owner.kernel, unique)) => {
                Err(Errno(libc::EINTR))
            }
            Some((unique, ticket)) => ticket().map(|ticket| {
                let file = table.files.entry(inode).or_default();
                file.waiting.push_back(Waiting { wanted, unique, ticket });
                Taken::Later
            }),
        };
        table.files.retain(|_, file| !file.is_empty());
        result
    }

    /// Gives up a range.
    pub(crate) fn give_up(&self, inode: u64, range: &Lock) {
        self.release(inode, |held| held.cut(range));
    }

    /// Gives a kernel back what it held at an earlier owner of the volume. No other kernel has
    /// asked for a lock yet.
    pub(crate) fn restore(&self, inode: u64, held: Lock) {
        self.table().files.entry(inode).or_default().held.restore(held);
    }

    /// An owner closes a descriptor of a file: its fcntl locks there end.
    pub(crate) fn closed(&self, inode: u64, owner: Owner) {
        self.release(inode, |held| held.closed(owner));
    }

    /// The last descriptor of an open file is closed: the locks taken through it end.
    pub(crate) fn released(&self, inode: u64, kernel: u64, handle: u64) {
        self.release(inode, |held| held.released(kernel, handle));
    }

    fn release(&self, inode: u64, end: impl FnOnce(&mut HeldLocks)) {
        let mut granted = Vec::new();
        self.table().release(inode, end, &mut granted);
        answer(granted, Ok(()));
    }

    /// A signal ends a request of a kernel that waits, or will.
    pub(crate) fn interrupt(&self, kernel: u64, unique: u64) {
        let is_it =
            |waiting: &Waiting| waiting.wanted.owner.kernel == kernel && waiting.unique == unique;
        let found = self.take_waiting(is_it);
        if found.is_empty() {
            let mut table = self.table();
            if table.interrupted.len() >= INTERRUPTED_MAX {
                table.interrupted.clear();
            }
            table.interrupted.insert((kernel, unique));
        }
        answer(found, Err(Errno(libc::EINTR)));
    }

    /// A kernel is gone.
    pub(crate) fn leave(&self, kernel: u64) {
        let gone = self.take_waiting(|waiting| waiting.wanted.owner.kernel == kernel);
        let mut granted = Vec::new();
        {
            let mut table = self.table();
            table.interrupted.retain(|(of, _)| *of != kernel);
            let inodes: Vec<u64> = table.files.keys().copied().collect();
            for inode in inodes {
                let end = |held: &mut HeldLocks| {
                    held.0.retain(|held| held.owner.kernel != kernel);
                };
                table.release(inode, end, &mut granted);
            }
        }
        answer(granted, Ok(()));
        answer(gone, Err(Errno(libc::ENOTCONN)));
    }

    /// A rollback has made all open files stale.
    pub(crate) fn drop_all(&self) {
        let stale = self.take_waiting(|_| true);
        self.table().files.clear();
        answer(stale, Err(Errno(libc::ESTALE)));
    }

    fn take_waiting(&self, wanted: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut taken = Vec::new();
        let mut table = self.table();
        for file in table.files.values_mut() {
            let (out, stay) = file.waiting.drain(..).partition(&wanted);
            file.waiting = stay;
            taken.extend::<VecDeque<Waiting>>(out);
        }
        table.files.retain(|_, file| !file.is_empty());
        taken
    }
}

/// Without the table's lock: an answer may have to wait for the network.
fn answer(waiting: Vec<Waiting>, result: Result<(), Errno>) {
    for ticket in waiting.into_iter().filter_map(|waiting| waiting.ticket) {
        ticket.answer(result.map(|()| &[][..]));
    }
}

#[cfg(test)]
#[path = "locks_tests.rs"]
mod tests;
