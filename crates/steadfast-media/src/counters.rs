//! [`MediumCounters`].

/// Requests that a medium has carried out since it was opened, for people who watch it. The counts
/// of one moment may be a request apart from each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediumCounters {
    /// Reads; a vectored one is one.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, those that are durable at once included.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes, and writes that were durable at once.
    pub flushes: u64,
    /// Ranges given back to what is below.
    pub discards: u64,
    /// Requests that failed.
    pub failures: u64,
}
