//! The environment that the core needs: locks, time and a fast checksum. The core itself has no
//! clock, no randomness, no threads and no operating system. That also makes every test
//! deterministic.

use lock_api::{RawMutex, RawRwLock};

use crate::types::Timestamp;

/// The environment of a volume.
pub trait Platform: Send + Sync {
    /// Mutual exclusion between threads (or nothing at all with one thread).
    type Mutex: RawMutex + Send + Sync;
    /// A readers–writer lock.
    type RwLock: RawRwLock + Send + Sync;

    /// Wall-clock time for time stamps.
    fn now(&self) -> Timestamp;

    /// Milliseconds since an arbitrary moment. It never goes backwards, and it advances while the
    /// machine is suspended. It drives the transaction timer, and tells how long ago the writer
    /// checked a shared medium.
    fn monotonic_ms(&self) -> u64;

    /// Microseconds since an arbitrary moment, never going backwards, as precisely as they are
    /// known.
    fn monotonic_us(&self) -> u64 {
        self.monotonic_ms().saturating_mul(1000)
    }

    /// Lets other threads run until `ready` holds, for at most `microseconds`; may return at once.
    /// The caller holds locks that `ready` does not need.
    fn wait_for(&self, _ready: &dyn Fn() -> bool, _microseconds: u64) {}

    /// Continues a CRC-32C (Castagnoli, reflected, as in RFC 3720) over `bytes`; `crc` is 0 at the
    /// start. The default is portable and table-driven.
    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        crate::checksum::crc32c_portable(crc, bytes)
    }
}

/// A borrowed platform is a platform, so that a volume can be opened briefly.
impl<P: Platform> Platform for &P {
    type Mutex = P::Mutex;
    type RwLock = P::RwLock;

    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn monotonic_ms(&self) -> u64 {
        (**self).monotonic_ms()
    }

    fn monotonic_us(&self) -> u64 {
        (**self).monotonic_us()
    }

    fn wait_for(&self, ready: &dyn Fn() -> bool, microseconds: u64) {
        (**self).wait_for(ready, microseconds);
    }

    fn crc32c(&self, crc: u32, bytes: &[u8]) -> u32 {
        (**self).crc32c(crc, bytes)
    }
}
