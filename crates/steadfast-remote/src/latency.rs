//! [`Latencies`]: a histogram of request durations. A bucket spans a quarter of a power of two, so
//! a percentile is at most a fifth too high.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets for each power of two.
const PARTS: u64 = 4;
/// Buckets in all: the last one is for all times from 70 seconds on.
const BUCKETS: usize = 104;
/// Upper end of the first bucket, as a power of two of nanoseconds: about a microsecond.
const FIRST_BITS: u32 = 10;

/// Counts requests by duration.
#[derive(Debug)]
pub(crate) struct Latencies {
    buckets: [AtomicU64; BUCKETS],
    longest: AtomicU64,
}

/// Durations of requests in microseconds, as shown to users and programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of requests.
    pub count: u64,
    /// Half of the requests took at most this long.
    pub p50_us: u64,
    /// 99 of 100 requests took at most this long.
    pub p99_us: u64,
    /// The longest request.
    pub longest_us: u64,
}

impl Latencies {
    pub(crate) fn new() -> Latencies {
        Latencies { buckets: [const { AtomicU64::new(0) }; BUCKETS], longest: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket_of(nanoseconds)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.longest.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn summary(&self) -> Latency {
        let counts: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let longest = self.longest.load(Ordering::Relaxed);
        let at = |percent: u64| {
            let wanted = (count * percent).div_ceil(100);
            let mut seen = 0;
            let bucket = counts.iter().position(|bucket| {
                seen += bucket;
                seen >= wanted
            });
            bucket.map_or(0, limit_of).min(longest).div_ceil(1000)
        };
        match count {
            0 => Latency::default(),
            _ => Latency {
                count,
                p50_us: at(50),
                p99_us: at(99),
                longest_us: longest.div_ceil(1000),
            },
        }
    }
}

/// The bucket of a duration.
fn bucket_of(nanoseconds: u64) -> usize {
    let first = 1 << FIRST_BITS;
    if nanoseconds < first {
        return 0;
    }
    let bits = nanoseconds.ilog2();
    let part = (nanoseconds >> (bits - PARTS.ilog2())) & (PARTS - 1);
    let bucket = u64::from(bits - FIRST_BITS) * PARTS + part + 1;
    (bucket as usize).min(BUCKETS - 1)
}

/// Upper end of a bucket in nanoseconds, exclusive.
fn limit_of(bucket: usize) -> u64 {
    let first = 1_u64 << FIRST_BITS;
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let (octave, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    (first << octave) + (first << octave) / PARTS * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_below_its_limit_and_not_far() {
        for bits in 0..64 {
            for nanoseconds in [1_u64 << bits, (1 << bits) + (1 << bits) / 3, (1 << bits) - 1] {
                let bucket = bucket_of(nanoseconds);
                assert!(nanoseconds <= limit_of(bucket), "{nanoseconds}");
                if bucket > 0 {
                    assert!(nanoseconds >= limit_of(bucket - 1), "{nanoseconds}");
                }
            }
        }
    }

    #[test]
    fn percentiles() {
        let latencies = Latencies::new();
        assert_eq!(latencies.summary(), Latency::default());
        (0..98).for_each(|_| latencies.note(Duration::from_micros(100)));
        (0..2).for_each(|_| latencies.note(Duration::from_millis(30)));
        let summary = latencies.summary();
        assert!((100..=125).contains(&summary.p50_us), "{summary:?}");
        assert_eq!((summary.count, summary.p99_us, summary.longest_us), (100, 30_000, 30_000));
    }
}
