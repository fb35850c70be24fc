//! A medium in memory.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use spin::RwLock;

use crate::pages::PagedImage;
use crate::{FailureModel, Geometry, GeometryError, Medium, MediumError, MediumOperation};

/// Bytes in memory. The medium is sparse: unwritten ranges take no memory and read as zeros. It is
/// cheap to clone: a clone shares its pages until one side writes.
///
/// It is [`FailureModel::Volatile`] unless [`with_failure_model`](Self::with_failure_model) changes
/// that. Memory grows as the medium is written, up to its size.
pub struct MemoryMedium {
    image: RwLock<PagedImage>,
    geometry: Geometry,
}

impl MemoryMedium {
    /// A medium of `size` bytes (rounded down to whole units) that reads as zeros.
    ///
    /// # Errors
    /// [`GeometryError`] if the unit is not a power of two from 1 to 65,536 or the size is above
    /// 2^63.
    pub fn new(size: u64, atomic_unit: u32) -> Result<Self, GeometryError> {
        let geometry = Geometry::new(size, atomic_unit, FailureModel::Volatile)?;
        Ok(Self::from_image(PagedImage::default(), geometry))
    }

    /// A medium that holds a copy of `bytes`; a remainder below one unit is dropped.
    ///
    /// # Errors
    /// [`GeometryError`] if the unit is not a power of two from 1 to 65,536.
    pub fn from_bytes(bytes: &[u8], atomic_unit: u32) -> Result<Self, GeometryError> {
        let geometry = Geometry::new(bytes.len() as u64, atomic_unit, FailureModel::Volatile)?;
        let mut image = PagedImage::default();
        image.write(0, &bytes[..geometry.size as usize]);
        Ok(Self::from_image(image, geometry))
    }

    pub(crate) fn from_image(image: PagedImage, geometry: Geometry) -> Self {
        MemoryMedium { image: RwLock::new(image), geometry }
    }

    pub(crate) fn image(&self) -> PagedImage {
        self.image.read().clone()
    }

    /// The same medium with another failure model, for persistent memory or for tests.
    #[must_use]
    pub fn with_failure_model(mut self, failure_model: FailureModel) -> Self {
        self.geometry.failure_model = failure_model;
        self
    }

    /// All bytes. Allocates [`Geometry::size`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.size as usize];
        self.image.read().read(0, &mut bytes);
        bytes
    }

    /// Bytes of memory in use, in whole pages; pages shared with a clone are counted in both.
    pub fn resident_bytes(&self) -> u64 {
        self.image.read().resident()
    }
}

impl Clone for MemoryMedium {
    fn clone(&self) -> Self {
        Self::from_image(self.image(), self.geometry)
    }
}

/// Two media are equal if they have the same geometry and the same contents.
impl PartialEq for MemoryMedium {
    fn eq(&self, other: &Self) -> bool {
        // Copied one after the other: the two locks are never held together.
        self.geometry == other.geometry && self.image().same(&other.image())
    }
}

impl fmt::Debug for MemoryMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryMedium").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Medium for MemoryMedium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.geometry.check(MediumOperation::Read, offset, buffer.len() as u64)?;
        self.image.read().read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), MediumError> {
        self.geometry.check(MediumOperation::Write, offset, data.len() as u64)?;
        self.image.write().write(offset, data);
        Ok(())
    }

    fn flush(&self) -> Result<(), MediumError> {
        Ok(())
    }

    /// Frees the memory; the bytes read as zeros.
    fn discard(&self, offset: u64, length: u64) -> Result<(), MediumError> {
        self.geometry.check(MediumOperation::Discard, offset, length)?;
        self.image.write().fill(offset, length, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;

    #[test]
    fn converts_from_and_to_bytes() {
        let bytes: Vec<u8> = (0..5000_u32).map(|index| index as u8).collect();
        let medium = MemoryMedium::from_bytes(&bytes, 128).unwrap();
        assert_eq!(medium.geometry().size, 4992);
        assert_eq!(medium.to_bytes(), bytes[..4992]);
    }

    #[test]
    fn refuses_requests_outside_or_unaligned() {
        let medium = MemoryMedium::new(1024, 512).unwrap();
        let error = medium.write(1024, &[0; 512]).unwrap_err();
        assert_eq!((error.operation, error.class), (MediumOperation::Write, ErrorClass::Permanent));
        assert!(medium.read(1, &mut [0; 512]).is_err());
        assert!(medium.discard(0, 100).is_err());
        assert!(MemoryMedium::new(1024, 500).is_err());
    }

    #[test]
    fn discard_gives_memory_back() {
        let medium = MemoryMedium::new(1 << 40, 4096).unwrap();
        medium.write(1 << 39, &[7; 4096]).unwrap();
        assert_eq!(medium.resident_bytes(), 4096);
        let copy = medium.clone();
        assert_eq!(medium, copy);
        medium.discard(0, 1 << 40).unwrap();
        assert_eq!(medium.resident_bytes(), 0);
        assert_ne!(medium, copy);
    }
}
