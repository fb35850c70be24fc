//! Processor load over time: a thread samples the clocks of the processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::cpu::{kernel_seconds, process_seconds, processes_seconds, thread_seconds};
use super::noise::busy;
use crate::result::CpuPoint;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of points. When it is reached, the thread samples half as often, so that a long
/// test has a whole curve.
const POINTS_MOST: usize = 200;

/// Samples until it is ended.
#[derive(Debug)]
pub struct Sampler {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Vec<CpuPoint>, f64)>>,
}

/// All clocks at one moment.
struct Look {
    at: Instant,
    process: f64,
    file_system: f64,
    machine: f64,
    /// Time of the sampler itself, which is not part of the test.
    own: f64,
}

impl Look {
    fn now(daemon: &[u32]) -> Look {
        Look {
            at: Instant::now(),
            process: process_seconds(std::path::Path::new("/proc/self")),
            file_system: processes_seconds(daemon) + kernel_seconds(),
            machine: busy().unwrap_or(0.0),
            own: thread_seconds(),
        }
    }

    /// The shares of a processor between two samples.
    fn until(&self, later: &Look, start: Instant) -> CpuPoint {
        let time = (later.at - self.at).as_secs_f64().max(1e-6);
        let own = later.own - self.own;
        let share = |from: f64, to: f64| ((to - from) / time).max(0.0);
        CpuPoint {
            at: (later.at - start).as_secs_f64(),
            process: share(self.process + own, later.process),
            file_system: share(self.file_system, later.file_system),
            machine: share(self.machine + own, later.machine),
        }
    }
}

impl Sampler {
    /// Starts, with these processes as the daemon. Without a thread there is no curve.
    pub fn start(daemon: &[u32]) -> Sampler {
        let end = Arc::new(AtomicBool::new(false));
        let (flag, daemon) = (end.clone(), daemon.to_vec());
        let look = move || {
            let mut points: Vec<CpuPoint> = Vec::new();
            let mut interval = INTERVAL;
            let start = Instant::now();
            let mut before = Look::now(&daemon);
            while !flag.load(Ordering::Relaxed) {
                std::thread::park_timeout(interval);
                // Ticks of the machine's clock are too coarse for such a short time since the last
                // sample.
                if flag.load(Ordering::Relaxed) && before.at.elapsed() < interval / 2 {
                    break;
                }
                let now = Look::now(&daemon);
                points.push(before.until(&now, start));
                before = now;
                if points.len() >= POINTS_MOST {
                    points = halve(&points);
                    interval *= 2;
                }
            }
            (points, thread_seconds())
        };
        let thread = std::thread::Builder::new().name("processor load".into()).spawn(look).ok();
        Sampler { end, thread }
    }

    /// Ends the sampling. Returns the curve, and the processor time of the sampling.
    pub fn end(mut self) -> (Vec<CpuPoint>, f64) {
        self.end.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Default::default() };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Merges each two points into one.
fn halve(points: &[CpuPoint]) -> Vec<CpuPoint> {
    let join = |pair: &[CpuPoint]| {
        let mean =
            |value: fn(&CpuPoint) -> f64| pair.iter().map(value).sum::<f64>() / pair.len() as f64;
        CpuPoint {
            at: pair.last().map_or(0.0, |point| point.at),
            process: mean(|point| point.process),
            file_system: mean(|point| point.file_system),
            machine: mean(|point| point.machine),
        }
    };
    points.chunks(2).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen_and_looking_is_not() {
        let sampler = Sampler::start(&[]);
        let start = Instant::now();
        let mut sum = 0u64;
        while start.elapsed() < INTERVAL * 6 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let (points, own) = sampler.end();
        assert!(!points.is_empty() && own >= 0.0);
        assert!(points.iter().any(|point| point.process > 0.0), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].at < pair[1].at));
        let half = halve(&points);
        assert_eq!(half.len(), points.len().div_ceil(2));
    }
}
