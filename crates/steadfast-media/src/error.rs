//! Errors of a medium: the operation, the position, and whether a retry can help.

use core::fmt;

/// Whether the same request may succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ErrorClass {
    /// A retry may succeed (a timeout, a link that reset).
    Transient,
    /// A retry of this request will fail again (an unreadable sector). The rest of the medium
    /// works.
    Permanent,
    /// The underlying storage has no room for a write. The file system of a sparse image is full,
    /// or a thinly provisioned device. A retry may succeed once there is room; an immediate
    /// retry is useless.
    Full,
    /// The whole medium has gone (unplugged, server lost).
    Gone,
}

/// The request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum MediumOperation {
    /// [`crate::Medium::read`] and its variants.
    Read,
    /// [`crate::Medium::write`] and its variants.
    Write,
    /// [`crate::Medium::flush`].
    Flush,
    /// [`crate::Medium::discard`].
    Discard,
}

/// A failed request to a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct MediumError {
    /// The operation.
    pub operation: MediumOperation,
    /// First byte of the request (0 for a flush).
    pub offset: u64,
    /// Length of the request in bytes (0 for a flush).
    pub length: u64,
    /// Whether a retry can help.
    pub class: ErrorClass,
    /// The operating system's error number, 0 if there is none.
    pub os_error: i32,
}

impl fmt::Display for MediumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.operation {
            MediumOperation::Read => "read",
            MediumOperation::Write => "write",
            MediumOperation::Flush => "flush",
            MediumOperation::Discard => "discard",
        };
        let class = match self.class {
            ErrorClass::Transient => "transient",
            ErrorClass::Permanent => "permanent",
            ErrorClass::Full => "no room below",
            ErrorClass::Gone => "medium gone",
        };
        write!(f, "{what} of {} bytes at {} failed ({class}", self.length, self.offset)?;
        if self.os_error != 0 {
            write!(f, ", os error {}", self.os_error)?;
        }
        f.write_str(")")
    }
}

impl core::error::Error for MediumError {}
