//! An array as a medium.

use steadfast_media::{
    ErrorClass, FailureModel, Geometry, Medium, MediumCounters, MediumError, MediumOperation,
};

use super::{Array, ArrayError, BLOCK, Fleet};

fn failed(operation: MediumOperation, offset: u64, length: u64, error: &ArrayError) -> MediumError {
    let class = match error {
        ArrayError::TooManyLost
        | ArrayError::Fenced
        | ArrayError::Closed
        | ArrayError::Unreachable(..)
        | ArrayError::Witness(_) => ErrorClass::Gone,
        _ => ErrorClass::Permanent,
    };
    MediumError { operation, offset, length, class, os_error: 0 }
}

impl<F: Fleet> Medium for Array<F> {
    /// Power-safe as long as no more servers are lost than the policy survives.
    fn geometry(&self) -> Geometry {
        Geometry {
            size: u64::from(self.shape.blocks) * BLOCK as u64,
            atomic_unit: BLOCK as u32,
            failure_model: FailureModel::PowerSafe,
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let length = buffer.len() as u64;
        self.geometry().check(MediumOperation::Read, offset, length)?;
        self.fetch((offset / BLOCK as u64) as u32, buffer, false)
            .map_err(|error| failed(MediumOperation::Read, offset, length, &error))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        let length = data.len() as u64;
        self.geometry().check(MediumOperation::Write, offset, length)?;
        self.append((offset / BLOCK as u64) as u32, data)
            .map_err(|error| failed(MediumOperation::Write, offset, length, &error))
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.flush_all().map_err(|error| failed(MediumOperation::Flush, 0, 0, &error))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        // One record with the blocks that already wait costs no more than one with these bytes
        // alone.
        self.write(offset, data)?;
        self.flush()
    }

    fn wants_discards(&self) -> bool {
        true
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.geometry().check(MediumOperation::Discard, offset, length)?;
        let first = (offset / BLOCK as u64) as u32;
        self.forget(first, (length / BLOCK as u64) as u32)
            .map_err(|error| failed(MediumOperation::Discard, offset, length, &error))
    }

    fn counters(&self) -> Option<MediumCounters> {
        Some(self.tally.counters())
    }
}

impl<F: Fleet> Array<F> {
    /// Discards blocks: their space is free after their segments are marked or cleaned.
    fn forget(&self, first: u32, count: u32) -> Result<(), ArrayError> {
        let mut log = self.log_to_write()?;
        let range = first..first.saturating_add(count);
        log.waiting.retain(|block| !range.contains(block));
        let mut map = self.map.write();
        range.for_each(|block| map.clear(block));
        Ok(())
    }
}
