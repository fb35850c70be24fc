//! The same test on a real medium: are all acknowledged transactions still there?
//!
//! Software cannot cut the power, so the work is split. The [`writer`] makes transaction after
//! transaction, and reports each one to a [`witness`] elsewhere *after* it was acknowledged. Then
//! the process is killed, or the power is cut. [`verify`] compares the medium with the witness. It
//! reports what is missing, and whether the medium or the file system is at fault.
//!
//! # How the file system and the medium are told apart
//! Beside the volume is a ring of records that is independent of the file system ([`probe`]). Each
//! transaction first writes a raw record there, flushes, and reports `flushed N` to the witness.
//! Only then it commits in the volume, and reports `committed N`. If the medium has lost a flushed
//! raw record, it has lied, whatever the state of the volume. If every raw record exists and the
//! volume has lost a transaction, the file system is at fault.
//!
//! # What cannot be seen
//! The test cannot see a medium that lies but has written everything before the power cut. Only
//! more cuts help; [`latency`] gives a suspicion, never a verdict.

pub mod latency;
pub mod layout;
pub mod probe;
pub mod verify;
pub mod witness;
pub mod workload;
pub mod writer;

use std::fmt;

/// Why a medium could not be written or judged.
#[derive(Debug)]
pub enum DeviceError {
    /// The medium is too small for a volume and the ring beside it.
    TooSmall {
        /// Bytes available.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// No torture run was prepared here, or its header is lost.
    NotPrepared,
    /// An error of the core, including those of the medium.
    Core(steadfast::Error),
    /// The witness cannot be reached.
    Witness(std::io::Error),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::TooSmall { size, needed } => {
                write!(f, "{size} bytes are too few, {needed} are needed")
            }
            DeviceError::NotPrepared => f.write_str("no torture run was prepared here"),
            DeviceError::Core(error) => write!(f, "{error}"),
            DeviceError::Witness(error) => write!(f, "the witness cannot be told: {error}"),
        }
    }
}

impl std::error::Error for DeviceError {}

impl From<steadfast::Error> for DeviceError {
    fn from(error: steadfast::Error) -> Self {
        DeviceError::Core(error)
    }
}

impl From<steadfast_media::MediumError> for DeviceError {
    fn from(error: steadfast_media::MediumError) -> Self {
        DeviceError::Core(error.into())
    }
}
