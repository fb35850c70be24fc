//! The recording medium: keeps every request in order. So one run of a sequence yields the image
//! after a power cut at *every* I/O, without running the sequence again.

use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_media::{ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation};

use crate::digest::Digest;
use crate::image::Image;
use crate::trouble::{Armed, Trouble};

/// A request that changes the contents of the medium or their durability.
#[derive(Debug, Clone)]
pub enum Event {
    /// A write; `fua` writes are durable once they have returned.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes written.
        data: Arc<[u8]>,
        /// Forced unit access.
        fua: bool,
    },
    /// A flush: every write completed before it is durable once it has returned.
    Flush,
    /// A discard: the bytes are undefined afterwards.
    Discard {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Write { offset, data, fua } => {
                let forced = if *fua { "forced write" } else { "write" };
                write!(f, "{forced} of {} bytes at {offset}", data.len())
            }
            Event::Flush => f.write_str("flush"),
            Event::Discard { offset, length } => write!(f, "discard of {length} bytes at {offset}"),
        }
    }
}

/// The value of a discarded byte: neither the old data nor zero, so that no code can rely on
/// either.
pub const DISCARDED: u8 = 0xdd;

/// Deliberate faults of the medium, for testing the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lie {
    /// No fault: the medium keeps its promises.
    #[default]
    None,
    /// A flush returns at once and makes nothing durable.
    Flush,
    /// A forced-unit-access write is treated as an ordinary one.
    Fua,
}

#[derive(Debug)]
struct TapeInner {
    image: Image,
    events: Vec<Event>,
    lie: Lie,
    requests: u64,
    trouble: Trouble,
    digest: Digest,
    /// Stretches that were read, if reads are recorded.
    reads: Option<std::collections::BTreeSet<(u64, u64)>>,
}

/// The discards that the medium asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discards {
    /// No discards.
    Never,
    /// Discards of the blocks that a checkpoint has freed.
    AfterCheckpoints,
    /// Discards of data as soon as the commit record is durable after which the data is unneeded;
    /// discards of the rest as above.
    Early,
}

/// The recording medium. Copies of the handle share one tape.
#[derive(Debug, Clone)]
pub struct Tape {
    atomic_unit: u32,
    size: u64,
    /// Whether the medium asks for discards, and when.
    discards: Discards,
    inner: Arc<Mutex<TapeInner>>,
}

impl Tape {
    /// A medium with the contents of `image`, all of it durable, and nothing recorded yet.
    pub fn new(image: Image, atomic_unit: u32, lie: Lie) -> Tape {
        let size = image.size();
        let inner = TapeInner {
            image,
            events: Vec::new(),
            lie,
            requests: 0,
            trouble: Trouble::default(),
            digest: Digest::default(),
            reads: None,
        };
        Tape { atomic_unit, size, discards: Discards::Never, inner: Arc::new(Mutex::new(inner)) }
    }

    /// The same medium with this choice of discards.
    #[must_use]
    pub fn wanting_discards(mut self, discards: Discards) -> Tape {
        self.discards = discards;
        self
    }

    /// The number of recorded events.
    pub fn position(&self) -> usize {
        self.inner.lock().events.len()
    }

    /// The events recorded so far.
    pub fn events(&self) -> Vec<Event> {
        self.inner.lock().events.clone()
    }

    /// The contents as a reader sees them now.
    pub fn image(&self) -> Image {
        self.inner.lock().image.clone()
    }

    /// Requests of every kind, including reads, since the tape was made.
    pub fn requests(&self) -> u64 {
        self.inner.lock().requests
    }

    /// Arms a fault, or none, and resets the counts of requests and failures.
    pub fn arm(&self, armed: Option<Armed>) {
        self.inner.lock().trouble.arm(armed);
    }

    /// Records reads from now on.
    pub fn note_reads(&self) {
        self.inner.lock().reads.get_or_insert_default();
    }

    /// The stretches read since then: start and end.
    pub fn reads(&self) -> Vec<(u64, u64)> {
        self.inner.lock().reads.iter().flatten().copied().collect()
    }

    /// Runs `look` with faults disabled: reads of the judge do not count.
    pub fn undisturbed<T>(&self, look: impl FnOnce() -> T) -> T {
        let before = self.inner.lock().trouble.pause(true);
        let result = look();
        self.inner.lock().trouble.pause(before);
        result
    }

    /// Requests of a kind since a fault was armed.
    pub fn count(&self, operation: MediumOperation) -> u64 {
        self.inner.lock().trouble.count(operation)
    }

    /// Requests of a kind that the armed fault made fail.
    pub fn strikes(&self, operation: MediumOperation) -> u64 {
        self.inner.lock().trouble.strikes(operation)
    }

    /// Requests of any kind that the armed fault made fail.
    pub fn all_strikes(&self) -> u64 {
        self.inner.lock().trouble.all_strikes()
    }

    /// A digest of every request so far in order, including reads, with the written bytes.
    pub fn digest(&self) -> u128 {
        self.inner.lock().digest.value()
    }

    fn check(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        let unit = u64::from(self.atomic_unit);
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if inside && offset.is_multiple_of(unit) && length.is_multiple_of(unit) {
            return Ok(());
        }
        // The tests also cover the contract of the trait. A misaligned request, or one outside the
        // medium, is an error of the caller and never succeeds.
        Err(MediumError { operation, offset, length, class: ErrorClass::Permanent, os_error: 22 })
    }

    fn record(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), MediumError> {
        self.check(MediumOperation::Write, offset, data.len() as u64)?;
        let mut inner = self.inner.lock();
        inner.requests += 1;
        inner.digest.number(2 + u64::from(fua)).number(offset).bytes(data);
        if data.is_empty() {
            return Ok(());
        }
        if let Some((error, torn)) =
            inner.trouble.strike(MediumOperation::Write, offset, data.len() as u64)
        {
            if torn {
                let unit = self.atomic_unit as usize;
                inner.image.write(offset, &data[..data.len() / unit / 2 * unit]);
            }
            return Err(error);
        }
        inner.image.write(offset, data);
        let fua = fua && inner.lie != Lie::Fua;
        inner.events.push(Event::Write { offset, data: data.into(), fua });
        Ok(())
    }
}

impl Medium for Tape {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size,
            atomic_unit: self.atomic_unit,
            failure_model: FailureModel::PowerSafe,
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.check(MediumOperation::Read, offset, buffer.len() as u64)?;
        let mut inner = self.inner.lock();
        inner.requests += 1;
        inner.digest.number(0).number(offset).number(buffer.len() as u64);
        if let Some((error, _)) =
            inner.trouble.strike(MediumOperation::Read, offset, buffer.len() as u64)
        {
            return Err(error);
        }
        if let Some(reads) = &mut inner.reads {
            reads.insert((offset, offset + buffer.len() as u64));
        }
        if !inner.image.is_readable(offset, buffer.len() as u64) {
            let (operation, length) = (MediumOperation::Read, buffer.len() as u64);
            return Err(MediumError {
                operation,
                offset,
                length,
                class: ErrorClass::Permanent,
                os_error: 5,
            });
        }
        inner.image.read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.record(offset, data, false)
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        self.record(offset, &buffers.concat(), false)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.record(offset, data, true)
    }

    fn flush(&self) -> Result<(), MediumError> {
        let mut inner = self.inner.lock();
        inner.requests += 1;
        inner.digest.number(1);
        if let Some((error, _)) = inner.trouble.strike(MediumOperation::Flush, 0, 0) {
            return Err(error);
        }
        if inner.lie != Lie::Flush {
            inner.events.push(Event::Flush);
        }
        Ok(())
    }

    /// Never fails and is not counted: it is only advice, and faults are for requests that
    /// operations need.
    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.undisturbed(|| self.read(offset, buffer))
    }

    /// The volume then checks for other writers. There are none here, so a volume that reports one
    /// is wrong.
    fn may_be_shared(&self) -> bool {
        true
    }

    fn wants_discards(&self) -> bool {
        self.discards != Discards::Never
    }

    fn wants_discards_early(&self) -> bool {
        self.discards == Discards::Early
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.check(MediumOperation::Discard, offset, length)?;
        let mut inner = self.inner.lock();
        inner.requests += 1;
        inner.digest.number(4).number(offset).number(length);
        if let Some((error, _)) = inner.trouble.strike(MediumOperation::Discard, offset, length) {
            return Err(error);
        }
        inner.image.write(offset, &vec![DISCARDED; length as usize]);
        inner.events.push(Event::Discard { offset, length });
        Ok(())
    }
}
