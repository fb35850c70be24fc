//! Counts the requests of a medium with relaxed atomics: a few nanoseconds beside a system call.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_media::{MediumCounters, MediumError};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    failures: AtomicU64,
}

type Outcome = Result<(), MediumError>;

impl Tally {
    pub(super) fn read(&self, length: u64, result: Outcome) -> Outcome {
        self.add(&self.reads, Some((&self.read_bytes, length)), result)
    }

    pub(super) fn write(&self, length: u64, result: Outcome) -> Outcome {
        self.add(&self.writes, Some((&self.written_bytes, length)), result)
    }

    pub(super) fn flush(&self, result: Outcome) -> Outcome {
        self.add(&self.flushes, None, result)
    }

    pub(super) fn discard(&self, result: Outcome) -> Outcome {
        self.add(&self.discards, None, result)
    }

    fn add(&self, count: &AtomicU64, bytes: Option<(&AtomicU64, u64)>, result: Outcome) -> Outcome {
        if result.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
            if let Some((bytes, length)) = bytes {
                bytes.fetch_add(length, Ordering::Relaxed);
            }
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn counters(&self) -> MediumCounters {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MediumCounters {
            reads: value(&self.reads),
            read_bytes: value(&self.read_bytes),
            writes: value(&self.writes),
            written_bytes: value(&self.written_bytes),
            flushes: value(&self.flushes),
            discards: value(&self.discards),
            failures: value(&self.failures),
        }
    }
}
