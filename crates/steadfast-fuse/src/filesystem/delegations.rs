//! [`Delegations`]: what the kernels of a volume may keep of attributes and names.
//!
//! A kernel that has a delegation of an inode may keep its attributes for the time that an answer
//! tells. Of a directory it may keep the names in it as well. Before an operation changes an inode,
//! the delegations of other kernels are recalled, and there are no new ones until it is done.
//!
//! Invariants:
//! - A kernel gets a delegation only of what no other kernel is changing, or has changed for
//!   [`QUIET`]. So a recall, which costs a round trip, comes at most once in that time.
//! - A delegation ends by time, and before the owner's lease. A recall waits for the kernel no
//!   longer than that.
//!
//! The word is that of NFS (RFC 8881, section 10.4). NFS delegates opens; this delegates reading.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast::InodeNumber;

use super::affected::{Affected, CLOSES};
use super::recall::{NODES_MAX, Reach, Recall, Recalled};
use crate::metrics::Metrics;

/// How long no other kernel must have changed an inode.
pub(crate) const QUIET: Duration = Duration::from_millis(500);
/// How long a kernel may keep what an answer tells.
const VALID: Duration = Duration::from_millis(500);
/// Oldest request whose answer is kept, see [`crate::cluster`]. A delegation lasts so much longer
/// than the answer tells.
pub(crate) const LATE: Duration = Duration::from_millis(100);
/// The kernel counts in ticks of up to 10 ms, and rounds up.
const TICKS: Duration = Duration::from_millis(20);
/// How long a node may answer closes, after the request that it is told with.
pub(crate) const CLOSES_VALID: Duration = Duration::from_millis(300);
/// Most inodes that are known. Beyond them there are no new delegations.
const INODES_MAX: usize = 1 << 16;

/// How long this node certainly stays the owner.
pub(crate) type Lasting = Box<dyn Fn() -> Duration + Send + Sync>;

/// What a kernel keeps of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Attributes,
    /// The names in a directory.
    Names,
}

/// The kernels that are changing an inode, and when it was changed last.
#[derive(Debug, Default)]
struct Record {
    /// One entry for each change under way. [`ALL`]: no kernel gets a delegation.
    changing: Vec<u64>,
    /// The kernel that changed it last, and when.
    last: Option<(u64, Instant)>,
    /// When the last one of the others did.
    others: Option<Instant>,
    /// The kernels with a delegation, and its end.
    holders: Vec<(u64, Instant)>,
}

/// Stands for all kernels.
const ALL: u64 = u64::MAX;

struct DelegationTable {
    by_inode: HashMap<InodeNumber, Record>,
    /// An inode without a record may have been changed at this time.
    forgotten: Option<Instant>,
    /// While it is not 0, there are no new delegations.
    stopped: usize,
}

/// See the module.
pub(crate) struct Delegations {
    table: Mutex<DelegationTable>,
    lasting: Lasting,
    metrics: Arc<Metrics>,
}

/// An operation that changes inodes. No other kernel has a delegation of them while it lives.
pub(crate) struct Change<'a> {
    delegations: &'a Delegations,
    kernel: u64,
    /// As in [`Record::changing`].
    mark: u64,
    inodes: Vec<InodeNumber>,
    /// What the same operation changes, too.
    and: Option<Box<Self>>,
}

/// There are no delegations while it lives.
pub(crate) struct Stop<'a>(&'a Delegations);

/// What a kernel has to be told: its inodes with a delegation, and the end of the last one.
#[derive(Debug, Default)]
struct Notice {
    inodes: Vec<InodeNumber>,
    until: Option<Instant>,
}

impl Delegations {
    pub(crate) fn new(lasting: Lasting, metrics: Arc<Metrics>) -> Delegations {
        Delegations { table: Mutex::new(DelegationTable::new(Instant::now())), lasting, metrics }
    }

    /// How long a kernel may keep what an answer tells of an inode, if it may. `asked`: when the
    /// operation began that has read it.
    pub(crate) fn grant(
        &self,
        kernel: u64,
        inode: InodeNumber,
        asked: Instant,
        what: What,
    ) -> Option<Duration> {
        let valid = VALID.min((self.lasting)().saturating_sub(LATE + TICKS));
        if valid.is_zero() {
            return None;
        }
        let granted = self.table().grant(kernel, inode, (asked, what), Instant::now(), valid);
        self.metrics.share(|sharing| &sharing.delegated, granted.into());
        granted.then_some(valid)
    }

    /// Whether the node of a kernel may answer closes for [`CLOSES_VALID`]. `asked`: from before
    /// the mask was read.
    pub(super) fn grant_closes(&self, kernel: u64, asked: Instant) -> bool {
        // As for attributes: no change of the mask is under way, or was done since.
        (self.lasting)() >= CLOSES_VALID + LATE + TICKS
            && self.table().grant(
                kernel,
                CLOSES,
                (asked, What::Attributes),
                Instant::now(),
                CLOSES_VALID,
            )
    }

    /// Whether no other kernel is changing an inode, or has changed it in the last time before
    /// `asked`.
    pub(super) fn is_quiet(&self, kernel: u64, inode: InodeNumber, asked: Instant) -> bool {
        let table = self.table();
        match table.by_inode.get(&inode) {
            Some(record) => record.is_quiet_for(kernel, asked, What::Names),
            None => table.forgotten.is_none_or(|time| time + QUIET <= asked),
        }
    }

    /// Begins a change by a kernel: recalls the delegations of the others, and its own if they must
    /// go, too.
    pub(super) fn change(&self, kernel: u64, affected: Affected, reach: Reach<'_>) -> Change<'_> {
        let Affected { inodes, names, own } = affected;
        let mark = if own { ALL } else { kernel };
        let notices = self.table().begin(mark, &inodes, Instant::now());
        let change = Change { delegations: self, kernel, mark, inodes, and: None };
        if !notices.is_empty() {
            self.tell(&notices, names, reach);
            self.table().recalled(mark, &change.inodes);
        }
        change
    }

    /// Recalls all delegations. There are no new ones until the result is dropped.
    pub(crate) fn stop(&self, reach: Reach<'_>) -> Stop<'_> {
        let notices = self.table().stop(Instant::now());
        if !notices.is_empty() {
            self.tell(&notices, true, reach);
            self.table().stopped();
        }
        Stop(self)
    }

    /// Takes back one kernel's delegation of an inode.
    pub(crate) fn take_back(&self, kernel: u64, inode: InodeNumber, reach: Reach<'_>) {
        let now = Instant::now();
        let held = self.table().by_inode.get(&inode).and_then(|record| {
            record.holders.iter().find(|(holder, until)| *holder == kernel && *until > now).copied()
        });
        if let Some((_, until)) = held {
            let notice = Notice { inodes: vec![inode], until: Some(until) };
            self.tell(&HashMap::from([(kernel, notice)]), false, reach);
        }
    }

    /// Tells all kernels at once, and waits until each has dropped what it had, or has it no more.
    fn tell(&self, notices: &HashMap<u64, Notice>, names: bool, reach: Reach<'_>) {
        let recall = Arc::new(Recall::default());
        let what = if names { Recalled::Names } else { Recalled::Attributes };
        self.metrics.share(|sharing| &sharing.recalls, notices.len() as u64);
        for (kernel, notice) in notices {
            for inodes in notice.inodes.chunks(NODES_MAX) {
                reach(*kernel, inodes, what, recall.begin());
            }
        }
        if let Some(until) = notices.values().filter_map(|notice| notice.until).max() {
            let silent = recall.wait(until);
            self.metrics.share(|sharing| &sharing.silent, silent as u64);
        }
    }

    fn table(&self) -> MutexGuard<'_, DelegationTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change<'_> {
    /// Whether it includes an inode.
    pub(super) fn has(&self, inode: InodeNumber) -> bool {
        self.inodes.contains(&inode) || self.and.as_ref().is_some_and(|and| and.has(inode))
    }

    /// This one and another one.
    pub(super) fn and(self, other: Self) -> Self {
        let mut other = other;
        other.and = Some(Box::new(self));
        other
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.delegations.table().end(self.kernel, self.mark, &self.inodes, Instant::now());
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.table().go_on(Instant::now());
    }
}

impl Notice {
    fn add(&mut self, inode: InodeNumber, until: Instant) {
        self.inodes.push(inode);
        self.until = self.until.max(Some(until));
    }
}

impl DelegationTable {
    fn new(now: Instant) -> DelegationTable {
        // An earlier owner may just have changed any inode.
        DelegationTable { by_inode: HashMap::new(), forgotten: Some(now), stopped: 0 }
    }

    /// Whether a kernel may keep for `valid` what was read of an inode since `asked`.
    fn grant(
        &mut self,
        kernel: u64,
        inode: InodeNumber,
        (asked, what): (Instant, What),
        now: Instant,
        valid: Duration,
    ) -> bool {
        if self.stopped > 0 || asked + LATE < now {
            return false;
        }
        if self.by_inode.len() >= INODES_MAX && !self.by_inode.contains_key(&inode) {
            self.prune(now);
            if self.by_inode.len() >= INODES_MAX {
                return false;
            }
        }
        let record = self.record(inode);
        if !record.is_quiet_for(kernel, asked, what) {
            return false;
        }
        let until = now + valid + LATE + TICKS;
        match record.holders.iter_mut().find(|(holder, _)| *holder == kernel) {
            Some((_, end)) => *end = until.max(*end),
            None => record.holders.push((kernel, until)),
        }
        true
    }

    fn record(&mut self, inode: InodeNumber) -> &mut Record {
        let last = self.forgotten.map(|time| (ALL, time));
        self.by_inode.entry(inode).or_insert_with(|| Record { last, ..Record::default() })
    }

    /// Begins a change. Returns what other kernels have to be told before it happens.
    fn begin(&mut self, mark: u64, inodes: &[InodeNumber], now: Instant) -> HashMap<u64, Notice> {
        if self.by_inode.len() >= INODES_MAX {
            self.prune(now);
        }
        let mut notices: HashMap<u64, Notice> = HashMap::new();
        for inode in inodes {
            let record = self.record(*inode);
            record.changing.push(mark);
            // They stay until the recall is done: another change has to wait for it, too.
            for (holder, until) in &record.holders {
                if *holder != mark && *until > now {
                    notices.entry(*holder).or_default().add(*inode, *until);
                }
            }
        }
        notices
    }

    /// What [`begin`](Self::begin) asked for is done.
    fn recalled(&mut self, mark: u64, inodes: &[InodeNumber]) {
        for inode in inodes {
            if let Some(record) = self.by_inode.get_mut(inode) {
                record.holders.retain(|(holder, _)| *holder == mark);
            }
        }
    }

    /// Ends a change.
    fn end(&mut self, kernel: u64, mark: u64, inodes: &[InodeNumber], now: Instant) {
        for inode in inodes {
            if let Some(record) = self.by_inode.get_mut(inode) {
                record.changed(kernel, mark, now);
            }
        }
    }

    /// Ends all delegations. Returns what the kernels have to be told.
    fn stop(&mut self, now: Instant) -> HashMap<u64, Notice> {
        self.stopped += 1;
        let mut notices: HashMap<u64, Notice> = HashMap::new();
        for (inode, record) in &self.by_inode {
            for (holder, until) in record.holders.iter().filter(|(_, until)| *until > now) {
                notices.entry(*holder).or_default().add(*inode, *until);
            }
        }
        notices
    }

    /// What [`stop`](Self::stop) asked for is done.
    fn stopped(&mut self) {
        self.by_inode.values_mut().for_each(|record| record.holders.clear());
    }

    /// Allows delegations again.
    fn go_on(&mut self, now: Instant) {
        self.stopped -= 1;
        self.forgotten = Some(now);
        for record in self.by_inode.values_mut() {
            record.others = Some(now);
            record.last = Some((ALL, now));
        }
    }

    /// Drops the records that say nothing any more.
    fn prune(&mut self, now: Instant) {
        let old = |time: Option<Instant>| time.is_none_or(|time| time + QUIET <= now);
        self.by_inode.retain(|_, record| {
            record.holders.retain(|(_, until)| *until > now);
            !record.changing.is_empty()
                || !record.holders.is_empty()
                || !old(record.last.map(|(_, time)| time))
        });
        if self.by_inode.len() >= INODES_MAX {
            // Too many changes to remember: all other inodes count as changed, too.
            self.by_inode
                .retain(|_, record| !record.changing.is_empty() || !record.holders.is_empty());
            self.forgotten = Some(now);
        }
    }
}

impl Record {
    /// Whether no other kernel is changing the inode, or has changed it in the last time before
    /// `asked`. A kernel knows the names that it changes itself; what it has read of attributes may
    /// be from before its own change.
    fn is_quiet_for(&self, kernel: u64, asked: Instant, what: What) -> bool {
        if what == What::Attributes
            && (!self.changing.is_empty() || self.last.is_some_and(|(_, time)| time > asked))
        {
            return false;
        }
        let others = match self.last {
            Some((last, _)) if last == kernel => self.others,
            Some((_, time)) => Some(time),
            None => None,
        };
        self.changing.iter().all(|changing| *changing == kernel)
            && others.is_none_or(|time| time + QUIET <= asked)
    }

    fn changed(&mut self, kernel: u64, mark: u64, now: Instant) {
        if let Some(at) = self.changing.iter().position(|changing| *changing == mark) {
            self.changing.swap_remove(at);
        }
        if let Some((last, time)) = self.last
            && last != kernel
        {
            self.others = Some(time);
        }
        self.last = Some((kernel, now));
    }
}

#[cfg(test)]
#[path = "delegations_tests.rs"]
mod tests;
