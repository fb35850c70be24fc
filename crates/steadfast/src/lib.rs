//! Steadfast: a transactional, power-fail-safe file system.
//!
//! The crate is the whole file system without an operating system: a [`Volume`] on a
//! [`steadfast_media::Medium`].
//!
//! ```
//! use std::sync::Arc;
//! use steadfast::fs::FileOptions;
//! use steadfast::testing::TestPlatform;
//! use steadfast::{FormatOptions, OpenOptions, Volume};
//! use steadfast_media::MemoryMedium;
//!
//! // A program brings a medium and a platform (clock and locks).
//! let medium = Arc::new(MemoryMedium::new(8 << 20, 512).unwrap());
//! Volume::format(&medium, &FormatOptions::default(), &TestPlatform::new())?;
//! let open = || Volume::open(medium.clone(), OpenOptions::default(), TestPlatform::new());
//!
//! let put = |volume: &Volume<_, _>, path: &str, text: &str| {
//!     let options = FileOptions::new().write(true).create(true).truncate(true);
//!     let file = volume.open_file(path, &options)?;
//!     file.write_at(0, text.as_bytes())?;
//!     file.close()
//! };
//! let get = |volume: &Volume<_, _>, path: &str| {
//!     volume.open_file(path, &FileOptions::new().read(true))?.read_all()
//! };
//!
//! // Two files change together or not at all.
//! let volume = open()?;
//! let transaction = volume.begin()?;
//! put(&volume, "network.conf", "address = 192.0.2.7")?;
//! put(&volume, "version", "7")?;
//! transaction.commit()?;
//!
//! // The power fails in the middle of the next update.
//! let transaction = volume.begin()?;
//! put(&volume, "version", "8")?;
//! let after_a_power_cut = open()?;
//! assert_eq!(get(&after_a_power_cut, "version")?, b"7");
//!
//! // The program gives the update up: a transaction that is dropped rolls back.
//! drop(transaction);
//! assert_eq!(get(&volume, "version")?, b"7");
//! volume.close()?;
//! # Ok::<(), steadfast::Error>(())
//! ```
//!
//! # Map
//! | to | see |
//! |---|---|
//! | make, open, close a volume | [`Volume::format`], [`Volume::open`], [`Volume::close`], [`FormatOptions`], [`OpenOptions`] |
//! | change several files at once | [`Volume::begin`], [`Transaction`] |
//! | decide what is durable when | [`Volume::transact`], [`Volume::set_mask`], [`TransactionMask`], [`Volume::rollback`] |
//! | work with whole files and paths | [`Volume::open_file`], [`fs::File`], [`Volume::resolve`] |
//! | work with inodes, as a kernel does | [`Volume::lookup`], [`Volume::create`], [`Volume::read`], [`Volume::write`], the types in [`fs`] |
//! | keep earlier states | [`Volume::snapshot_create`], [`Volume::open_snapshot`], [`Volume::snapshot_rollback`] |
//! | run it: timer, checkpoints, freed space | [`Volume::background`] every 100 ms, [`Platform`] |
//! | look at it | [`Volume::info`], [`Volume::statistics`], [`Volume::activity`], [`dump`](mod@dump), [`map`](mod@map) |
//! | look after it | [`check`](mod@check), [`scrub`], [`salvage`], [`tools`] |
//!
//! `steadfast-media` has media, `steadfast-host` the platform of an operating system, image files
//! and the background thread, `steadfast-capi` all of this for C.
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
mod profile;
#[cfg(feature = "sabotage")]
pub mod sabotage;
#[cfg(not(feature = "sabotage"))]
mod sabotage;
mod sort;
mod space;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tools;
mod tree;
mod types;
pub mod volume;

pub use error::{Error, Result, SECOND_WRITER, STORAGE_FULL};
pub use format::Snapshot;
pub use mask::TransactionMask;
pub use newer::NewerState;
pub use options::{FormatOptions, OpenOptions};
pub use platform::Platform;
pub use tools::{InodeChange, SnapshotDiff};
pub use tools::{check, dump, map, salvage, scrub};
pub use types::{BlockAddress, BlockRun, Generation, InodeNumber, Lsn, Timestamp};
pub use volume::{Transaction, Volume, VolumeInfo};
