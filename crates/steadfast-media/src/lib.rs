//! The medium: what Steadfast stores its bytes on.
//!
//! A [`Medium`] is a linear array of bytes that is read and written in whole *atomic units*. The file system
//! above assumes exactly this and nothing more:
//!
//! - a completed write may be lost, kept, reordered or torn at atomic-unit boundaries by a power cut until a
//!   [`Medium::flush`] issued after its completion has returned;
//! - what was flushed stays as it is;
//! - a write of one atomic unit is old or new after a power cut (unless the [`FailureModel`] says otherwise).
//!
//! Media never know what the bytes mean; the file system never knows what is below.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
mod medium;

pub use error::{ErrorClass, MediumError, MediumOperation};
pub use medium::{FailureModel, Geometry, Medium, Temperature};
