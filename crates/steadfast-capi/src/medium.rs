//! All media that this interface can open, as one type.

use steadfast_media::{Geometry, Medium, MediumError};

use crate::device::Callbacks;

/// The caller's device, or an image file.
pub enum AnyMedium {
    Device(Callbacks),
    #[cfg(feature = "std")]
    Image(steadfast_host::FileMedium),
}

/// Forwards a call to the actual medium.
macro_rules! pass {
    ($self:ident, $medium:ident => $call:expr) => {
        match $self {
            AnyMedium::Device($medium) => $call,
            #[cfg(feature = "std")]
            AnyMedium::Image($medium) => $call,
        }
    };
}

impl Medium for AnyMedium {
    fn geometry(&self) -> Geometry {
        pass!(self, medium => medium.geometry())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        pass!(self, medium => medium.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        pass!(self, medium => medium.write(offset, data))
    }

    fn flush(&self) -> Result<(), MediumError> {
        pass!(self, medium => medium.flush())
    }

    fn may_be_shared(&self) -> bool {
        pass!(self, medium => medium.may_be_shared())
    }

    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        pass!(self, medium => medium.read_afresh(offset, buffer))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        pass!(self, medium => medium.discard(offset, length))
    }

    fn will_read(&self, offset: u64, length: u64) {
        pass!(self, medium => medium.will_read(offset, length))
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        pass!(self, medium => medium.read_vectored(offset, buffers))
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        pass!(self, medium => medium.write_vectored(offset, buffers))
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        pass!(self, medium => medium.write_fua(offset, data))
    }
}
