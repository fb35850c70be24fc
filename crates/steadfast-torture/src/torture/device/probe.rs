//! Raw records beside the volume: what the medium itself keeps.
//!
//! A record is one write of eight atomic units. Each unit names its run, its record and its place,
//! and has its own checksum. So after a power cut a unit is old, new, or neither; neither means
//! that the medium tears inside its atomic unit. Old and new units in one record are allowed: every
//! medium may leave them after a write in flight.

use steadfast::checksum::crc32c_portable;
use steadfast_media::Medium;

use super::DeviceError;
use super::layout::{Layout, RECORD_UNITS};
use crate::random::pattern;

const MAGIC: &[u8; 8] = b"SFPROBE1";
const FIELDS: usize = 40;
const CRC: usize = 4;

/// The contents of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Zeros: not written since the medium was prepared.
    Blank,
    /// A complete unit of this record.
    Record(u64),
    /// Anything else.
    Garbage,
}

/// Fills the ring with zeros, so that earlier contents are not taken for a record or for a tear.
///
/// # Errors
/// The medium's.
pub fn clear(medium: &impl Medium, layout: &Layout) -> Result<(), DeviceError> {
    let zeros = vec![0; layout.record_length() as usize];
    for number in 0..layout.records {
        medium.write(layout.record_offset(number), &zeros)?;
    }
    Ok(())
}

/// Writes the record of transaction `number`; durable after the next flush.
///
/// # Errors
/// The medium's.
pub fn write(medium: &impl Medium, layout: &Layout, number: u64) -> Result<(), DeviceError> {
    let units: Vec<u8> = (0..RECORD_UNITS).flat_map(|place| unit(layout, number, place)).collect();
    Ok(medium.write(layout.record_offset(number), &units)?)
}

/// The units at the place in the ring that transaction `number` uses.
///
/// # Errors
/// The medium's.
pub fn read(medium: &impl Medium, layout: &Layout, number: u64) -> Result<Vec<Unit>, DeviceError> {
    let mut bytes = vec![0; layout.record_length() as usize];
    medium.read(layout.record_offset(number), &mut bytes)?;
    let units = bytes.chunks(layout.unit as usize).zip(0..);
    Ok(units.map(|(bytes, place)| classify(layout, bytes, number, place)).collect())
}

fn unit(layout: &Layout, number: u64, place: u64) -> Vec<u8> {
    let mut bytes = vec![0; layout.unit as usize];
    let body = bytes.len().saturating_sub(CRC);
    let (fields, crc) = bytes.split_at_mut(body);
    let (fields, filler) = fields.split_at_mut(FIELDS);
    fields[..8].copy_from_slice(MAGIC);
    fields[8..24].copy_from_slice(&layout.run);
    fields[24..32].copy_from_slice(&number.to_le_bytes());
    fields[32..40].copy_from_slice(&place.to_le_bytes());
    // Every byte differs from the previous record in this place, so that no tear is hidden.
    pattern((number as u32) | 1, place << 32, filler);
    let sum = crc32c_portable(crc32c_portable(0, fields), filler);
    crc.copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn classify(layout: &Layout, bytes: &[u8], expected: u64, place: u64) -> Unit {
    if bytes.iter().all(|byte| *byte == 0) {
        return Unit::Blank;
    }
    let number = bytes.get(24..32).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
    match number {
        Some(number)
            if number % layout.records == expected % layout.records
                && bytes == unit(layout, number, place) =>
        {
            Unit::Record(number)
        }
        _ => Unit::Garbage,
    }
}

#[cfg(test)]
mod tests {
    use steadfast_media::MemoryMedium;

    use super::*;

    #[test]
    fn units_are_old_new_or_neither() {
        let medium = MemoryMedium::new(32 << 20, 512).unwrap();
        let layout = Layout::new(medium.geometry(), [3; 16], 5).unwrap();
        medium.write(layout.record_offset(2), &[9; 512]).unwrap();
        clear(&medium, &layout).unwrap();
        assert_eq!(read(&medium, &layout, 2).unwrap(), [Unit::Blank; 8]);
        write(&medium, &layout, 2).unwrap();
        assert_eq!(read(&medium, &layout, 2).unwrap(), [Unit::Record(2); 8]);
        let newer = 2 + layout.records;
        let new = unit(&layout, newer, 3);
        medium.write(layout.record_offset(2) + 3 * 512, &new).unwrap();
        let mut torn = unit(&layout, newer, 5);
        torn[300..].copy_from_slice(&unit(&layout, 2, 5)[300..]);
        medium.write(layout.record_offset(2) + 5 * 512, &torn).unwrap();
        let units = read(&medium, &layout, newer).unwrap();
        assert_eq!(
            (units[2], units[3], units[5]),
            (Unit::Record(2), Unit::Record(newer), Unit::Garbage)
        );
    }

    #[test]
    fn another_run_or_another_place_is_no_record() {
        let medium = MemoryMedium::new(32 << 20, 512).unwrap();
        let layout = Layout::new(medium.geometry(), [3; 16], 5).unwrap();
        write(&medium, &Layout { run: [4; 16], ..layout }, 1).unwrap();
        assert_eq!(read(&medium, &layout, 1).unwrap(), [Unit::Garbage; 8]);
        medium.write(layout.record_offset(1), &unit(&layout, 1, 7)).unwrap();
        assert_eq!(read(&medium, &layout, 1).unwrap()[0], Unit::Garbage);
    }
}
