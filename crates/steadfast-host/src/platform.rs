//! [`HostPlatform`]: clock, locks and checksum of the host.

use std::time::{Duration, Instant};

use crc_fast::{CrcAlgorithm, checksum_combine, crc32_iscsi};
use rustix::time::{ClockId, clock_gettime};
use steadfast::{Platform, Timestamp};

/// Longest busy wait.
const WAIT_MAX: Duration = Duration::from_millis(1);

/// The CRC-32C of these bytes. All crates call this one copy, whose algorithm the compiler knows:
/// so the linker can leave the tables of the other algorithms out, which have 650 KB.
#[inline(never)]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Sleeping locks, the system's clocks, and CRC-32C in hardware if the processor has it.
#[derive(Debug, Clone)]
pub struct HostPlatform {
    /// The zero point of [`Platform::monotonic_us`].
    start: Instant,
    /// What all clocks say, where they stand still.
    stopped: Option<Timestamp>,
}

impl HostPlatform {
    /// Creates the platform of this machine.
    pub fn new() -> Self {
        HostPlatform { start: Instant::now(), stopped: None }
    }

    /// Clocks that stand still: it is `now` for ever, and nothing that is done depends on how long
    /// it takes.
    pub fn stopped_at(now: Timestamp) -> Self {
        HostPlatform { stopped: Some(now), ..HostPlatform::new() }
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
        if let Some(now) = self.stopped {
            return now;
        }
        // The clock that the kernel uses for file times. A finer clock would run ahead of it. If
        // both stamp a file (a mount with the kernel's write-back cache), its times would go
        // backwards.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }

    fn monotonic_ms(&self) -> u64 {
        if self.stopped.is_some() {
            return 0;
        }
        // This clock also runs while the machine is suspended, because another writer may work
        // during that time.
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, milliseconds) =
            (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() / 1_000_000);
        seconds.saturating_mul(1000).saturating_add(milliseconds)
    }

    fn monotonic_us(&self) -> u64 {
        if self.stopped.is_some() {
            return 0;
        }
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Stays runnable: the wait is shorter than the shortest sleep, which takes about 60
    /// microseconds.
    fn wait_for(&self, ready: &dyn Fn() -> bool, microseconds: u64) {
        if self.stopped.is_some() {
            return;
        }
        let begun = Instant::now();
        let longest = Duration::from_micros(microseconds).min(WAIT_MAX);
        while !ready() && begun.elapsed() < longest {
            std::thread::yield_now();
        }
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        let sum = crc32c(bytes);
        if crc == 0 {
            return sum;
        }
        // The core has no sum to continue where speed counts.
        let length = bytes.len() as u64;
        checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(crc), u64::from(sum), length) as u32
    }
}

#[cfg(test)]
mod tests {
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
                assert_eq!(
                    continued,
                    crc32c_portable(0, piece),
                    "{length} bytes from {start} in two parts"
                );
            }
        }
    }

    #[test]
    fn time_is_that_of_the_kernel() {
        let before =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let now = HostPlatform::new().now();
        assert!((now.seconds - before as i64).abs() < 60 && now.nanoseconds < 1_000_000_000);
    }

    #[test]
    fn clocks_that_stand_still() {
        let noon = Timestamp { seconds: 43_200, nanoseconds: 7 };
        let platform = HostPlatform::stopped_at(noon);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(
            (platform.now(), platform.monotonic_ms(), platform.monotonic_us()),
            (noon, 0, 0)
        );
    }

    #[test]
    fn the_monotonic_clock_goes_forward() {
        let platform = HostPlatform::new();
        let before = platform.monotonic_ms();
        std::thread::sleep(Duration::from_millis(5));
        assert!(platform.monotonic_ms() >= before + 5);
    }
}
