//! Steadfast: a transactional, power-fail-safe file system.
//!
//! The crate is the whole file system without an operating system: a [`Volume`] on a
//! [`steadfast_media::Medium`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod checksum;
mod engine;
mod error;
mod format;
pub mod fs;
mod io;
mod log;
mod mask;
mod memory;
mod newer;
mod options;
mod platform;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
mod space;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tools;
mod tree;
mod types;
pub mod volume;

pub use error::{Error, Result};
pub use format::{Snapshot, key};
pub use mask::TransactionMask;
pub use newer::NewerState;
pub use options::{FormatOptions, OpenOptions};
pub use platform::Platform;
pub use tools::{InodeChange, SnapshotDiff};
pub use tools::{check, dump, salvage, scrub};
pub use types::{BlockAddress, BlockRun, Generation, InodeNumber, Lsn, Timestamp};
pub use volume::{Volume, VolumeInfo};
