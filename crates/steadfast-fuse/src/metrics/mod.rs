//! Counters of a mount: number, latency and errors of each kind of request.
//!
//! Every thread adds to a shard of its own with relaxed atomics, so that threads do not contend for
//! cache lines. A reader adds up the shards. The counts in one reading may differ by an operation
//! from each other; no count is ever lost.
//!
//! The time of a request runs from its receipt by the daemon until its answer is ready. It is
//! counted before the caller gets the answer. The kernel's answers from its caches are not requests
//! and are not counted.

mod histogram;
mod kind;
mod sharing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use histogram::{BUCKETS, Histogram, bucket_limit};
pub use kind::Kind;
pub use sharing::Sharing;
pub(crate) use sharing::SharingCounters;

use crate::errno::Errno;

/// Largest number of shards; more threads share them.
const SHARDS_MAX: usize = 8;

/// Counters of one kind in one shard.
#[derive(Debug)]
struct KindCounters {
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for KindCounters {
    fn default() -> KindCounters {
        KindCounters {
            errors: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    kinds: [KindCounters; Kind::COUNT],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Counters of all operations of one kind since the mount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operations {
    /// Their latencies. [`Histogram::count`] is their number.
    pub latency: Histogram,
    /// Number of answers with an error of the volume or the medium (EIO, ENOSPC, EROFS, ENOMEM,
    /// EBUSY, ESTALE). Ordinary errors such as "no such file" do not count.
    pub errors: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Metrics {
    shards: Box<[Shard]>,
    since: Instant,
    /// Of a volume with several kernels.
    pub(crate) sharing: Option<SharingCounters>,
}

impl Metrics {
    /// Creates the counters for a mount with this many threads.
    pub(crate) fn new(threads: usize) -> Metrics {
        let shards = (0..threads.clamp(1, SHARDS_MAX)).map(|_| Shard::default()).collect();
        Metrics { shards, since: Instant::now(), sharing: None }
    }

    /// The same for a volume that nodes share, in this term of its owner.
    pub(crate) fn shared(threads: usize, epoch: u64) -> Metrics {
        let sharing = Some(SharingCounters { epoch, ..SharingCounters::default() });
        Metrics { sharing, ..Metrics::new(threads) }
    }

    /// What nodes do with a volume that they share.
    pub fn sharing(&self) -> Option<Sharing> {
        self.sharing.as_ref().map(SharingCounters::read)
    }

    /// Counts for a volume that nodes share.
    pub(crate) fn share(&self, counter: impl FnOnce(&SharingCounters) -> &AtomicU64, more: u64) {
        if let Some(sharing) = &self.sharing {
            counter(sharing).fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Time since the mount.
    pub fn uptime(&self) -> Duration {
        self.since.elapsed()
    }

    /// All counters of one kind.
    pub fn operations(&self, kind: Kind) -> Operations {
        let mut sum = Operations::default();
        for shard in &self.shards {
            let slot = &shard.kinds[kind as usize];
            sum.errors += slot.errors.load(Ordering::Relaxed);
            sum.latency.nanoseconds += slot.nanoseconds.load(Ordering::Relaxed);
            sum.latency.longest = sum.latency.longest.max(slot.longest.load(Ordering::Relaxed));
            for (sum, bucket) in sum.latency.buckets.iter_mut().zip(&slot.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
        }
        sum
    }

    /// Bytes read and bytes written through the mount, by programs or by the kernel for them.
    pub fn bytes(&self) -> (u64, u64) {
        self.shards.iter().fold((0, 0), |(read, written), shard| {
            let (r, w) = (&shard.read_bytes, &shard.written_bytes);
            (read + r.load(Ordering::Relaxed), written + w.load(Ordering::Relaxed))
        })
    }

    fn shard(&self) -> &Shard {
        &self.shards[thread_number() % self.shards.len()]
    }

    pub(crate) fn add_bytes(&self, kind: Kind, bytes: usize) {
        let shard = self.shard();
        let counter = if kind == Kind::Write { &shard.written_bytes } else { &shard.read_bytes };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, kind: Kind, taken: Duration, error: Option<Errno>) {
        let slot = &self.shard().kinds[kind as usize];
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        slot.buckets[histogram::bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        slot.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if nanoseconds > slot.longest.load(Ordering::Relaxed) {
            slot.longest.fetch_max(nanoseconds, Ordering::Relaxed);
        }
        if error.is_some_and(is_failure) {
            slot.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A small number for each calling thread.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

fn is_failure(error: Errno) -> bool {
    matches!(
        error.0,
        libc::EIO | libc::ENOSPC | libc::EROFS | libc::ENOMEM | libc::EBUSY | libc::ESTALE
    )
}

/// A timed request. The value travels with the request to the thread that answers it.
#[derive(Debug)]
pub(crate) struct Timing {
    metrics: Arc<Metrics>,
    kind: Kind,
    start: Instant,
}

impl Timing {
    pub(crate) fn start(metrics: &Arc<Metrics>, kind: Kind) -> Timing {
        Timing { metrics: metrics.clone(), kind, start: Instant::now() }
    }

    /// Ends the timing: the request has been answered.
    pub(crate) fn end(self, error: Option<Errno>) {
        self.metrics.add(self.kind, self.start.elapsed(), error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_add_up_and_failures_are_told_from_answers() {
        let metrics = Arc::new(Metrics::new(3));
        std::thread::scope(|scope| {
            for thread in 0..5u64 {
                let metrics = &metrics;
                scope.spawn(move || {
                    for round in 0..1000 {
                        let error =
                            [None, Some(Errno(libc::ENOENT)), Some(Errno(libc::EIO))][round % 3];
                        metrics.add(Kind::Read, Duration::from_nanos(1000 + thread), error);
                    }
                    metrics.add_bytes(Kind::Read, 10);
                    metrics.add_bytes(Kind::Write, 1);
                });
            }
        });
        let read = metrics.operations(Kind::Read);
        assert_eq!(read.latency.count(), 5000);
        assert_eq!(read.latency.nanoseconds, 5000 * 1000 + (1 + 2 + 3 + 4) * 1000);
        assert_eq!(read.latency.longest, 1004);
        assert_eq!(read.errors, 5 * 333);
        assert_eq!(metrics.operations(Kind::Write), Operations::default());
        assert_eq!(metrics.bytes(), (50, 5));
    }
}
