//! The [`Medium`] trait.

use alloc::sync::Arc;

use crate::{ErrorClass, Geometry, MediumCounters, MediumError, MediumOperation};

/// How soon the bytes of a write are expected to be overwritten or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temperature {
    /// Rewritten soon: intent log, metaroots, tree nodes.
    Hot,
    /// Stays: file data.
    Cold,
}

/// What [`Medium::before_waits`] is given; called by the thread that reads.
pub type WaitHook = Arc<dyn Fn() + Send + Sync>;

/// A place to keep bytes.
///
/// Requests are aligned to the atomic unit in offset and length (each buffer of a vectored one,
/// too) and lie inside the medium; a medium answers any other with a [`MediumError`] or, in a test
/// double, a panic, never with damage. Requests may be issued from several threads at once; the
/// outcome of overlapping ones that are under way together is one or the other for each unit.
///
/// After a failed write the units of that request hold old or new bytes, each for itself. After a
/// failed [`flush`](Self::flush) nothing is known to be durable that was not so before.
pub trait Medium: Send + Sync {
    /// Size and units. Nothing but [`set_size`](Self::set_size) changes them while the medium is
    /// open.
    fn geometry(&self) -> Geometry;

    /// Fills `buffer` from `offset`.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError>;

    /// Writes `data` at `offset`. Durable only after a later [`flush`](Self::flush).
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError>;

    /// Makes every write that has completed before this call durable.
    fn flush(&self) -> Result<(), MediumError>;

    /// Whether others may write to it while this program does, against all rules: a disk that
    /// several machines reach, a device that has two names. Then the file system
    /// [looks](Self::read_afresh) now and then whether somebody does.
    fn may_be_shared(&self) -> bool {
        false
    }

    /// As [`read`](Self::read), what is on the medium at this moment, whoever wrote it: past any
    /// cache that only this program's requests go through.
    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.read(offset, buffer)
    }

    /// Says that the bytes are not needed any more; what a later read returns is undefined. Advice
    /// only.
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let _ = (offset, length);
        Ok(())
    }

    /// Whether it costs little and helps to be told at once what is not needed any more: flash,
    /// where garbage collection would move it about. Then the file system discards blocks as they
    /// become free, and log records that a checkpoint covers.
    fn wants_discards(&self) -> bool {
        false
    }

    /// Whether it gains from being told so before blocks can be used again: flash, where what is
    /// kept a little longer is moved a little more often. Then the file system discards data as
    /// soon as the log mark behind which nobody needs it is durable, in many small requests,
    /// instead of behind the next checkpoint. Counts only where discards are wanted.
    fn wants_discards_early(&self) -> bool {
        false
    }

    /// Whether a flush costs next to nothing, as what was written is on the medium already, and a
    /// read at a mount counts: flash again. Then the file system flushes data before the log record
    /// that names it, so that a mount need not read the data to see whether it is there.
    fn flushes_cheaply(&self) -> bool {
        false
    }

    /// What it has done so far for its own upkeep, in bytes that could have been written meanwhile:
    /// flash, which moves data about and erases when it is written to. Work that is done in steps
    /// ends a step by it, as whoever comes meanwhile waits for that, too. `None`: it does what it
    /// is asked to.
    fn upkeep(&self) -> Option<u64> {
        None
    }

    /// Says that this range will be read soon, and perhaps others beside it: a medium that takes
    /// its time may begin with it. Advice only; the range need not be aligned.
    fn will_read(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Has `hook` called before a read of less than a few hundred KiB waits for something slower
    /// than memory, where the medium knows that beforehand: whoever serves others meanwhile sends
    /// somebody else to hear them. The first hook counts; by default none is ever called.
    fn before_waits(&self, hook: WaitHook) {
        let _ = hook;
    }

    /// Makes the medium `size` bytes long where it can be longer or shorter; new bytes read as
    /// zeros. Otherwise only says whether it is at least so long.
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

    /// Fills several buffers from consecutive offsets in one request where the medium can.
    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let mut at = offset;
        for buffer in buffers {
            self.read(at, buffer)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// Writes several buffers to consecutive offsets in one request where the medium can.
    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let mut at = offset;
        for buffer in buffers {
            self.write(at, buffer)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    /// As [`write_vectored`](Self::write_vectored), with a hint of how long the bytes will live.
    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        let _ = temperature;
        self.write_vectored(offset, buffers)
    }

    /// Writes and returns once *these* bytes are durable; says nothing about earlier writes.
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.write(offset, data)?;
        self.flush()
    }

    /// How many independent copies of every byte the medium keeps (a mirror has two or more).
    fn copies(&self) -> u32 {
        1
    }

    /// Reads the given copy, so that a checksum error can be answered from another one.
    fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let _ = copy;
        self.read(offset, buffer)
    }

    /// Tells the medium that the given copy failed its checksum.
    fn report_bad(&self, copy: u32, offset: u64, length: u64) {
        let _ = (copy, offset, length);
    }

    /// Requests carried out so far; `None` where the medium does not count them.
    fn counters(&self) -> Option<MediumCounters> {
        None
    }
}
