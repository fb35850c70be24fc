//! The translation layer as a [`Medium`].
//!
//! The atomic unit is a page: each is written whole or not at all, and flushed pages persist.
//! Discarded ranges read as zeros until a power cut. After one they read as zeros or as before.

use spin::mutex::SpinMutex;
use steadfast_media::{
    ErrorClass, FailureModel, Geometry, Medium, MediumError, MediumOperation, Temperature,
};

use super::error::FlashError;
use super::state::Ftl;
use crate::nand::{Nand, NandError};

/// A translation layer behind a lock.
#[derive(Debug)]
pub struct FlashMedium<N> {
    ftl: SpinMutex<Ftl<N>>,
    geometry: Geometry,
}

impl<N: Nand> FlashMedium<N> {
    /// The medium on an open translation layer.
    pub fn new(ftl: Ftl<N>) -> FlashMedium<N> {
        let unit = ftl.geometry().page_size;
        let size = u64::from(ftl.layout().user_pages) * u64::from(unit);
        let geometry = Geometry { size, atomic_unit: unit, failure_model: FailureModel::PowerSafe };
        FlashMedium { ftl: SpinMutex::new(ftl), geometry }
    }

    /// Runs `work` with the translation layer locked; requests wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut Ftl<N>) -> T) -> T {
        work(&mut self.ftl.lock())
    }

    /// Closes cleanly, so that the next mount need not search for unfinished work.
    ///
    /// # Errors
    /// Errors of the part.
    pub fn close(&self) -> Result<(), FlashError> {
        self.ftl.lock().close()
    }

    /// Returns the translation layer.
    pub fn into_inner(self) -> Ftl<N> {
        self.ftl.into_inner()
    }

    fn pages(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<core::ops::Range<u32>, MediumError> {
        self.geometry.check(operation, offset, length)?;
        let unit = u64::from(self.geometry.atomic_unit);
        Ok((offset / unit) as u32..((offset + length) / unit) as u32)
    }
}

fn medium_error(
    error: FlashError,
    operation: MediumOperation,
    offset: u64,
    length: u64,
) -> MediumError {
    let (class, os_error) = match error {
        FlashError::Nand(NandError::Gone) => (ErrorClass::Gone, 0),
        FlashError::Nand(NandError::Io { os_error, .. }) => (ErrorClass::Permanent, os_error),
        _ => (ErrorClass::Permanent, 0),
    };
    MediumError { operation, offset, length, class, os_error }
}

impl<N: Nand> Medium for FlashMedium<N> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let length = buffer.len() as u64;
        let pages = self.pages(MediumOperation::Read, offset, length)?;
        let mut ftl = self.ftl.lock();
        for (page, data) in pages.zip(buffer.chunks_exact_mut(self.geometry.atomic_unit as usize)) {
            ftl.read_page(page, data)
                .map_err(|error| medium_error(error, MediumOperation::Read, offset, length))?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.write_hinted(offset, &[data], Temperature::Cold)
    }

    fn write_hinted(
        &self,
        mut offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        for data in buffers {
            let length = data.len() as u64;
            let pages = self.pages(MediumOperation::Write, offset, length)?;
            for (page, data) in pages.zip(data.chunks_exact(self.geometry.atomic_unit as usize)) {
                let written = self.ftl.lock().write_hinted(page, data, temperature);
                written
                    .map_err(|error| medium_error(error, MediumOperation::Write, offset, length))?;
            }
            offset += length;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.ftl.lock().flush().map_err(|error| medium_error(error, MediumOperation::Flush, 0, 0))
    }

    fn wants_discards(&self) -> bool {
        true
    }

    fn wants_discards_early(&self) -> bool {
        true
    }

    /// A page of its own is durable as soon as it is programmed.
    fn flushes_cheaply(&self) -> bool {
        true
    }

    fn upkeep(&self) -> Option<u64> {
        Some(self.ftl.lock().upkeep_bytes())
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        let pages = self.pages(MediumOperation::Discard, offset, length)?;
        let trimmed = self.ftl.lock().trim(pages.start, pages.end - pages.start);
        trimmed.map_err(|error| medium_error(error, MediumOperation::Discard, offset, length))
    }
}
