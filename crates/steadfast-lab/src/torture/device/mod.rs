//! A real medium under the same question: is what was acknowledged still there?
//!
//! Software cannot cut the power, so the work is split. The [`writer`] sets transaction after
//! transaction and tells a [`witness`] elsewhere about each one *after* it was acknowledged. Then
//! something happens: the process is killed, or somebody pulls the plug. [`verify`] looks at the
//! medium and at the witness and says what is missing, and whose fault it is.
//!
//! # How the file system and the medium are told apart
//! Beside the volume lies a ring of records that has nothing to do with the file system
//! ([`probe`]): each transaction first writes a raw record there, flushes, and tells the witness
//! `flushed N`; only then it commits in the volume and tells `committed N`. A medium that has
//! forgotten a raw record which it had flushed has lied, whatever the volume looks like. Where
//! every raw record is there and the volume has lost a transaction, the file system is to blame.
//!
//! # What cannot be seen
//! A medium that lies and happens to have written everything before the power went. Only more cuts
//! help; [`latency`] gives a suspicion, never a verdict.

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
    /// Too small for a volume and the ring beside it.
    TooSmall {
        /// Bytes at hand.
        size: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// No torture run was prepared here, or its header is gone.
    NotPrepared,
    /// The core's error, the medium's included.
    Core(steadfast::Error),
    /// The witness cannot be told.
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
