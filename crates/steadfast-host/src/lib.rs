//! Steadfast on a Linux host: all parts that the core needs from an operating system.
//!
//! - [`FileMedium`]: an image file or a block device as a medium, through the page cache or past it
//!   (O_DIRECT); [`Window`]: a part of one;
//! - [`nand`]: MTD devices and images of NAND parts in files;
//! - [`HostPlatform`]: clock, locks and a CRC-32C that uses the processor's instructions;
//! - [`BackgroundThread`]: gives a volume the regular turn that its timer and checkpoints need;
//! - [`random_uuid`]: an identity for a new volume;
//! - [`civil_from_days`]: a date of the calendar;
//! - [`WholeFile`], [`WholeImage`], [`write_whole`]: files that get their name only when they are
//!   complete.
//!
//! ```no_run
//! use std::sync::Arc;
//! use steadfast::{FormatOptions, OpenOptions, Volume};
//! use steadfast_host::{BackgroundThread, FileMedium, FileOptions, HostPlatform, random_uuid};
//!
//! let medium = FileMedium::create("steadfast.img", 1 << 30, &FileOptions::default())?;
//! let platform = HostPlatform::new();
//! let options = FormatOptions { uuid: random_uuid()?, ..FormatOptions::default() };
//! Volume::format(&medium, &options, &platform)?;
//!
//! let volume = Arc::new(Volume::open(medium, OpenOptions::default(), platform)?);
//! let _background = BackgroundThread::spawn(volume.clone(), |failure| eprintln!("{failure}"))?;
//! volume.transact()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(not(target_os = "linux"))]
compile_error!("steadfast-host is for Linux; the core crate `steadfast` runs anywhere");

mod background;
mod date;
mod entropy;
mod file;
pub mod nand;
mod platform;
mod unfinished;
mod whole;

pub use background::{BackgroundFailure, BackgroundThread, Waker, turns};
pub use date::civil_from_days;
pub use entropy::random_uuid;
pub use file::{FileMedium, FileOptions, LockMode, OpenError, Owner, Part, Window};
pub use platform::{HostPlatform, crc32c};
pub use unfinished::{Held, Unfinished, remove_unfinished};
pub use whole::{
    Durability, Links, MODE_PRIVATE, MODE_PUBLIC, WholeFile, WholeImage, hold_replaced, write_whole,
};
