//! A medium of 2 MiB in RAM with units of 512 bytes. It counts, and it loses power where it is told
//! to.
//!
//! What was written and not flushed is kept, lost, or kept in every other unit. So a write of
//! several units may be torn, and writes may arrive in another order than they were made.

use core::cell::Cell;

use steadfast_bare::RacyCell;
use steadfast_media::{ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation};

use crate::machine;

/// Bytes of the medium.
pub const SIZE: usize = 2 << 20;
/// Bytes that are written whole or not at all.
pub const UNIT: usize = 512;
const UNITS: usize = SIZE / UNIT;

/// What reads return.
#[unsafe(link_section = ".chip")]
static NOW: RacyCell<[u8; SIZE]> = RacyCell::new([0; SIZE]);
/// What a power cut leaves in any case.
static FLUSHED: RacyCell<[u8; SIZE]> = RacyCell::new([0; SIZE]);
/// Which units no flush has covered.
static UNFLUSHED: RacyCell<[bool; UNITS]> = RacyCell::new([false; UNITS]);

/// What a power cut does to the units that no flush has covered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All of them are there.
    Nothing,
    /// None of them is.
    Everything,
    /// Those with an even number are there.
    OddUnits,
}

/// Requests since [`Chip::take_counts`].
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Instructions inside the medium.
    pub instructions: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// The medium. There is one.
pub struct Chip {
    counts: Cell<Counts>,
    /// Writes and flushes until the power fails; 0: it does not.
    left: Cell<u32>,
    events: Cell<u32>,
    loss: Cell<Loss>,
    off: Cell<bool>,
    size: Cell<usize>,
}

// SAFETY: there is one task.
unsafe impl Sync for Chip {}
// SAFETY: there is one task.
unsafe impl Send for Chip {}

/// The medium of the program.
pub static CHIP: Chip = Chip {
    counts: Cell::new(Counts {
        instructions: 0,
        reads: 0,
        read_bytes: 0,
        writes: 0,
        written_bytes: 0,
        flushes: 0,
    }),
    left: Cell::new(0),
    events: Cell::new(0),
    loss: Cell::new(Loss::Nothing),
    off: Cell::new(false),
    size: Cell::new(SIZE),
};

fn now() -> &'static mut [u8; SIZE] {
    // SAFETY: there is one task, and every caller is done with it before it calls anything else.
    unsafe { &mut *NOW.get() }
}

fn flushed() -> &'static mut [u8; SIZE] {
    // SAFETY: as in `now`.
    unsafe { &mut *FLUSHED.get() }
}

fn unflushed() -> &'static mut [bool; UNITS] {
    // SAFETY: as in `now`.
    unsafe { &mut *UNFLUSHED.get() }
}

/// Where a unit is.
fn place(unit: usize) -> core::ops::Range<usize> {
    unit * UNIT..(unit + 1) * UNIT
}

impl Chip {
    /// The counts since the last call.
    pub fn take_counts(&self) -> Counts {
        self.counts.take()
    }

    /// Writes and flushes since [`fail_at`](Self::fail_at).
    pub fn events(&self) -> u32 {
        self.events.get()
    }

    /// Makes the medium smaller than it is.
    pub fn set_size(&self, bytes: usize) {
        self.size.set(bytes);
    }

    /// The power fails at this write or flush from now on, the first being 1; 0: it does not.
    pub fn fail_at(&self, event: u32, loss: Loss) {
        self.left.set(event);
        self.events.set(0);
        self.loss.set(loss);
    }

    /// Whether the power has failed.
    pub fn is_off(&self) -> bool {
        self.off.get()
    }

    /// The power is back, or is lost now and back at once. What was not flushed is there or not.
    pub fn power_up(&self) {
        self.off.set(false);
        self.left.set(0);
        for (unit, pending) in unflushed().iter_mut().enumerate() {
            if core::mem::take(pending) {
                let kept = match self.loss.get() {
                    Loss::Nothing => true,
                    Loss::Everything => false,
                    Loss::OddUnits => unit % 2 == 0,
                };
                if kept {
                    flushed()[place(unit)].copy_from_slice(&now()[place(unit)]);
                } else {
                    now()[place(unit)].copy_from_slice(&flushed()[place(unit)]);
                }
            }
        }
    }

    /// Copies the content away.
    pub fn save(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&now()[..bytes.len()]);
    }

    /// Puts back what [`save`](Self::save) has copied.
    pub fn restore(&self, bytes: &[u8]) {
        unflushed().fill(false);
        now()[..bytes.len()].copy_from_slice(bytes);
        flushed()[..bytes.len()].copy_from_slice(bytes);
    }

    /// Counts a write or a flush; `false` if the power fails during it.
    fn event(&self) -> bool {
        self.events.set(self.events.get() + 1);
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            self.off.set(self.left.get() == 0);
        }
        !self.off.get()
    }

    /// Runs a request, whose instructions do not count as those of the file system.
    fn request(
        &self,
        operation: MediumOperation,
        range: (u64, usize),
        run: impl FnOnce(&mut Counts) -> bool,
    ) -> Result<(), MediumError> {
        let from = machine::counter();
        let mut counts = self.counts.get();
        let aligned = range.0.is_multiple_of(UNIT as u64) && range.1.is_multiple_of(UNIT);
        assert!(aligned && range.0 + range.1 as u64 <= self.size.get() as u64);
        let done = !self.off.get() && run(&mut counts);
        counts.instructions += machine::instructions(from, machine::counter());
        self.counts.set(counts);
        if done {
            return Ok(());
        }
        let class = ErrorClass::Gone;
        Err(MediumError { operation, offset: range.0, length: range.1 as u64, class, os_error: 0 })
    }
}

impl Medium for &Chip {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size.get() as u64,
            atomic_unit: UNIT as u32,
            failure_model: FailureModel::PowerSafe,
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.request(MediumOperation::Read, (offset, buffer.len()), |counts| {
            counts.reads += 1;
            counts.read_bytes += buffer.len() as u64;
            let at = offset as usize;
            buffer.copy_from_slice(&now()[at..at + buffer.len()]);
            true
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.request(MediumOperation::Write, (offset, data.len()), |counts| {
            counts.writes += 1;
            counts.written_bytes += data.len() as u64;
            let at = offset as usize;
            // The units of the write that fails count like others that were not flushed.
            now()[at..at + data.len()].copy_from_slice(data);
            unflushed()[at / UNIT..(at + data.len()) / UNIT].fill(true);
            self.event()
        })
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.request(MediumOperation::Flush, (0, 0), |counts| {
            counts.flushes += 1;
            if !self.event() {
                return false;
            }
            if cfg!(feature = "lying-flush") {
                return true;
            }
            for (unit, pending) in unflushed().iter_mut().enumerate() {
                if core::mem::take(pending) {
                    flushed()[place(unit)].copy_from_slice(&now()[place(unit)]);
                }
            }
            true
        })
    }
}
