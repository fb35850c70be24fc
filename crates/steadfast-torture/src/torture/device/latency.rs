//! Measures whether a flush is as slow as the hardware requires. The result is a suspicion, never a
//! verdict: a cache protected by a capacitor or a battery is as fast as one that lies.

use std::time::{Duration, Instant};

use steadfast_media::Medium;

use super::DeviceError;
use crate::random::Random;

/// Writes before each flush.
pub const WRITES: u64 = 64;
/// Number of measured flushes.
const ROUNDS: usize = 9;

/// Half a turn at 7,200 turns a minute. No order of 64 places can be faster.
const HALF_TURN: Duration = Duration::from_micros(4_166);
/// The shortest time in which any flash programs a page.
const PROGRAM: Duration = Duration::from_micros(50);

/// The measured times, each the median of a few rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushTimes {
    /// A flush without any writes before it.
    pub idle: Duration,
    /// A flush after scattered writes.
    pub scattered: Duration,
}

/// The properties that the operating system reports for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceKind {
    /// The medium rotates.
    pub rotational: bool,
    /// It has a cache that loses its contents without power, so flushes have work to do.
    pub volatile_cache: bool,
}

/// Measures the times. Overwrites places all over the first `size` bytes of the medium.
///
/// # Errors
/// The medium's.
pub fn measure<M: Medium>(medium: &M, size: u64) -> Result<FlushTimes, DeviceError> {
    let unit = u64::from(medium.geometry().atomic_unit.max(4096));
    let places = (size / unit).max(1);
    let mut random = Random::new(size);
    let (mut idle, mut scattered) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for _ in 0..WRITES {
            let data = vec![round as u8 + 1; unit as usize];
            medium.write(random.below(places) * unit, &data)?;
        }
        scattered.push(time(|| medium.flush())?);
        idle.push(time(|| medium.flush())?);
    }
    Ok(FlushTimes { idle: median(idle), scattered: median(scattered) })
}

fn time<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The implausible part of these times for a device of this kind, if any.
pub fn suspicion(times: &FlushTimes, kind: DeviceKind) -> Option<String> {
    let took = format!("a flush after {WRITES} scattered writes takes {:?}", times.scattered);
    if kind.rotational && times.scattered < HALF_TURN {
        return Some(format!(
            "{took}, less than half a turn of a disk: its cache is protected against power cuts, or its flushes do nothing"
        ));
    }
    if kind.volatile_cache && times.scattered < PROGRAM {
        return Some(format!(
            "{took}, less than flash needs to program a page: the cache is protected against power cuts, or flushes do nothing"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_be_is_suspicious() {
        let times = |scattered| FlushTimes {
            idle: Duration::ZERO,
            scattered: Duration::from_micros(scattered),
        };
        let disk = DeviceKind { rotational: true, volatile_cache: true };
        let flash = DeviceKind { rotational: false, volatile_cache: true };
        let protected = DeviceKind { rotational: false, volatile_cache: false };
        assert!(suspicion(&times(900), disk).is_some_and(|text| text.contains("half a turn")));
        assert!(suspicion(&times(90_000), disk).is_none());
        assert!(suspicion(&times(10), flash).is_some());
        assert!(suspicion(&times(900), flash).is_none());
        assert!(
            suspicion(&times(10), protected).is_none(),
            "without a volatile cache a flush is free"
        );
    }
}
