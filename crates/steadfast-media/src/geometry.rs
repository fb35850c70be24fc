//! Size, units and failure model of a medium, and the validation of requests.

use core::fmt;

use crate::{ErrorClass, MediumError, MediumOperation};

/// Behaviour of a medium at a power cut. The crate documentation states the rules that all models
/// share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FailureModel {
    /// Flushed data persists; an atomic unit in flight is old or new. Disks, eMMC, and files on
    /// them.
    PowerSafe,
    /// All data is lost with the power (plain memory). No guarantee holds on it.
    Volatile,
}

/// Size and units of a medium, all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Geometry {
    /// Length of the medium; a multiple of the atomic unit, at most 2^63.
    pub size: u64,
    /// Smallest unit that is written whole or not at all, and the alignment of every request; a
    /// power of two from 1 to 65,536.
    pub atomic_unit: u32,
    /// Behaviour at a power cut.
    pub failure_model: FailureModel,
}

impl Geometry {
    /// The largest size of a medium, bytes.
    pub const SIZE_MAX: u64 = 1 << 63;
    /// The largest atomic unit, bytes.
    pub const ATOMIC_UNIT_MAX: u32 = 1 << 16;

    /// The geometry of a medium of `size` bytes, rounded down to whole units.
    ///
    /// # Errors
    /// [`GeometryError`] if the unit is not a power of two from 1 to 65,536 or the size is above
    /// 2^63.
    pub const fn new(
        size: u64,
        atomic_unit: u32,
        failure_model: FailureModel,
    ) -> Result<Geometry, GeometryError> {
        if !atomic_unit.is_power_of_two() || atomic_unit > Self::ATOMIC_UNIT_MAX {
            return Err(GeometryError::AtomicUnit(atomic_unit));
        }
        if size > Self::SIZE_MAX {
            return Err(GeometryError::Size(size));
        }
        Ok(Geometry { size: size - size % atomic_unit as u64, atomic_unit, failure_model })
    }

    /// Whether a request of `length` bytes at `offset` is aligned and inside the medium.
    pub const fn admits(&self, offset: u64, length: u64) -> bool {
        let mask = self.atomic_unit as u64 - 1;
        if (offset | length) & mask != 0 {
            return false;
        }
        match offset.checked_add(length) {
            Some(end) => end <= self.size,
            None => false,
        }
    }

    /// [`admits`](Self::admits) as an error, for media that refuse an invalid request instead of
    /// trusting the caller.
    ///
    /// # Errors
    /// [`ErrorClass::Permanent`], with the position of the request.
    pub const fn check(
        &self,
        operation: MediumOperation,
        offset: u64,
        length: u64,
    ) -> Result<(), MediumError> {
        if self.admits(offset, length) {
            return Ok(());
        }
        Err(MediumError { operation, offset, length, class: ErrorClass::Permanent, os_error: 0 })
    }
}

/// An invalid geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum GeometryError {
    /// The atomic unit is not a power of two from 1 to 65,536 bytes.
    AtomicUnit(u32),
    /// The size is above 2^63 bytes.
    Size(u64),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::AtomicUnit(unit) => {
                write!(f, "atomic unit of {unit} bytes is not a power of two from 1 to 65536")
            }
            GeometryError::Size(size) => {
                write!(f, "medium of {size} bytes is larger than 2^63 bytes")
            }
        }
    }
}

impl core::error::Error for GeometryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_down_and_bad_units_are_refused() {
        let geometry = Geometry::new(1030, 512, FailureModel::PowerSafe).unwrap();
        assert_eq!(geometry.size, 1024);
        for unit in [0, 3, 1 << 17] {
            assert_eq!(
                Geometry::new(1 << 20, unit, FailureModel::Volatile),
                Err(GeometryError::AtomicUnit(unit))
            );
        }
        assert!(Geometry::new((1 << 63) + 1, 1, FailureModel::Volatile).is_err());
    }

    #[test]
    fn requests_are_checked_without_overflow() {
        let geometry = Geometry::new(1 << 63, 512, FailureModel::PowerSafe).unwrap();
        assert!(geometry.admits(0, 1 << 63));
        assert!(geometry.admits(1 << 63, 0));
        assert!(!geometry.admits(1 << 63, 512));
        assert!(!geometry.admits(u64::MAX - 511, 1024));
        assert!(!geometry.admits(1, 512));
        assert!(!geometry.admits(512, 1));
        assert!(geometry.check(MediumOperation::Read, 3, 3).is_err());
    }
}
