//! Latencies in buckets with fixed limits. Each power of two has eight buckets, so a quantile is at
//! most an eighth too high.
//!
//! The first bucket ends at 256 ns. The last but one ends at 2^37 ns (137 s), and the last has all
//! longer latencies. A limit belongs to the bucket below it ("less or equal", as in Prometheus).

use std::time::Duration;

/// Sub-buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 3;
/// The first bucket holds everything up to 2 to this power, nanoseconds.
const FIRST_BITS: u32 = 8;
/// The last bucket holds everything above 2 to this power, nanoseconds.
const LAST_BITS: u32 = 37;

/// Number of buckets.
pub const BUCKETS: usize = (((LAST_BITS - FIRST_BITS) << SUB_BITS) + 2) as usize;

/// The bucket that a latency in nanoseconds belongs to.
pub(super) fn bucket_of(nanoseconds: u64) -> usize {
    // Subtract one, because a limit belongs to the bucket below it.
    let value = nanoseconds.saturating_sub(1);
    if value >> FIRST_BITS == 0 {
        return 0;
    }
    let bits = 63 - value.leading_zeros();
    if bits >= LAST_BITS {
        return BUCKETS - 1;
    }
    let sub = (value >> (bits - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (1 + ((bits - FIRST_BITS) << SUB_BITS)) as usize + sub as usize
}

/// The largest latency that belongs to a bucket, nanoseconds; `u64::MAX` for the last.
pub fn bucket_limit(bucket: usize) -> u64 {
    let Some(index) = bucket.checked_sub(1) else { return 1 << FIRST_BITS };
    if bucket >= BUCKETS - 1 {
        return u64::MAX;
    }
    let bits = FIRST_BITS + (index >> SUB_BITS) as u32;
    let sub = (index & ((1 << SUB_BITS) - 1)) as u64 + 1;
    (1 << bits) + (sub << (bits - SUB_BITS))
}

/// Counted latencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Number of latencies in each bucket.
    pub buckets: [u64; BUCKETS],
    /// Sum of all latencies, in nanoseconds.
    pub nanoseconds: u64,
    /// The longest latency, in nanoseconds.
    pub longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [0; BUCKETS], nanoseconds: 0, longest: 0 }
    }
}

impl Histogram {
    pub(crate) fn count_one(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanoseconds)] += 1;
        self.nanoseconds = self.nanoseconds.saturating_add(nanoseconds);
        self.longest = self.longest.max(nanoseconds);
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The latency, in nanoseconds, that this share (0 to 1) does not exceed. It is rounded up to
    /// the limit of its bucket, but never above the longest. `None` if nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let count = self.count();
        // At least one, and the share rounded up.
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().position(|bucket| {
            seen = bucket.saturating_add(seen);
            seen >= rank
        })?;
        Some(bucket_limit(found).min(self.longest))
    }

    /// Number of latencies of at most 2 to the power of `bits` nanoseconds. Exact for powers within
    /// the range of the buckets.
    pub fn at_most(&self, bits: u32) -> u64 {
        let limit = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
        let within = |(bucket, _): &(usize, &u64)| bucket_limit(*bucket) <= limit;
        self.buckets
            .iter()
            .enumerate()
            .take_while(within)
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The latencies counted since `earlier`. Their longest is that of the highest bucket that
    /// grew.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut difference = self.clone();
        for (bucket, before) in difference.buckets.iter_mut().zip(&earlier.buckets) {
            *bucket = bucket.saturating_sub(*before);
        }
        difference.nanoseconds = self.nanoseconds.saturating_sub(earlier.nanoseconds);
        let highest = difference.buckets.iter().rposition(|count| *count > 0);
        difference.longest = highest.map_or(0, |bucket| bucket_limit(bucket).min(self.longest));
        difference
    }

    /// Adds the latencies of `other`.
    pub fn add(&mut self, other: &Histogram) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*more);
        }
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
        self.longest = self.longest.max(other.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(latencies: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for latency in latencies {
            histogram.buckets[bucket_of(*latency)] += 1;
            histogram.nanoseconds = histogram.nanoseconds.saturating_add(*latency);
            histogram.longest = histogram.longest.max(*latency);
        }
        histogram
    }

    #[test]
    fn buckets_follow_each_other_and_hold_their_limits() {
        let mut last = 0;
        for bucket in 0..BUCKETS {
            let limit = bucket_limit(bucket);
            assert!(limit > last);
            assert_eq!(bucket_of(limit), bucket);
            assert_eq!(bucket_of(last + 1), bucket);
            // The relative error is at most an eighth.
            assert!(
                bucket == 0 || bucket == BUCKETS - 1 || (limit - last) * 8 <= limit,
                "{bucket}"
            );
            last = limit;
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(bucket_limit(BUCKETS - 2), 1 << LAST_BITS);
    }

    #[test]
    fn quantiles() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let latencies: Vec<u64> = (1..=10_000).map(|number| number * 1000).collect();
        let histogram = of(&latencies);
        for (share, exact) in
            [(0.5, 5_000_000), (0.99, 9_900_000), (0.999, 9_990_000), (1.0, 10_000_000)]
        {
            let found = histogram.quantile(share).unwrap();
            assert!(found >= exact && found <= exact + exact / 8, "{share}: {found}");
        }
        assert_eq!(of(&[7]).quantile(0.0), Some(7));
        assert_eq!(of(&[u64::MAX / 2]).quantile(0.999), Some(u64::MAX / 2));
    }

    #[test]
    fn cumulative_counts_are_exact_at_powers_of_two() {
        let histogram = of(&[1, 256, 257, 4096, 4097, 1 << 33, (1 << 33) + 1, u64::MAX]);
        assert_eq!(
            [8, 9, 12, 13, 33, 34, 63].map(|bits| histogram.at_most(bits)),
            [2, 3, 4, 5, 6, 7, 7]
        );
        assert_eq!(histogram.at_most(64), 8);
    }

    #[test]
    fn differences() {
        let early = of(&[1000, 1_000_000_000]);
        let mut late = early.clone();
        late.add(&of(&[2000, 5000]));
        let between = late.since(&early);
        assert_eq!((between.count(), between.nanoseconds), (2, 7000));
        assert!((5000..5700).contains(&between.longest), "{}", between.longest);
        assert_eq!(early.since(&late).count(), 0);
    }
}
