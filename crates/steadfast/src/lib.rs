//! Steadfast: a transactional, power-fail-safe file system.
//!
//! The crate is the whole file system without an operating system: a [`Volume`] on a
//! [`steadfast_media::Medium`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod check;
pub mod checksum;
pub mod dump;
mod error;
#[allow(dead_code)]
mod extent;
pub mod fs;
pub mod key;
pub mod keyspace;
mod layout;
mod log;
mod mask;
mod newer;
mod options;
mod patient;
mod platform;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
pub mod salvage;
pub mod scrub;
pub mod snapshot;
mod space;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tree;
mod types;
pub mod volume;

pub use error::{Error, Result};
pub use mask::TransactionMask;
pub use newer::NewerState;
pub use options::{FormatOptions, OpenOptions};
pub use platform::Platform;
pub use snapshot::Snapshot;
pub use types::{BlockAddress, BlockRun, Generation, InodeNumber, Lsn, Timestamp};
pub use volume::{InodeChange, SnapshotDiff, Volume, VolumeInfo};
