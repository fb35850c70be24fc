//! A medium that retries: reads, writes and discards whose error says that a retry may help.
//!
//! Everything in the core goes through it, so callers do not see a transient error of the medium. A
//! flush is never retried. A failed flush may have lost the data that it should have made durable.
//! A device that was reset loses its write cache, and a kernel its dirty pages. A second flush that
//! succeeds would then report a false success.

use steadfast_media::{ErrorClass, Geometry, Medium, MediumError, Temperature, WaitHook};

/// How often a request with a transient error is tried before the error is returned.
const TRIES: u32 = 3;

/// See the module.
pub(crate) struct Retry<M>(pub M);

fn retry(mut request: impl FnMut() -> Result<(), MediumError>) -> Result<(), MediumError> {
    let mut tries = 1;
    loop {
        match request() {
            Err(error) if error.class == ErrorClass::Transient && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

impl<M: Medium> Medium for Retry<M> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        retry(|| self.0.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        retry(|| self.0.write(offset, data))
    }

    fn may_be_shared(&self) -> bool {
        self.0.may_be_shared()
    }

    fn read_afresh(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        retry(|| self.0.read_afresh(offset, buffer))
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.0.flush()
    }

    fn wants_discards(&self) -> bool {
        self.0.wants_discards()
    }

    fn wants_discards_early(&self) -> bool {
        self.0.wants_discards_early()
    }

    fn flushes_cheaply(&self) -> bool {
        self.0.flushes_cheaply()
    }

    fn upkeep(&self) -> Option<u64> {
        self.0.upkeep()
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        retry(|| self.0.discard(offset, length))
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.0.will_read(offset, length)
    }

    fn before_waits(&self, hook: WaitHook) {
        self.0.before_waits(hook)
    }

    fn read_vectored(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<(), MediumError> {
        retry(|| self.0.read_vectored(offset, buffers))
    }

    fn write_vectored(&self, offset: u64, buffers: &[&[u8]]) -> Result<(), MediumError> {
        retry(|| self.0.write_vectored(offset, buffers))
    }

    fn write_hinted(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        temperature: Temperature,
    ) -> Result<(), MediumError> {
        retry(|| self.0.write_hinted(offset, buffers, temperature))
    }

    // A forced write is a write and, on many media, a flush of the cache; the module says why it
    // gets one try.
    fn write_fua(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.0.write_fua(offset, data)
    }

    fn copies(&self) -> u32 {
        self.0.copies()
    }

    fn set_size(&self, size: u64) -> Result<(), MediumError> {
        self.0.set_size(size)
    }

    fn read_copy(&self, copy: u32, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        retry(|| self.0.read_copy(copy, offset, buffer))
    }

    fn report_bad(&self, copy: u32, offset: u64, length: u64) {
        self.0.report_bad(copy, offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_media::sim::{Action, Fault};
    use steadfast_media::{MediumOperation, SimMedium, SimOptions};

    fn medium(operation: MediumOperation, times: u64) -> Retry<SimMedium> {
        let medium = SimMedium::new(SimOptions::disk(4096));
        medium.arm(Fault::new(Action::Fail(ErrorClass::Transient)).on(operation).times(times));
        Retry(medium)
    }

    #[test]
    fn two_hiccups_are_seen_by_nobody_and_three_are() {
        let unit = medium(MediumOperation::Read, 0).geometry().atomic_unit as usize;
        let mut buffer = alloc::vec![0; unit];
        assert!(medium(MediumOperation::Read, 2).read(0, &mut buffer).is_ok());
        assert!(medium(MediumOperation::Read, 3).read(0, &mut buffer).is_err());
        assert!(medium(MediumOperation::Write, 2).write(0, &buffer).is_ok());
        assert!(medium(MediumOperation::Write, 3).write(0, &buffer).is_err());
    }

    #[test]
    fn a_flush_is_not_tried_again() {
        assert!(medium(MediumOperation::Flush, 1).flush().is_err());
    }
}
