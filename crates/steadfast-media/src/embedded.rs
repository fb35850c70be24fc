//! Drivers of the crate `embedded-storage` (version 0.3) as media: SD cards, eMMC, FRAM.
//!
//! The trait [`Storage`] says nothing about power cuts and flushes, so the caller does, in
//! [`StorageOptions`]. What the driver and its device must promise:
//!
//! - A write of one aligned atomic unit is old or new after a power cut.
//! - A write is durable when it returns, or when [`StorageOptions::flush`] has returned.
//!
//! `RmwNorFlashStorage` of that crate breaks the first promise: it erases a sector before it writes
//! it. NOR flash needs a translation layer.

use core::fmt;

use embedded_storage::{ReadStorage, Storage};
use spin::mutex::SpinMutex;

use crate::{
    ErrorClass, FailureModel, Geometry, GeometryError, Medium, MediumError, MediumOperation,
};

/// What a driver promises, and how it says so.
pub struct StorageOptions<S: ReadStorage> {
    /// Bytes that are written whole or not at all, at multiples of them; a power of two from 1 to
    /// 65,536. A sector of 512 bytes for SD cards and eMMC.
    pub atomic_unit: u32,
    /// Makes all writes that have returned durable.
    pub flush: fn(&mut S) -> Result<(), S::Error>,
    /// Whether a retry can help. The file system tries [`ErrorClass::Transient`] errors three
    /// times. It takes [`ErrorClass::Permanent`] ones of a read for a damaged place.
    pub class: fn(&S::Error) -> ErrorClass,
}

impl<S: ReadStorage> StorageOptions<S> {
    /// A driver whose writes are durable when they return, with this atomic unit. All errors are
    /// permanent.
    #[must_use]
    pub fn durable(atomic_unit: u32) -> StorageOptions<S> {
        StorageOptions { atomic_unit, flush: |_| Ok(()), class: |_| ErrorClass::Permanent }
    }
}

impl<S: ReadStorage> Clone for StorageOptions<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ReadStorage> Copy for StorageOptions<S> {}

impl<S: ReadStorage> fmt::Debug for StorageOptions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.atomic_unit;
        f.debug_struct("StorageOptions").field("atomic_unit", &unit).finish_non_exhaustive()
    }
}

/// A driver of the crate `embedded-storage` as a medium.
///
/// Addresses of the trait have 32 bits, so bytes from 4 GiB on are not used. One request at a time
/// is in the driver; others wait in a loop. Where tasks have different priorities, a mutex of the
/// program around the volume must keep a second task out.
pub struct StorageMedium<S: ReadStorage> {
    storage: SpinMutex<S>,
    options: StorageOptions<S>,
    geometry: Geometry,
}

impl<S: Storage> StorageMedium<S> {
    /// A medium on all whole units of the driver's capacity.
    ///
    /// # Errors
    /// [`GeometryError`] if the atomic unit is not a power of two from 1 to 65,536.
    pub fn new(storage: S, options: StorageOptions<S>) -> Result<Self, GeometryError> {
        let size = (storage.capacity() as u64).min(1 << 32);
        let geometry = Geometry::new(size, options.atomic_unit, FailureModel::PowerSafe)?;
        Ok(StorageMedium { storage: SpinMutex::new(storage), options, geometry })
    }

    /// Runs `work` with the driver locked; requests wait.
    pub fn with<T>(&self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.storage.lock())
    }

    /// Returns the driver.
    pub fn into_inner(self) -> S {
        self.storage.into_inner()
    }

    /// Checks a request and gives it to the driver.
    fn request(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: usize,
        run: impl FnOnce(&mut S, u32) -> Result<(), S::Error>,
    ) -> Result<(), MediumError> {
        let length = length as u64;
        self.geometry.check(operation, offset, length)?;
        if length == 0 && operation != MediumOperation::Flush {
            return Ok(());
        }
        // Inside the medium and not empty, so it is below 4 GiB.
        let done = run(&mut self.storage.lock(), offset as u32);
        done.map_err(|error| {
            let class = (self.options.class)(&error);
            MediumError { operation, offset, length, class, os_error: 0 }
        })
    }
}

impl<S: ReadStorage> fmt::Debug for StorageMedium<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageMedium").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl<S: Storage + Send> Medium for StorageMedium<S> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.request(MediumOperation::Read, offset, buffer.len(), |storage, at| {
            storage.read(at, buffer)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.request(MediumOperation::Write, offset, data.len(), |storage, at| {
            storage.write(at, data)
        })
    }

    fn flush(&self) -> Result<(), MediumError> {
        self.request(MediumOperation::Flush, 0, 0, |storage, _| (self.options.flush)(storage))
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum CardError {
        Refused,
        Timeout,
        Removed,
    }

    /// A card that takes whole sectors only, and fails as it is told to.
    struct Card {
        bytes: Vec<u8>,
        fails: Option<CardError>,
        syncs: u32,
    }

    impl Card {
        fn new(size: usize) -> Card {
            Card { bytes: vec![0; size], fails: None, syncs: 0 }
        }

        fn place(&self, offset: u32, length: usize) -> Result<core::ops::Range<usize>, CardError> {
            let at = offset as usize;
            let whole = at.is_multiple_of(512) && length.is_multiple_of(512) && length > 0;
            if !whole || at + length > self.bytes.len() {
                return Err(CardError::Refused);
            }
            self.fails.map_or(Ok(at..at + length), Err)
        }

        fn sync(&mut self) -> Result<(), CardError> {
            self.syncs += 1;
            self.fails.map_or(Ok(()), Err)
        }
    }

    impl ReadStorage for Card {
        type Error = CardError;
        fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), CardError> {
            let place = self.place(offset, bytes.len())?;
            bytes.copy_from_slice(&self.bytes[place]);
            Ok(())
        }
        fn capacity(&self) -> usize {
            self.bytes.len()
        }
    }

    impl Storage for Card {
        fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), CardError> {
            let place = self.place(offset, bytes.len())?;
            self.bytes[place].copy_from_slice(bytes);
            Ok(())
        }
    }

    fn options() -> StorageOptions<Card> {
        let class = |error: &CardError| match error {
            CardError::Timeout => ErrorClass::Transient,
            CardError::Removed => ErrorClass::Gone,
            CardError::Refused => ErrorClass::Permanent,
        };
        StorageOptions { flush: Card::sync, class, ..StorageOptions::durable(512) }
    }

    #[test]
    fn bytes_and_flushes_arrive() {
        let medium = StorageMedium::new(Card::new(4096 + 100), options()).unwrap();
        assert_eq!((medium.geometry().size, medium.geometry().atomic_unit), (4096, 512));
        medium.write_vectored(512, &[&[1; 512], &[2; 1024], &[]]).unwrap();
        let mut found = [9; 2560];
        medium.read(0, &mut found).unwrap();
        assert_eq!([found[511], found[512], found[1024], found[2048]], [0, 1, 2, 0]);
        // Nothing at the end is a request inside the medium.
        medium.read(4096, &mut []).unwrap();
        assert_eq!(medium.with(|card| card.syncs), 0);
        medium.flush().unwrap();
        assert_eq!(medium.into_inner().syncs, 1);
    }

    #[test]
    fn requests_outside_do_not_reach_the_driver() {
        let medium = StorageMedium::new(Card::new(4096), options()).unwrap();
        // An error of the driver would be a missing card.
        medium.with(|card| card.fails = Some(CardError::Removed));
        for (offset, length) in [(4096, 512), (1 << 32, 512), (1, 512), (0, 100)] {
            let class = ErrorClass::Permanent;
            let mut buffer = vec![0; length];
            let length = length as u64;
            let error = |operation| MediumError { operation, offset, length, class, os_error: 0 };
            let read = medium.read(offset, &mut buffer);
            assert_eq!(read, Err(error(MediumOperation::Read)));
            assert_eq!(medium.write(offset, &buffer), Err(error(MediumOperation::Write)));
        }
    }

    #[test]
    fn errors_have_the_class_that_the_caller_gives() {
        let medium = StorageMedium::new(Card::new(4096), options()).unwrap();
        medium.with(|card| card.fails = Some(CardError::Timeout));
        let error = medium.read(512, &mut [0; 512]).unwrap_err();
        assert_eq!((error.class, error.offset, error.length), (ErrorClass::Transient, 512, 512));
        medium.with(|card| card.fails = Some(CardError::Removed));
        let error = medium.flush().unwrap_err();
        assert_eq!((error.class, error.operation), (ErrorClass::Gone, MediumOperation::Flush));
        // Without a word of the caller a retry is useless, and writes are durable.
        let medium = StorageMedium::new(Card::new(4096), StorageOptions::durable(512)).unwrap();
        medium.with(|card| card.fails = Some(CardError::Timeout));
        assert_eq!(medium.write(0, &[0; 512]).unwrap_err().class, ErrorClass::Permanent);
        medium.flush().unwrap();
        assert_eq!(medium.with(|card| card.syncs), 0);
    }

    #[test]
    fn an_atomic_unit_out_of_range_is_refused() {
        for unit in [0, 500, 1 << 17] {
            let found = StorageMedium::new(Card::new(4096), StorageOptions::durable(unit));
            assert_eq!(found.err(), Some(GeometryError::AtomicUnit(unit)));
        }
    }

    /// Bytes that 32 bits cannot address are left out.
    #[test]
    fn large_drivers_end_at_four_gibibytes() {
        struct Large;
        impl ReadStorage for Large {
            type Error = ();
            fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), ()> {
                assert_eq!(u64::from(offset) + bytes.len() as u64, 1 << 32);
                Ok(())
            }
            fn capacity(&self) -> usize {
                5 << 30
            }
        }
        impl Storage for Large {
            fn write(&mut self, _: u32, _: &[u8]) -> Result<(), ()> {
                Err(())
            }
        }
        let medium = StorageMedium::new(Large, StorageOptions::durable(512)).unwrap();
        assert_eq!(medium.geometry().size, 1 << 32);
        medium.read((1 << 32) - 512, &mut [0; 512]).unwrap();
        assert!(medium.write((1 << 32) - 512, &[0; 512]).is_err());
        assert!(format!("{medium:?}").contains("4294967296"));
    }
}
