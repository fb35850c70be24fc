//! References and smart pointers to a medium are media themselves.

use alloc::boxed::Box;

use crate::sync::Arc;
use crate::{Geometry, Medium, MediumCounters, MediumError, Temperature, WaitHook};

/// Forwards every method, so that a default of the trait never hides a feature of the medium.
macro_rules! forward {
    ($($pointer:ty),+ $(,)?) => {$(
        impl<M: Medium + ?Sized> Medium for $pointer {
            fn geometry(&self) -> Geometry {
                (**self).geometry()
            }
            fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
                (**self).read(offset, buffer)
            }
            fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
                (**self).write(offset, data)
            }
            fn flush(&self) -> Result<(), MediumError> {
                (**self).flush()
            }
            fn may_be_shared(&self) -> bool {
                (**self).may_be_shared()
            }
            fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
                (**self).read_afresh(offset, buffer)
            }
            fn wants_discards(&self) -> bool {
                (**self).wants_discards()
            }
            fn wants_discards_early(&self) -> bool {
                (**self).wants_discards_early()
            }
            fn flushes_cheaply(&self) -> bool {
                (**self).flushes_cheaply()
            }
            fn upkeep(&self) -> Option<u64> {
                (**self).upkeep()
            }
            fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
                (**self).discard(offset, length)
            }
            fn will_read(&self, offset: u64, length: u64) {
                (**self).will_read(offset, length)
            }
            fn before_waits(&self, hook: WaitHook) {
                (**self).before_waits(hook)
            }
            fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
                (**self).read_vectored(offset, buffers)
            }
            fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
                (**self).write_vectored(offset, buffers)
            }
            fn write_hinted(
                &self,
                offset: u64,
                buffers: &[&[u8]],
                temperature: Temperature,
            ) -> Result<(), MediumError> {
                (**self).write_hinted(offset, buffers, temperature)
            }
            fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
                (**self).write_fua(offset, data)
            }
            fn set_size(&self, size: u64) -> Result<(), MediumError> {
                (**self).set_size(size)
            }
            fn copies(&self) -> u32 {
                (**self).copies()
            }
            fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
                (**self).read_copy(copy, offset, buffer)
            }
            fn report_bad(&self, copy: u32, offset: u64, length: u64) {
                (**self).report_bad(copy, offset, length)
            }
            fn counters(&self) -> Option<MediumCounters> {
                (**self).counters()
            }
        }
    )+};
}

forward!(&M, Arc<M>, Box<M>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMedium;

    fn round_trip(medium: impl Medium) {
        medium.write_vectored(0, &[&[1; 512], &[2; 512]]).unwrap();
        let mut found = [0; 1024];
        medium.read(0, &mut found).unwrap();
        assert_eq!((found[511], found[512]), (1, 2));
    }

    #[test]
    fn pointers_are_media() {
        let medium = MemoryMedium::new(4096, 512).unwrap();
        round_trip(&medium);
        round_trip(Arc::new(medium.clone()));
        let boxed: Box<dyn Medium> = Box::new(medium);
        round_trip(&*boxed);
        round_trip(boxed);
    }
}
