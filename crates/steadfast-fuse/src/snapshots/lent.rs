//! The medium of the live volume, lent to a view of a snapshot.

use std::sync::Arc;

use steadfast::{Platform, Volume};
use steadfast_media::{ErrorClass, Geometry, Medium, MediumError, MediumOperation};

/// Forwards reads. Refuses all changes of the medium, which a view never requests.
pub(crate) struct Lent<M: Medium, P: Platform>(pub(crate) Arc<Volume<M, P>>);

fn refused(operation: MediumOperation, offset: u64, length: u64) -> MediumError {
    MediumError { operation, offset, length, class: ErrorClass::Permanent, os_error: libc::EROFS }
}

impl<M: Medium, P: Platform> Medium for Lent<M, P> {
    fn geometry(&self) -> Geometry {
        self.0.medium().geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.0.medium().read(offset, buffer)
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        self.0.medium().read_vectored(offset, buffers)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        Err(refused(MediumOperation::Write, offset, data.len() as u64))
    }

    fn flush(&self) -> Result<(), MediumError> {
        Err(refused(MediumOperation::Flush, 0, 0))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        Err(refused(MediumOperation::Discard, offset, length))
    }

    fn copies(&self) -> u32 {
        self.0.medium().copies()
    }

    fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.0.medium().read_copy(copy, offset, buffer)
    }
}
