//! The medium: what Steadfast stores its bytes on.
//!
//! A [`Medium`] is a linear array of bytes that is read and written in whole *atomic units*. The
//! file system above assumes exactly this and nothing more:
//!
//! - a completed write may be lost, kept, reordered or torn at atomic-unit boundaries by a power
//!   cut until a [`Medium::flush`] issued after its completion has returned;
//! - what was flushed stays as it is;
//! - a write of one atomic unit is old or new after a power cut (unless the [`FailureModel`] says
//!   otherwise).
//!
//! Media never know what the bytes mean; the file system never knows what is below.
//!
//! # The atomic unit
//!
//! [`Geometry::atomic_unit`] is both a promise and a demand: the medium promises that an aligned
//! piece of this length is never half written, and it demands that every request is aligned to it.
//! Steadfast's block size is never below it, so that two blocks never share a unit: a write that is
//! torn by a power cut can damage no block but its own. A medium may state a *smaller* unit than
//! the hardware has when it can align requests itself: a tear at every 512 bytes covers a tear at
//! every 4,096. It must never state a larger one.
//!
//! # What is here
//!
//! - [`Medium`], [`Geometry`], [`MediumError`]: the interface. References, `Arc`s and `Box`es of
//!   media are media.
//! - [`MemoryMedium`]: sparse memory; a clone shares its pages, so that a copy costs next to
//!   nothing.
//! - [`SimMedium`]: a double for tests. It records every request, fails the ones that it is told to
//!   fail, and branches off, at any moment and as often as wanted, an image that a power cut could
//!   have left.
//!
//! ```
//! use steadfast_media::{Medium, SimMedium, SimOptions};
//!
//! let sim = SimMedium::new(SimOptions::disk(1 << 20));
//! sim.write(0, &[1; 512])?;
//! sim.flush()?;
//! sim.write(0, &[2; 512])?;
//!
//! // The power fails now: the second write may have reached the medium or not. The run itself goes on.
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
mod error;
mod forward;
mod geometry;
mod medium;
mod memory;
mod pages;
mod random;
pub mod sim;

pub use counters::MediumCounters;
pub use error::{ErrorClass, MediumError, MediumOperation};
pub use geometry::{FailureModel, Geometry, GeometryError};
pub use medium::{Medium, Temperature, WaitHook};
pub use memory::MemoryMedium;
pub use sim::{SimMedium, SimOptions};
