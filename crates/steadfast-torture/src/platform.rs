//! The platform of a volume under test: clocks that the test sets, and locks of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crc_fast::CrcAlgorithm;
use steadfast::{Platform, Timestamp};

/// Two clocks that advance only when the test sets them.
#[derive(Debug, Clone, Default)]
pub struct Clock(Arc<ClockInner>);

#[derive(Debug, Default)]
struct ClockInner {
    wall_ticks: AtomicU64,
    monotonic_ms: AtomicU64,
}

/// Wall-clock time at tick 0. It is after 2038, so a 32-bit signed count of seconds would overflow.
const EPOCH_SECONDS: i64 = 4_102_444_800;

impl Clock {
    /// Sets the wall clock to the given tick. Ticks are a second and a few nanoseconds apart.
    pub fn set_tick(&self, tick: u64) {
        self.0.wall_ticks.store(tick, Ordering::Relaxed);
    }

    /// Wall-clock time now.
    pub fn now(&self) -> Timestamp {
        let tick = self.0.wall_ticks.load(Ordering::Relaxed);
        Timestamp {
            seconds: EPOCH_SECONDS + tick as i64,
            nanoseconds: ((tick * 7_919) % 1_000_000_000) as u32,
        }
    }

    /// The monotonic clock, milliseconds.
    pub fn ms(&self) -> u64 {
        self.0.monotonic_ms.load(Ordering::Relaxed)
    }

    /// Advances the monotonic clock.
    pub fn advance_ms(&self, ms: u64) {
        self.0.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
    }
}

/// [`Platform`] over a [`Clock`].
#[derive(Debug, Clone, Default)]
pub struct LabPlatform {
    clock: Clock,
}

impl LabPlatform {
    /// A platform that shows the time of `clock`.
    pub fn new(clock: Clock) -> LabPlatform {
        LabPlatform { clock }
    }
}

impl Platform for LabPlatform {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.ms()
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        // The crate continues from the register, which is the inverse of the value.
        let mut digest =
            crc_fast::Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        digest.update(bytes);
        digest.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use steadfast::checksum::crc32c_portable;

    use super::*;

    #[test]
    fn the_fast_checksum_is_the_portable_one() {
        let platform = LabPlatform::default();
        let bytes: Vec<u8> = (0..1000u32).map(|at| (at * 7) as u8).collect();
        for length in [0, 1, 9, 255, 256, 1000] {
            let (one, two) = bytes[..length].split_at(length / 3);
            assert_eq!(
                platform.crc32c(platform.crc32c(0, one), two),
                crc32c_portable(0, &bytes[..length])
            );
        }
    }
}
