//! A medium in memory that does as little as possible, and counts its requests.
//!
//! It is one flat range of bytes. The sparse medium of `steadfast-media` copies pages when they are
//! first written; that would count as work of an operation.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use steadfast_media::{
    FailureModel, Geometry, Medium, MediumCounters, MediumError, MediumOperation,
};

/// Bytes that the medium writes whole.
const UNIT: u32 = 4096;

/// See the module.
pub struct CountedMedium {
    bytes: RwLock<Vec<u8>>,
    geometry: Geometry,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
}

impl CountedMedium {
    /// A medium with these bytes.
    ///
    /// # Errors
    /// If the length is no multiple of 4,096.
    pub fn new(bytes: Vec<u8>) -> crate::Result<CountedMedium> {
        let size = bytes.len() as u64;
        let geometry = Geometry::new(size, UNIT, FailureModel::Volatile)
            .ok()
            .filter(|geometry| geometry.size == size)
            .ok_or_else(|| format!("an image of {size} bytes is no multiple of {UNIT}"))?;
        let zero = || AtomicU64::new(0);
        Ok(CountedMedium {
            bytes: RwLock::new(bytes),
            geometry,
            reads: zero(),
            read_bytes: zero(),
            writes: zero(),
            written_bytes: zero(),
            flushes: zero(),
            discards: zero(),
        })
    }

    /// Calls `use_bytes` with the content.
    pub fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(&self.bytes.read())
    }

    /// Requests so far.
    pub fn requests(&self) -> MediumCounters {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MediumCounters {
            reads: value(&self.reads),
            read_bytes: value(&self.read_bytes),
            writes: value(&self.writes),
            written_bytes: value(&self.written_bytes),
            flushes: value(&self.flushes),
            discards: value(&self.discards),
            failures: 0,
        }
    }

    /// The driver finds the cost of reads under this name.
    #[inline(never)]
    fn counted_medium_read(&self, offset: u64, buffer: &mut [u8]) {
        self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let from = offset as usize;
        buffer.copy_from_slice(&self.bytes.read()[from..from + buffer.len()]);
    }

    /// The driver finds the cost of writes under this name.
    #[inline(never)]
    fn counted_medium_write(&self, offset: u64, data: &[u8]) {
        self.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        let from = offset as usize;
        self.bytes.write()[from..from + data.len()].copy_from_slice(data);
    }
}

impl Medium for CountedMedium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.geometry.check(MediumOperation::Read, offset, buffer.len() as u64)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.counted_medium_read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.write_vectored(offset, &[data])
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.geometry.check(MediumOperation::Read, offset, length as u64)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut at = offset;
        for buffer in buffers {
            self.counted_medium_read(at, buffer);
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// One request, as on a device.
    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let length: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        self.geometry.check(MediumOperation::Write, offset, length as u64)?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        let mut at = offset;
        for buffer in buffers {
            self.counted_medium_write(at, buffer);
            at += buffer.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.geometry.check(MediumOperation::Discard, offset, length)?;
        self.discards.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> Option<MediumCounters> {
        Some(self.requests())
    }
}
