//! Drivers of the crate `embedded-storage` (version 0.3) as NOR parts.
//!
//! [`EmbeddedNor`] makes a [`Nor`] of every [`NorFlash`]. What the layers above rely on:
//!
//! - Requests to the driver are multiples of its read and write size, at multiples of them. What a
//!   read has too much is dropped. What a program lacks is filled up with ones, which change
//!   nothing.
//! - [`NorNand`](super::NorNand) programs no 32 aligned bytes twice between two erasures, but for
//!   the mark of a worn-out sector. So drivers without `MultiwriteNorFlash` will do, and memory that
//!   keeps a code for each word.
//! - A driver returns when the bytes are durable. It returns *some* bytes for words that a power cut
//!   has torn, or whose code does not match, and no error: the layer has its own checksums.

use core::fmt;

use embedded_storage::nor_flash::{NorFlash, NorFlashError, NorFlashErrorKind};

use super::{Nor, NorGeometry};
use crate::nand::{BlockNumber, NandError, NandOperation};

/// The largest read and write size, bytes: [`NorNand`](super::NorNand) needs programs of 32 bytes
/// that share no word with others.
const UNIT_MAX: usize = 32;
/// The smallest erase sector of the layer, bytes.
const SECTOR_MIN: usize = 4096;
/// The largest erase sector of the layer, bytes.
const SECTOR_MAX: usize = 65_536;

/// Why a driver does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DriverMisfit {
    /// `READ_SIZE` is not a power of two from 1 to 32 bytes.
    ReadSize(usize),
    /// `WRITE_SIZE` is not a power of two from 1 to 32 bytes.
    WriteSize(usize),
    /// `ERASE_SIZE` is not a power of two from 1 to 65,536 bytes, or below `WRITE_SIZE`.
    EraseSize(usize),
    /// The capacity is not from one to 65,536 erase sectors, or not below 4 GiB; bytes.
    Capacity(usize),
}

impl fmt::Display for DriverMisfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverMisfit::ReadSize(size) => {
                write!(f, "read size {size} is not a power of two from 1 to 32")
            }
            DriverMisfit::WriteSize(size) => {
                write!(f, "write size {size} is not a power of two from 1 to 32")
            }
            DriverMisfit::EraseSize(size) => {
                write!(f, "erase size {size} is not a power of two from the write size to 65536")
            }
            DriverMisfit::Capacity(size) => {
                write!(f, "capacity of {size} bytes is not from 1 to 65536 sectors below 4 GiB")
            }
        }
    }
}

impl core::error::Error for DriverMisfit {}

/// A driver of the crate `embedded-storage` as a NOR part.
///
/// An erase sector is what the driver erases at once, or 4,096 bytes where that is less. A rest of
/// the capacity below a sector is not used.
///
/// How errors of the driver appear:
///
/// | Driver | Part |
/// |---|---|
/// | `NotAligned`, `OutOfBounds` | [`NandError::Refused`] |
/// | another error of a read | [`NandError::Io`] |
/// | another error of a program or an erasure, after which a read fails | [`NandError::Io`] |
/// | another error of a program or an erasure, after which a read succeeds | [`NandError::Failed`] |
///
/// The error kinds do not tell a worn-out sector from a disturbed bus. A part that answers a read
/// has a working bus, so the sector counts as worn out. The layer moves its pages and leaves it out.
#[derive(Debug, Clone)]
pub struct EmbeddedNor<D> {
    driver: D,
    geometry: NorGeometry,
}

impl<D: NorFlash> EmbeddedNor<D> {
    /// The part of a driver, with the rated erasures of a sector.
    ///
    /// # Errors
    /// [`DriverMisfit`] names what is out of range.
    pub fn new(driver: D, cycles: u32) -> Result<EmbeddedNor<D>, DriverMisfit> {
        let power = |size: usize, most: usize| size.is_power_of_two() && size <= most;
        if !power(D::READ_SIZE, UNIT_MAX) {
            return Err(DriverMisfit::ReadSize(D::READ_SIZE));
        }
        if !power(D::WRITE_SIZE, UNIT_MAX) {
            return Err(DriverMisfit::WriteSize(D::WRITE_SIZE));
        }
        if !power(D::ERASE_SIZE, SECTOR_MAX) || D::ERASE_SIZE < D::WRITE_SIZE {
            return Err(DriverMisfit::EraseSize(D::ERASE_SIZE));
        }
        let (size, capacity) = (D::ERASE_SIZE.max(SECTOR_MIN), driver.capacity());
        let sectors = capacity / size;
        if !(1..=65_536).contains(&sectors) || u32::try_from(sectors * size).is_err() {
            return Err(DriverMisfit::Capacity(capacity));
        }
        let (sector_size, sectors) = (size as u32, sectors as u32);
        let geometry = NorGeometry { sector_size, sectors, program_size: sector_size, cycles };
        Ok(EmbeddedNor { driver, geometry })
    }

    /// The driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver. Operations on it bypass this layer.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Returns the driver.
    pub fn into_inner(self) -> D {
        self.driver
    }

    /// The error of a program or an erasure at this address.
    fn failed(&mut self, operation: NandOperation, address: u32, error: D::Error) -> NandError {
        let block = address / self.geometry.sector_size;
        let error = access_error(operation, block, error);
        let mut unit = [0; UNIT_MAX];
        let unit = unit.get_mut(..D::READ_SIZE).unwrap_or_default();
        let begin = address - address % D::READ_SIZE as u32;
        if matches!(error, NandError::Io { .. }) && self.driver.read(begin, unit).is_ok() {
            return NandError::Failed { operation, block };
        }
        error
    }

    /// Reads a part of one unit of the driver.
    fn read_within(&mut self, address: u32, buffer: &mut [u8]) -> Result<(), D::Error> {
        let skipped = address as usize % D::READ_SIZE;
        let mut unit = [0; UNIT_MAX];
        let unit = unit.get_mut(..D::READ_SIZE).unwrap_or_default();
        self.driver.read(address - skipped as u32, unit)?;
        for (to, from) in buffer.iter_mut().zip(unit.iter().skip(skipped)) {
            *to = *from;
        }
        Ok(())
    }

    /// Programs a part of one unit of the driver.
    fn program_within(&mut self, address: u32, data: &[u8]) -> Result<(), D::Error> {
        let skipped = address as usize % D::WRITE_SIZE;
        let mut unit = [0xff; UNIT_MAX];
        let unit = unit.get_mut(..D::WRITE_SIZE).unwrap_or_default();
        for (to, from) in unit.iter_mut().skip(skipped).zip(data) {
            *to = *from;
        }
        self.driver.write(address - skipped as u32, unit)
    }
}

impl<D: NorFlash + Send> Nor for EmbeddedNor<D> {
    fn geometry(&self) -> NorGeometry {
        self.geometry
    }

    fn read(&mut self, address: u32, buffer: &mut [u8]) -> Result<(), NandError> {
        let (head, body) = split(address, buffer.len(), D::READ_SIZE);
        let (first, rest) = buffer.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(body);
        let from = address.wrapping_add(head as u32);
        let mut read = || {
            if !first.is_empty() {
                self.read_within(address, first)?;
            }
            if !middle.is_empty() {
                self.driver.read(from, middle)?;
            }
            if last.is_empty() {
                return Ok(());
            }
            self.read_within(from.wrapping_add(body as u32), last)
        };
        let done = read();
        let block = address / self.geometry.sector_size;
        done.map_err(|error| access_error(NandOperation::Read, block, error))
    }

    fn program(&mut self, address: u32, data: &[u8]) -> Result<(), NandError> {
        let (head, body) = split(address, data.len(), D::WRITE_SIZE);
        let (first, rest) = data.split_at(head);
        let (middle, last) = rest.split_at(body);
        let from = address.wrapping_add(head as u32);
        let mut program = || {
            if !first.is_empty() {
                self.program_within(address, first)?;
            }
            if !middle.is_empty() {
                self.driver.write(from, middle)?;
            }
            if last.is_empty() {
                return Ok(());
            }
            self.program_within(from.wrapping_add(body as u32), last)
        };
        let done = program();
        done.map_err(|error| self.failed(NandOperation::Program, address, error))
    }

    fn erase(&mut self, sector: BlockNumber) -> Result<(), NandError> {
        let NorGeometry { sector_size, sectors, .. } = self.geometry;
        if sector.0 >= sectors {
            let (operation, rule) = (NandOperation::Erase, "the sector is outside the part");
            return Err(NandError::Refused { operation, block: sector.0, rule });
        }
        let from = sector.0 * sector_size;
        let done = self.driver.erase(from, from + sector_size);
        done.map_err(|error| self.failed(NandOperation::Erase, from, error))
    }
}

/// The bytes of a request before the first whole unit of the driver, and those in whole units.
fn split(address: u32, length: usize, unit: usize) -> (usize, usize) {
    let over = address as usize % unit;
    let head = if over == 0 { 0 } else { (unit - over).min(length) };
    (head, (length - head) / unit * unit)
}

fn access_error<E: NorFlashError>(operation: NandOperation, block: u32, error: E) -> NandError {
    let refused = |rule| NandError::Refused { operation, block, rule };
    match error.kind() {
        NorFlashErrorKind::NotAligned => refused("the driver wants other multiples"),
        NorFlashErrorKind::OutOfBounds => refused("the driver has fewer bytes"),
        _ => NandError::Io { operation, block, os_error: 0 },
    }
}
