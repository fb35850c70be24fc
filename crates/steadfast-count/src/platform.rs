//! The platform of counted volumes: locks and checksum of the host, and a clock that the calls of
//! an operation move. So time stamps are the same in every run.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast::{Platform, Timestamp};
use steadfast_host::HostPlatform;

/// 2001-09-09 01:46:40 UTC, where the clock of day 0 starts.
const START_SECONDS: i64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// See the module.
pub struct CountedPlatform {
    host: HostPlatform,
    milliseconds: AtomicU64,
}

impl CountedPlatform {
    /// A platform whose clock starts at this day. Volumes are prepared on an earlier day than they
    /// are measured on, so access times behave as they do on old files.
    pub fn at_day(day: u64) -> CountedPlatform {
        let start = Timestamp { seconds: START_SECONDS, nanoseconds: 0 };
        CountedPlatform {
            host: HostPlatform::stopped_at(start),
            milliseconds: AtomicU64::new(day * SECONDS_PER_DAY * 1000),
        }
    }
}

/// The driver finds the cost of checksums under this name.
#[inline(never)]
fn counted_checksum(host: &HostPlatform, crc: u32, bytes: &[u8]) -> u32 {
    host.crc32c(crc, bytes)
}

impl Platform for CountedPlatform {
    type Mutex = <HostPlatform as Platform>::Mutex;
    type RwLock = <HostPlatform as Platform>::RwLock;

    /// A millisecond later than at the call before.
    fn now(&self) -> Timestamp {
        let now = self.milliseconds.fetch_add(1, Ordering::Relaxed);
        Timestamp {
            seconds: START_SECONDS + (now / 1000) as i64,
            nanoseconds: (now % 1000) as u32 * 1_000_000,
        }
    }

    fn monotonic_ms(&self) -> u64 {
        self.host.monotonic_ms()
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        counted_checksum(&self.host, crc, bytes)
    }
}
