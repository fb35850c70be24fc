//! The counters of the last minute, and the rates derived from them.

use std::collections::VecDeque;
use std::time::Instant;

use steadfast_fuse::metrics::{Histogram, Kind};
use steadfast_fuse::watch::{Readings, Status};
use steadfast_media::MediumCounters;

/// Maximum number of samples kept.
const SAMPLES_MAX: usize = 121;
/// Number of intervals in the window of recent latencies.
const WINDOW: usize = 10;

/// The counters at one moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The moment.
    pub at: Instant,
    /// The counts.
    pub readings: Readings,
}

/// Samples in the order of time, and the start of counting.
pub struct VolumeHistory {
    /// The name of the volume.
    pub title: String,
    samples: VecDeque<Sample>,
    /// The sample at the moment when `r` was pressed.
    base: Option<Sample>,
}

impl VolumeHistory {
    /// An empty history with this title.
    pub fn new(title: String) -> VolumeHistory {
        VolumeHistory { title, samples: VecDeque::new(), base: None }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        // A newly mounted volume counts from zero.
        let restarted = self
            .samples
            .back()
            .is_some_and(|last| sample.readings.status.uptime < last.readings.status.uptime);
        if restarted {
            self.samples.clear();
            self.base = None;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Restarts the count.
    pub fn reset(&mut self) {
        self.base = self.samples.back().cloned();
        while self.samples.len() > 1 {
            self.samples.pop_front();
        }
    }

    /// The newest sample.
    pub fn newest(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// Whether `r` was pressed.
    pub fn was_reset(&self) -> bool {
        self.base.is_some()
    }

    /// Growth of a counter per second, over the last interval.
    pub fn rate(&self, counter: impl Fn(&Readings) -> u64) -> f64 {
        let mut latest = self.samples.iter().rev();
        match (latest.next(), latest.next()) {
            (Some(late), Some(early)) => rate_between(early, late, &counter),
            _ => 0.0,
        }
    }

    /// The same for each known interval, oldest first.
    pub fn rates(&self, counter: impl Fn(&Readings) -> u64) -> Vec<f64> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs.map(|(early, late)| rate_between(early, late, &counter)).collect()
    }

    /// A value at each known moment, oldest first.
    pub fn values(&self, value: impl Fn(&Status) -> f64) -> Vec<f64> {
        self.samples.iter().map(|sample| value(&sample.readings.status)).collect()
    }

    /// Latencies and errors of a kind in the last intervals.
    pub fn recent(&self, kind: Kind) -> (Histogram, u64) {
        let Some(late) = self.newest() else { return Default::default() };
        let early = self.samples.get(self.samples.len().saturating_sub(WINDOW + 1));
        between(early, late, kind)
    }

    /// Latencies and errors of a kind since the reset, or since the mount.
    pub fn all(&self, kind: Kind) -> (Histogram, u64) {
        let Some(late) = self.newest() else { return Default::default() };
        between(self.base.as_ref(), late, kind)
    }
}

fn between(early: Option<&Sample>, late: &Sample, kind: Kind) -> (Histogram, u64) {
    let of = |sample: &Sample| {
        sample.readings.operations.get(kind as usize).cloned().unwrap_or_default()
    };
    let now = of(late);
    match early.map(of) {
        Some(before) => {
            (now.latency.since(&before.latency), now.errors.saturating_sub(before.errors))
        }
        None => (now.latency, now.errors),
    }
}

fn rate_between(early: &Sample, late: &Sample, counter: &impl Fn(&Readings) -> u64) -> f64 {
    let seconds = late.at.saturating_duration_since(early.at).as_secs_f64();
    let grown = counter(&late.readings).saturating_sub(counter(&early.readings));
    if seconds > 0.0 { grown as f64 / seconds } else { 0.0 }
}

/// Number of operations of a kind so far.
pub fn operations(readings: &Readings, kind: Kind) -> u64 {
    readings.operations.get(kind as usize).map_or(0, |operations| operations.latency.count())
}

/// Number of all operations so far.
pub fn operations_all(readings: &Readings) -> u64 {
    readings.operations.iter().map(|operations| operations.latency.count()).sum()
}

/// A counter of the medium; 0 if the medium does not count.
pub fn medium(readings: &Readings, count: impl Fn(&MediumCounters) -> u64) -> u64 {
    readings.status.medium.as_ref().map_or(0, count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::fixture;

    fn sample(at: Instant, second: u64) -> Sample {
        let mut readings = fixture::readings();
        readings.status.uptime += Duration::from_secs(second);
        readings.status.read_bytes = 1000 * second;
        let mut latencies = vec![1_000_000; second as usize];
        latencies.extend(vec![9_000_000_000; usize::from(second >= 5)]);
        readings.operations[Kind::Read as usize] = fixture::operations(&latencies, second);
        Sample { at: at + Duration::from_secs(second), readings }
    }

    #[test]
    fn rates_windows_and_resets() {
        let start = Instant::now();
        let mut history = VolumeHistory::new("x".into());
        assert_eq!(history.rate(|readings| readings.status.read_bytes), 0.0);
        for second in 0..=20 {
            history.push(sample(start, second));
        }
        assert_eq!(history.rate(|readings| readings.status.read_bytes), 1000.0);
        assert_eq!(history.rates(|readings| readings.status.read_bytes), vec![1000.0; 20]);
        let (recent, errors) = history.recent(Kind::Read);
        assert_eq!((recent.count(), errors), (10, 10));
        assert!(
            recent.longest < 1_200_000,
            "what was slow lies before the window: {}",
            recent.longest
        );
        assert_eq!(history.all(Kind::Read).0.longest, 9_000_000_000);
        history.reset();
        assert_eq!(history.all(Kind::Read).0.count(), 0);
        history.push(sample(start, 21));
        assert_eq!(history.all(Kind::Read).0.count(), 1);
        // The volume was mounted again.
        history.push(sample(start, 0));
        assert_eq!(
            (history.rate(|readings| readings.status.read_bytes), history.was_reset()),
            (0.0, false)
        );
        for second in 1..500 {
            history.push(sample(start, second));
        }
        assert_eq!(history.values(|status| status.uptime.as_secs_f64()).len(), SAMPLES_MAX);
    }
}
