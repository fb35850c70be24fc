//! The medium: the storage below Steadfast.
//!
//! A [`Medium`] is a linear array of bytes that is read and written in whole *atomic units*. The
//! file system depends on exactly these guarantees:
//!
//! - a power cut may lose, keep, reorder or tear a completed write (at atomic-unit boundaries)
//!   until a [`Medium::flush`] issued after its completion has returned;
//! - flushed data persists;
//! - a write of one atomic unit is old or new after a power cut (unless the [`FailureModel`] states
//!   otherwise).
//!
//! A medium does not know the meaning of the bytes; the file system does not know the
//! implementation of the medium.
//!
//! # The atomic unit
//!
//! [`Geometry::atomic_unit`] is both a guarantee and a requirement. The medium guarantees that an
//! aligned piece of this length is never half written. It requires that every request is aligned to
//! it.
//!
//! Steadfast's block size is never smaller, so two blocks never share a unit. A torn write damages
//! only its own block.
//!
//! A medium that can align requests itself may state a *smaller* unit than the hardware has. A tear
//! at every 512 bytes covers a tear at every 4,096. It must never state a larger one.
//!
//! # Contents
//!
//! - [`Medium`], [`Geometry`], [`MediumError`]: the interface. References, `Arc`s and `Box`es of
//!   media are media.
//! - [`MemoryMedium`]: sparse memory. A clone shares its pages, so a copy is cheap.
//! - [`SimMedium`]: a medium for tests. It records every request and fails on demand. At any moment
//!   it can produce images that a power cut could leave.
//! - `StorageMedium`, with the feature `embedded-storage`: a driver of that crate as a medium.
//!
//! ```
//! use steadfast_media::{Medium, SimMedium, SimOptions};
//!
//! let sim = SimMedium::new(SimOptions::disk(1 << 20));
//! sim.write(0, &[1; 512])?;
//! sim.flush()?;
//! sim.write(0, &[2; 512])?;
//!
//! // A power cut now: the second write may have reached the medium or not. The run continues.
//! let after = sim.power_cut(42);
//! let mut sector = [0; 512];
//! after.read(0, &mut sector)?;
//! assert!(sector == [1; 512] || sector == [2; 512]);
//! # Ok::<(), steadfast_media::MediumError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod counters;
#[cfg(feature = "embedded-storage")]
mod embedded;
mod error;
mod forward;
mod geometry;
mod medium;
mod memory;
mod pages;
pub mod random;
pub mod sim;
pub mod sync;

pub use counters::MediumCounters;
#[cfg(feature = "embedded-storage")]
pub use embedded::{StorageMedium, StorageOptions};
pub use error::{ErrorClass, MediumError, MediumOperation};
pub use geometry::{FailureModel, Geometry, GeometryError};
pub use medium::{Medium, Temperature, WaitHook};
pub use memory::MemoryMedium;
pub use random::Random;
pub use sim::{SimMedium, SimOptions};
