//! Times of single operations, in buckets of bounded relative width.
//!
//! The histogram is written here, because it must be merged with those in the result of a stopped
//! run. The buckets in the file are the same buckets.

use std::time::Duration;

use crate::result::{Bucket, Latency};

/// Buckets per doubling; the width of a bucket is at most 1/16.
const PARTS: u32 = 16;
const PARTS_SHIFT: u32 = 4;

/// A histogram of times, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    least: u64,
    most: u64,
}

impl Histogram {
    /// Adds one time.
    pub fn add(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.add_many(nanoseconds, 1);
        self.least = if self.count == 1 { nanoseconds } else { self.least.min(nanoseconds) };
        self.most = self.most.max(nanoseconds);
        self.sum += nanoseconds as f64;
    }

    fn add_many(&mut self, nanoseconds: u64, count: u64) {
        let index = bucket(nanoseconds);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        if let Some(slot) = self.counts.get_mut(index) {
            *slot += count;
        }
        self.count += count;
    }

    /// The number of times in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds the contents of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.sum += other.sum;
        self.count += other.count;
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        for (slot, count) in self.counts.iter_mut().zip(&other.counts) {
            *slot += count;
        }
    }

    /// The histogram in a result, to be continued.
    pub fn from_result(latency: &Latency) -> Histogram {
        let mut histogram = Histogram::default();
        for bucket in &latency.buckets {
            histogram.add_many(nanoseconds(bucket.upper), bucket.count);
        }
        histogram.count = latency.count;
        histogram.sum = latency.mean * latency.count as f64 * 1e9;
        histogram.least = nanoseconds(latency.least);
        histogram.most = nanoseconds(latency.most);
        histogram
    }

    /// The form for the result; `None` if the histogram is empty.
    pub fn to_result(&self) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        let mut buckets = Vec::new();
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            buckets.push(Bucket { upper: seconds(upper(index)), count: *count });
        }
        Some(Latency {
            count: self.count,
            mean: self.sum / self.count as f64 / 1e9,
            least: seconds(self.least),
            p50: self.percentile(0.5),
            p90: self.percentile(0.9),
            p99: self.percentile(0.99),
            p999: self.percentile(0.999),
            most: seconds(self.most),
            buckets,
        })
    }

    /// The upper end of the bucket below which this share lies, limited to the longest time;
    /// seconds.
    fn percentile(&self, share: f64) -> f64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return seconds(upper(index).min(self.most));
            }
        }
        seconds(self.most)
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The bucket of a time: one for each value below 16 ns, then 16 for each doubling.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < u64::from(PARTS) {
        return nanoseconds as usize;
    }
    let exponent = 63 - nanoseconds.leading_zeros();
    let part = (nanoseconds >> (exponent - PARTS_SHIFT)) as u32 & (PARTS - 1);
    ((exponent - PARTS_SHIFT + 1) * PARTS + part) as usize
}

/// The longest time in a bucket.
fn upper(index: usize) -> u64 {
    let (index, parts) = (index as u64, u64::from(PARTS));
    if index < parts {
        return index;
    }
    let shift = index / parts - 1;
    let part = index % parts + parts;
    // The last bucket ends at the largest number.
    let end = u128::from(part + 1) << shift;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_everything_and_are_narrow() {
        let mut last = None;
        for index in 0..bucket(u64::MAX) {
            let end = upper(index);
            assert_eq!(bucket(end), index);
            assert_eq!(bucket(end + 1), index + 1);
            if let Some(last) = last.filter(|last| *last > 16) {
                assert!((end - last) as f64 / last as f64 <= 0.07);
            }
            last = Some(end);
        }
        assert_eq!(upper(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_of_known_times() {
        let mut histogram = Histogram::default();
        for microseconds in 1..=1000 {
            histogram.add(Duration::from_micros(microseconds));
        }
        let found = histogram.to_result().expect("not empty");
        assert_eq!((found.count, found.least, found.most), (1000, 1e-6, 1e-3));
        for (value, wanted) in
            [(found.p50, 5e-4), (found.p90, 9e-4), (found.p99, 9.9e-4), (found.mean, 5.005e-4)]
        {
            assert!(value >= wanted * 0.999 && value <= wanted * 1.0625, "{value} for {wanted}");
        }
    }

    #[test]
    fn what_went_through_a_result_goes_on_exactly() {
        let (mut whole, mut first, mut second) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for number in 0..5000u64 {
            let time = Duration::from_nanos(number * number % 77_777);
            whole.add(time);
            if number % 2 == 0 { &mut first } else { &mut second }.add(time);
        }
        let mut again = Histogram::from_result(&first.to_result().expect("not empty"));
        again.merge(&second);
        let (again, whole) = (again.to_result().expect("some"), whole.to_result().expect("some"));
        assert!((again.mean - whole.mean).abs() < 1e-12);
        assert_eq!(crate::result::Latency { mean: whole.mean, ..again }, whole);
    }
}
