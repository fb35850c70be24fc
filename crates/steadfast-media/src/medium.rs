//! The [`Medium`] trait.

use crate::sync::Arc;
use crate::{ErrorClass, Geometry, MediumCounters, MediumError, MediumOperation};

/// How soon the bytes of a write are expected to be overwritten or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temperature {
    /// Rewritten soon: intent log, metaroots, tree nodes.
    Hot,
    /// Stays for long: file data.
    Cold,
}

/// The hook of [`Medium::before_waits`]; the reading thread calls it.
pub type WaitHook = Arc<dyn Fn() + Send + Sync>;

/// Storage for bytes.
///
/// Requests are aligned to the atomic unit in offset and length, and so is each buffer of a
/// vectored request. They lie inside the medium. A medium answers any other request with a
/// [`MediumError`] or, in a test double, with a panic, but never with damage. Several threads may
/// issue requests at once. If concurrent requests overlap, each unit gets the result of one of
/// them.
///
/// After a failed write each unit of that request holds either old or new bytes. After a failed
/// [`flush`](Self::flush) only data that was durable before is known to be durable.
pub trait Medium: Send + Sync {
    /// Size and units. Only [`set_size`](Self::set_size) changes them while the medium is open.
    fn geometry(&self) -> Geometry;

    /// Fills `buffer` from `offset`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError>;

    /// Writes `data` at `offset`. Durable only after a later [`flush`](Self::flush).
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError>;

    /// Makes every write that has completed before this call durable.
    fn flush(&self) -> Result<(), MediumError>;

    /// Whether another program or machine may write to the medium at the same time, although this
    /// is not allowed. Examples are a disk that several machines reach and a device with two names.
    /// Then the file system [checks](Self::read_afresh) from time to time for another writer.
    fn may_be_shared(&self) -> bool {
        false
    }

    /// As [`read`](Self::read), but returns the present contents of the medium, including writes of
    /// other programs. It bypasses any cache that only this program's requests use.
    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.read(offset, buffer)
    }

    /// Discards bytes that are no longer needed; a later read returns undefined bytes. Advice only.
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let _ = (offset, length);
        Ok(())
    }

    /// Whether early discards are cheap and useful. An example is flash, where garbage collection
    /// would move the discarded data. Then the file system discards blocks as they become free, and
    /// log records that a checkpoint covers.
    fn wants_discards(&self) -> bool {
        false
    }

    /// Whether discards before blocks are reusable are useful too. An example is flash, where data
    /// that is kept longer is moved more often. The file system then discards data as soon as the
    /// commit record that makes it unneeded is durable. It uses many small requests, instead of
    /// waiting for the next checkpoint. Has no effect unless discards are wanted.
    fn wants_discards_early(&self) -> bool {
        false
    }

    /// Whether a flush costs almost nothing because writes are durable already, while reads during
    /// a mount are expensive. An example is flash. Then the file system flushes data before the log
    /// record that names it. So a mount need not read the data to check its presence.
    fn flushes_cheaply(&self) -> bool {
        false
    }

    /// Work that the medium has done for its own upkeep so far, in bytes that could have been
    /// written in the same time. An example is flash, which moves data and erases blocks during
    /// writes. Background work in steps ends a step early because of it, since other requests wait
    /// meanwhile. `None` if the medium does no such work.
    fn upkeep(&self) -> Option<u64> {
        None
    }

    /// Announces that this range, and perhaps ranges beside it, will be read soon. A slow medium
    /// may start to read it ahead. Advice only; the range need not be aligned.
    fn will_read(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Sets a hook for reads of less than a few hundred KiB. The medium calls it before such a read
    /// waits for something slower than memory, if it can tell in advance. A server uses the hook to
    /// let another thread take its requests. Only the first hook counts. By default no hook is
    /// called.
    fn before_waits(&self, hook: WaitHook) {
        let _ = hook;
    }

    /// Changes the size to `size` bytes if the medium can grow or shrink; new bytes read as zeros.
    /// Otherwise it only checks that the medium is at least that long.
    fn set_size(&self, size: u64) -> Result<(), MediumError> {
        if size <= self.geometry().size {
            return Ok(());
        }
        Err(MediumError {
            operation: MediumOperation::Write,
            offset: size,
            length: 0,
            class: ErrorClass::Permanent,
            os_error: 0,
        })
    }

    /// Fills several buffers from consecutive offsets, in one request if possible.
    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let mut at = offset;
        for buffer in buffers {
            self.read(at, buffer)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// Writes several buffers to consecutive offsets, in one request if possible.
    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let mut at = offset;
        for buffer in buffers {
            self.write(at, buffer)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// As [`write_vectored`](Self::write_vectored), with a hint of the lifetime of the bytes.
    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let _ = temperature;
        self.write_vectored(offset, buffers)
    }

    /// Writes and returns after *these* bytes are durable; earlier writes are not covered.
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.write(offset, data)?;
        self.flush()
    }

    /// Number of independent copies of every byte (a mirror has two or more).
    fn copies(&self) -> u32 {
        1
    }

    /// Reads the given copy. After a checksum error the caller can use another copy.
    fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let _ = copy;
        self.read(offset, buffer)
    }

    /// Reports that the given copy failed its checksum.
    fn report_bad(&self, copy: u32, offset: u64, length: u64) {
        let _ = (copy, offset, length);
    }

    /// Requests so far; `None` if the medium does not count them.
    fn counters(&self) -> Option<MediumCounters> {
        None
    }
}
