//! [`HostPlatform`]: clock, locks and checksum of the host.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crc_fast::{CrcAlgorithm, Digest};
use steadfast::{Platform, Timestamp};

/// Locks that sleep, the system's clocks, and CRC-32C in hardware where the processor has it.
#[derive(Debug, Clone)]
pub struct HostPlatform {
    /// Where [`Platform::monotonic_ms`] starts to count.
    start: Instant,
}

impl HostPlatform {
    /// A platform whose monotonic clock starts at 0 now.
    pub fn new() -> Self {
        HostPlatform { start: Instant::now() }
    }
}

impl Default for HostPlatform {
    fn default() -> Self {
        Self::new()
    }
}

impl Platform for HostPlatform {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now(&self) -> Timestamp {
        timestamp(SystemTime::now())
    }

    fn monotonic_ms(&self) -> u64 {
        // 2^64 milliseconds are 584 million years.
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        // The digest's state is the register of the reflected algorithm: the value before the final inversion.
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        digest.update(bytes);
        digest.finalize() as u32
    }
}

/// Nanoseconds count forward from the second below, also before 1970.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timestamp { seconds, nanoseconds: since.subsec_nanos() }
        }
        Err(before) => {
            let until = before.duration();
            let seconds = i64::try_from(until.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            match until.subsec_nanos() {
                0 => Timestamp { seconds, nanoseconds: 0 },
                rest => Timestamp { seconds: seconds.saturating_sub(1), nanoseconds: 1_000_000_000 - rest },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use steadfast::checksum::crc32c_portable;

    use super::*;

    #[test]
    fn checksum_is_that_of_the_core() {
        let platform = HostPlatform::new();
        assert_eq!(platform.crc32c(0, b"123456789"), 0xe306_9283);
        let bytes: Vec<u8> =
            (0..70_000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for start in [0, 1, 3, 8, 15] {
            for length in (0..600).chain([1000, 4095, 4096, 4097, 16_384, 65_536, 69_000]) {
                let piece = &bytes[start..start + length];
                assert_eq!(
                    platform.crc32c(0, piece),
                    crc32c_portable(0, piece),
                    "{length} bytes from {start}"
                );
                let (a, b) = piece.split_at(length / 3);
                let continued = platform.crc32c(platform.crc32c(0, a), b);
                assert_eq!(continued, crc32c_portable(0, piece), "{length} bytes from {start} in two parts");
            }
        }
    }

    #[test]
    fn times_before_1970_round_down() {
        let at = |nanoseconds| timestamp(UNIX_EPOCH - Duration::from_nanos(nanoseconds));
        assert_eq!(at(0), Timestamp { seconds: 0, nanoseconds: 0 });
        assert_eq!(at(1), Timestamp { seconds: -1, nanoseconds: 999_999_999 });
        assert_eq!(at(1_000_000_000), Timestamp { seconds: -1, nanoseconds: 0 });
        assert_eq!(at(1_500_000_000), Timestamp { seconds: -2, nanoseconds: 500_000_000 });
        let after = timestamp(UNIX_EPOCH + Duration::new(1 << 33, 7));
        assert_eq!(after, Timestamp { seconds: 1 << 33, nanoseconds: 7 });
    }

    #[test]
    fn the_monotonic_clock_goes_forward() {
        let platform = HostPlatform::new();
        let before = platform.monotonic_ms();
        std::thread::sleep(Duration::from_millis(5));
        assert!(platform.monotonic_ms() >= before + 5);
    }
}
