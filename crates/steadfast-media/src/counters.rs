//! [`MediumCounters`].

/// Requests that a medium has carried out since it was opened, for monitoring. Counts that are read
/// together may differ by a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediumCounters {
    /// Reads; a vectored read counts once.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, durable writes included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes, and durable writes.
    pub flushes: u64,
    /// Discarded ranges passed to the underlying storage.
    pub discards: u64,
    /// Requests that failed.
    pub failures: u64,
}
