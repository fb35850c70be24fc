//! A block device of the kernel as a medium.

use core::ffi::{c_int, c_void};

use alloc::vec::Vec;

use steadfast_media::{
    ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation, Temperature,
};

use crate::errno::{EIO, ENODEV, ENOMEM, ENOSPC, ENXIO};
use crate::shim::{self, SFK_READ, SFK_WRITE, SFK_WRITE_DURABLE, sfk_piece};

/// A block device that the mount holds open exclusively.
pub struct BlockDevice {
    device: *mut c_void,
    geometry: Geometry,
    /// It takes discards.
    discards: bool,
    /// What is freed is to be discarded.
    discards_freed: bool,
}

// SAFETY: the pointer is only passed to the kernel, which takes requests from several tasks at
// once. The mount holds the device until the volume is gone.
unsafe impl Send for BlockDevice {}
// SAFETY: as above.
unsafe impl Sync for BlockDevice {}

impl BlockDevice {
    /// The device, if its size and unit are those of a medium.
    pub fn new(
        device: *mut c_void,
        size: u64,
        unit: u32,
        (discards, discards_freed): (bool, bool),
    ) -> Option<Self> {
        let geometry = Geometry::new(size, unit, FailureModel::PowerSafe).ok()?;
        Some(BlockDevice { device, geometry, discards, discards_freed })
    }

    /// The same device, for a reader beside the volume.
    pub fn lent(&self) -> Self {
        let (device, geometry) = (self.device, self.geometry);
        BlockDevice { device, geometry, discards: false, discards_freed: false }
    }

    fn transfer(&self, kind: c_int, offset: u64, pieces: &[sfk_piece]) -> Result<(), MediumError> {
        let length = pieces.iter().map(|piece| piece.length as u64).sum();
        let operation =
            if kind == SFK_READ { MediumOperation::Read } else { MediumOperation::Write };
        self.geometry.check(operation, offset, length)?;
        // SAFETY: every piece is a slice of the caller, mutable if the kernel writes to it.
        let result = unsafe {
            shim::sfk_shim_transfer(self.device, kind, offset, pieces.as_ptr(), pieces.len())
        };
        answer(operation, offset, length, result)
    }
}

/// The error of a request, if it has one.
fn answer(
    operation: MediumOperation,
    offset: u64,
    length: u64,
    result: c_int,
) -> Result<(), MediumError> {
    if result == 0 {
        return Ok(());
    }
    let class = match -result {
        ENOMEM => ErrorClass::Transient,
        ENOSPC => ErrorClass::Full,
        ENODEV | ENXIO => ErrorClass::Gone,
        _ => ErrorClass::Permanent,
    };
    Err(MediumError { operation, offset, length, class, os_error: -result })
}

/// A list of pieces; without memory for it the request fails and may be repeated.
fn list(
    operation: MediumOperation,
    offset: u64,
    pieces: impl ExactSizeIterator<Item = sfk_piece>,
) -> Result<Vec<sfk_piece>, MediumError> {
    let mut list = Vec::new();
    if list.try_reserve_exact(pieces.len()).is_err() {
        return answer(operation, offset, 0, -ENOMEM).map(|()| list);
    }
    list.extend(pieces);
    Ok(list)
}

fn readable(data: &[u8]) -> sfk_piece {
    sfk_piece { data: data.as_ptr().cast_mut(), length: data.len() }
}

impl Medium for BlockDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let piece = sfk_piece { data: buffer.as_mut_ptr(), length: buffer.len() };
        self.transfer(SFK_READ, offset, &[piece])
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.transfer(SFK_WRITE, offset, &[readable(data)])
    }

    fn flush(&self) -> Result<(), MediumError> {
        // SAFETY: the mount holds the device.
        let result = unsafe { shim::sfk_shim_flush(self.device) };
        answer(MediumOperation::Flush, 0, 0, result)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        if !self.discards {
            return Ok(());
        }
        self.geometry.check(MediumOperation::Discard, offset, length)?;
        // SAFETY: the mount holds the device.
        let result = unsafe { shim::sfk_shim_discard(self.device, offset, length) };
        // Advice only: what the device cannot discard stays.
        let result = if result == -EIO { result } else { 0 };
        answer(MediumOperation::Discard, offset, length, result)
    }

    fn wants_discards(&self) -> bool {
        self.discards && self.discards_freed
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        let pieces = buffers
            .iter_mut()
            .map(|buffer| sfk_piece { data: buffer.as_mut_ptr(), length: buffer.len() });
        self.transfer(SFK_READ, offset, &list(MediumOperation::Read, offset, pieces)?)
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        let pieces = buffers.iter().map(|data| readable(data));
        self.transfer(SFK_WRITE, offset, &list(MediumOperation::Write, offset, pieces)?)
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        _temperature: Temperature,
    ) -> Result<(), MediumError> {
        self.write_vectored(offset, buffers)
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.transfer(SFK_WRITE_DURABLE, offset, &[readable(data)])
    }
}
