//! Whether a device has the bytes that it says. Cards exist whose controller counts more than
//! their memory holds: addresses above its end lead to its beginning, or nowhere.

use alloc::vec::Vec;

use engine::Error;
use steadfast_media::Medium;

use crate::codes;
use crate::device::Callbacks;
use crate::error::Failure;
use crate::guard::Outcome;

/// Writes a mark to the last unit and to the units at all powers of two, one after the other, and
/// looks where it is. What was there is put back, because the wishes of the caller may still be
/// refused. A power cut leaves at most one unit changed.
/// `failed` makes the failure for a lack of memory.
pub fn check_size(
    device: &Callbacks,
    wanted: Option<u64>,
    failed: fn(Error) -> Failure,
) -> Outcome {
    let geometry = device.geometry();
    let unit = u64::from(geometry.atomic_unit);
    let size = wanted.unwrap_or(geometry.size).min(geometry.size) / unit * unit;
    if size == 0 {
        // Formatting says what is wrong.
        return Ok(());
    }
    let mut before = zeros(geometry.atomic_unit as usize).map_err(failed)?;
    let mut found = zeros(geometry.atomic_unit as usize).map_err(failed)?;
    let last = size.saturating_sub(unit);
    let powers = (0..u64::BITS).map(|bit| 1_u64 << bit);
    for offset in powers.filter(|at| *at >= unit && *at < last).chain([last]) {
        device.read(offset, &mut before).map_err(Error::from)?;
        fill(&mut found, offset);
        device.write(offset, &found).map_err(Error::from)?;
        device.flush().map_err(Error::from)?;
        device.read(offset, &mut found).map_err(Error::from)?;
        let kept = is_filled(&found, offset);
        device.read(0, &mut found).map_err(Error::from)?;
        let wrapped = offset > 0 && is_filled(&found, offset);
        device.write(offset, &before).map_err(Error::from)?;
        if !kept || wrapped {
            return Err(Failure::new(
                codes::SF_EOVERFLOW,
                format_args!("the device does not keep what is written at {offset}"),
            ));
        }
    }
    Ok(())
}

fn zeros(length: usize) -> Result<Vec<u8>, Error> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
    buffer.resize(length, 0);
    Ok(buffer)
}

/// The mark of an offset: the offset in each eight bytes, with a pattern over it. It is neither all
/// ones nor all zeros, and no magic number of the format.
fn mark(offset: u64) -> [u8; 8] {
    (offset ^ 0x5afe_0b17_5afe_0b17).to_le_bytes()
}

fn fill(buffer: &mut [u8], offset: u64) {
    for part in buffer.chunks_mut(8) {
        for (to, from) in part.iter_mut().zip(mark(offset)) {
            *to = from;
        }
    }
}

fn is_filled(buffer: &[u8], offset: u64) -> bool {
    buffer.chunks(8).all(|part| part.iter().zip(mark(offset)).all(|(one, other)| *one == other))
}
