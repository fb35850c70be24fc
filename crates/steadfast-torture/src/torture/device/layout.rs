//! The layout of a medium under torture: the volume, then one header, then the ring of raw records.

use steadfast::checksum::crc32c_portable;
use steadfast_media::{Geometry, Medium};

use super::DeviceError;

/// Length of a raw record in atomic units. The request can tear between units, so a tear *inside* a
/// unit shows.
pub const RECORD_UNITS: u64 = 8;
/// The largest volume. Verifying reads all of it, and a larger one would show nothing more.
const VOLUME_MAX: u64 = 1 << 30;
/// The smallest volume that holds the files of the workload with room to rewrite them.
const VOLUME_MIN: u64 = 16 << 20;
/// Maximum number of records in the ring; each is checked.
const RECORDS_MAX: u64 = 1024;
/// Minimum number of records in the ring.
const RECORDS_MIN: u64 = 16;
/// A raw unit needs 40 bytes and a checksum; units smaller than a disk's sector are not used.
const UNIT_MIN: u32 = 512;

const MAGIC: &[u8; 8] = b"SFTORTUR";
const HEADER_LENGTH: usize = 56;

/// The layout of one medium, and the run that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Identifies the run: a witness of another run is worthless here.
    pub run: [u8; 16],
    /// Seed of the transactions.
    pub seed: u64,
    /// Bytes of the volume, which begins at offset 0.
    pub volume_size: u64,
    /// The atomic unit, or a sector if the medium has smaller units, bytes.
    pub unit: u32,
    /// Records in the ring.
    pub records: u64,
}

impl Layout {
    /// Divides a medium.
    ///
    /// # Errors
    /// `TooSmall`.
    pub fn new(geometry: Geometry, run: [u8; 16], seed: u64) -> Result<Layout, DeviceError> {
        let unit = geometry.atomic_unit.max(UNIT_MIN);
        let record = u64::from(unit) * RECORD_UNITS;
        let needed = VOLUME_MIN + record * (RECORDS_MIN + 1);
        if geometry.size < needed {
            return Err(DeviceError::TooSmall { size: geometry.size, needed });
        }
        // The ring takes an eighth if space is scarce. Both ends are whole records, so everything
        // is aligned.
        let records = (geometry.size / 8 / record).clamp(RECORDS_MIN, RECORDS_MAX);
        let volume_size = (geometry.size - record * (records + 1)).min(VOLUME_MAX);
        // Whole records, and whole blocks of the largest size.
        let step = record.max(1 << 16);
        Ok(Layout { run, seed, volume_size: volume_size - volume_size % step, unit, records })
    }

    /// Bytes of a raw record.
    pub fn record_length(&self) -> u64 {
        u64::from(self.unit) * RECORD_UNITS
    }

    /// Offset of the raw record of transaction `number`, bytes.
    pub fn record_offset(&self, number: u64) -> u64 {
        self.volume_size + self.record_length() * (1 + number % self.records)
    }

    /// End of the layout, bytes.
    pub fn end(&self) -> u64 {
        self.volume_size + self.record_length() * (1 + self.records)
    }

    /// Writes the header; durable after the next flush.
    ///
    /// # Errors
    /// The medium's.
    pub fn write(&self, medium: &impl Medium) -> Result<(), DeviceError> {
        let mut unit = vec![0; self.unit as usize];
        let mut header = Vec::with_capacity(HEADER_LENGTH);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&self.run);
        header.extend_from_slice(&self.seed.to_le_bytes());
        header.extend_from_slice(&self.volume_size.to_le_bytes());
        header.extend_from_slice(&self.records.to_le_bytes());
        header.extend_from_slice(&self.unit.to_le_bytes());
        header.extend_from_slice(&crc32c_portable(0, &header).to_le_bytes());
        unit[..HEADER_LENGTH].copy_from_slice(&header);
        Ok(medium.write(self.volume_size, &unit)?)
    }

    /// Reads the header of an earlier run. Its position follows from the size of the medium alone.
    ///
    /// # Errors
    /// `NotPrepared`, `TooSmall`, the medium's.
    pub fn read(medium: &impl Medium) -> Result<Layout, DeviceError> {
        let expected = Layout::new(medium.geometry(), [0; 16], 0)?;
        let mut unit = vec![0; expected.unit as usize];
        medium.read(expected.volume_size, &mut unit)?;
        let found = parse(&unit).ok_or(DeviceError::NotPrepared)?;
        let same = Layout { run: found.run, seed: found.seed, ..expected };
        if found == same { Ok(found) } else { Err(DeviceError::NotPrepared) }
    }
}

fn parse(unit: &[u8]) -> Option<Layout> {
    let header = unit.get(..HEADER_LENGTH)?;
    let (body, crc) = header.split_at(HEADER_LENGTH - 4);
    let (magic, rest) = body.split_at(MAGIC.len());
    if magic != MAGIC || crc != crc32c_portable(0, body).to_le_bytes() {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
    Some(Layout {
        run: rest.get(..16)?.try_into().ok()?,
        seed: word(16)?,
        volume_size: word(24)?,
        records: word(32)?,
        unit: u32::from_le_bytes(rest.get(40..44)?.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use steadfast_media::{FailureModel, MemoryMedium};

    use super::*;

    #[test]
    fn everything_fits_and_is_aligned() {
        for unit in [1, 512, 4096, 65_536] {
            for size in [17 << 20, 32 << 20, 100_000_000, 5 << 30, 1 << 40] {
                let geometry = Geometry::new(size, unit, FailureModel::PowerSafe).unwrap();
                let Ok(layout) = Layout::new(geometry, [1; 16], 2) else {
                    assert!(size < 32 << 20, "{size} bytes in units of {unit}");
                    continue;
                };
                assert!(
                    layout.end() <= size && layout.volume_size >= 14 << 20,
                    "{layout:?} of {size}"
                );
                assert!(
                    layout.volume_size.is_multiple_of(unit.into()) && layout.records >= RECORDS_MIN
                );
            }
        }
    }

    #[test]
    fn the_header_is_found_again() {
        let medium = MemoryMedium::new(32 << 20, 512).unwrap();
        assert!(matches!(Layout::read(&medium), Err(DeviceError::NotPrepared)));
        let layout = Layout::new(medium.geometry(), [7; 16], 9).unwrap();
        layout.write(&medium).unwrap();
        assert_eq!(Layout::read(&medium).unwrap(), layout);
    }
}
