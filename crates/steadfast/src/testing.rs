//! A platform for tests and examples: locks of a hosted platform and a clock that the test sets. It
//! is behind the feature `testing`, because it needs an operating system and the core does not.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::platform::Platform;
use crate::types::Timestamp;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A platform whose clock starts at 2001-09-09 01:46:40 UTC and moves only on request, so every run
/// of a test sees the same times. A clone has a clock of its own, which shows the same time at first.
///
/// ```
/// use steadfast::testing::TestPlatform;
/// use steadfast::{Platform, Timestamp};
///
/// let platform = TestPlatform::new();
/// platform.advance_ms(1500);
/// assert_eq!(platform.now(), Timestamp { seconds: 1_000_000_001, nanoseconds: 500_000_000 });
/// assert_eq!(platform.monotonic_ms(), 1500);
/// ```
#[derive(Debug)]
pub struct TestPlatform {
    /// Nanoseconds since 1970.
    now: AtomicU64,
    /// Milliseconds since the platform was made.
    monotonic_ms: AtomicU64,
}

impl TestPlatform {
    /// A platform at its start time.
    pub fn new() -> TestPlatform {
        TestPlatform { now: AtomicU64::new(SECOND * SECOND), monotonic_ms: AtomicU64::new(0) }
    }

    /// Advances the time, milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        self.now.fetch_add(ms * 1_000_000, Ordering::Relaxed);
        self.monotonic_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Sets the wall clock, seconds since 1970; the monotonic clock continues.
    pub fn set_seconds(&self, seconds: u64) {
        self.now.store(seconds * SECOND, Ordering::Relaxed);
    }
}

impl Clone for TestPlatform {
    fn clone(&self) -> Self {
        let copy = |time: &AtomicU64| AtomicU64::new(time.load(Ordering::Relaxed));
        TestPlatform { now: copy(&self.now), monotonic_ms: copy(&self.monotonic_ms) }
    }
}

impl Default for TestPlatform {
    fn default() -> Self {
        TestPlatform::new()
    }
}

impl Platform for TestPlatform {
    type Mutex = parking_lot::RawMutex;
    type RwLock = parking_lot::RawRwLock;

    fn now(&self) -> Timestamp {
        let now = self.now.load(Ordering::Relaxed);
        Timestamp { seconds: (now / SECOND) as i64, nanoseconds: (now % SECOND) as u32 }
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::Relaxed)
    }
}
