//! Records of single requests, and counters.

use core::ops::Sub;

use crate::sync::Arc;
use crate::{ErrorClass, MediumOperation, Temperature};

/// Result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out (or, on a medium that ignores flushes, reported as such).
    Done,
    /// It failed.
    Failed(ErrorClass),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Position in the order of all requests since the medium was made, from 0.
    pub sequence: u64,
    /// The operation.
    pub operation: MediumOperation,
    /// First byte (0 for a flush).
    pub offset: u64,
    /// Length in bytes (0 for a flush).
    pub length: u64,
    /// Number of buffers of a vectored request, otherwise 1 (0 for a flush or a discard).
    pub buffers: usize,
    /// A write that had to be durable on return.
    pub fua: bool,
    /// The hint of a hinted write.
    pub temperature: Option<Temperature>,
    /// The bytes of a write, if they are recorded.
    pub payload: Option<Arc<[u8]>>,
    /// The result.
    pub outcome: Outcome,
}

/// Requests and bytes so far. Failed requests count; requests after a power cut do not.
///
/// The difference of two readings covers the time in between:
///
/// ```
/// # use steadfast_media::{Medium, SimMedium, SimOptions};
/// let sim = SimMedium::new(SimOptions::disk(4096));
/// let before = sim.counters();
/// sim.write(0, &[0; 1024])?;
/// sim.flush()?;
/// let spent = sim.counters() - before;
/// assert_eq!((spent.writes, spent.bytes_written, spent.flushes), (1, 1024, 1));
/// # Ok::<(), steadfast_media::MediumError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads; a vectored read counts once.
    pub reads: u64,
    /// Writes of every kind; a vectored write counts once.
    pub writes: u64,
    /// FUA writes among them.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes requested by reads.
    pub bytes_read: u64,
    /// Bytes passed to writes.
    pub bytes_written: u64,
    /// Bytes discarded.
    pub bytes_discarded: u64,
    /// Calls of [`Medium::report_bad`](crate::Medium::report_bad); not requests.
    pub bad_reports: u64,
}

impl Counters {
    /// All requests: reads, writes, flushes and discards.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    pub(super) fn count(&mut self, operation: MediumOperation, length: u64, fua: bool) {
        match operation {
            MediumOperation::Read => {
                self.reads += 1;
                self.bytes_read += length;
            }
            MediumOperation::Write => {
                self.writes += 1;
                self.fua_writes += u64::from(fua);
                self.bytes_written += length;
            }
            MediumOperation::Flush => self.flushes += 1,
            MediumOperation::Discard => {
                self.discards += 1;
                self.bytes_discarded += length;
            }
        }
    }
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            fua_writes: self.fua_writes.saturating_sub(earlier.fua_writes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.saturating_sub(earlier.discards),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            bytes_discarded: self.bytes_discarded.saturating_sub(earlier.bytes_discarded),
            bad_reports: self.bad_reports.saturating_sub(earlier.bad_reports),
        }
    }
}
