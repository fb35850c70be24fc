//! The C interface in front of the crate `steadfast`. cbindgen generates `include/steadfast.h` from
//! this crate.
//!
//! Invariants of every function:
//! - No panic crosses the boundary. [`guard`] turns a panic into `SF_ENOTRECOVERABLE`, and the
//!   volume returns only this error from then on.
//! - Every pointer is checked for NULL, and every length against the largest possible object,
//!   before any memory is accessed.
//! - An error is a negative number. [`error::sf_last_error`] describes it in one line.
//! - The library keeps no argument after the call, except for the description of the device, which
//!   it copies.
//!
//! With the feature `std` (the default) the crate has image files, a background thread and the
//! clock of the system. Without it the crate needs no operating system. The program then gives
//! memory, clocks and a lock to `sf_start` ([`bare`]).
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![allow(non_camel_case_types)] // The names follow C.
#![allow(unsafe_code)] // Raw pointers from C: each block states why it is sound.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::result_large_err)]
// A failure holds its text inline: no allocation.
// With the standard library the platform is no unit struct.
#![cfg_attr(not(feature = "std"), allow(clippy::default_constructed_unit_structs))]
#![allow(clippy::missing_safety_doc)] // The header states the caller's obligations in terms of C.

extern crate alloc;

#[cfg(not(feature = "std"))]
mod bare;
mod codes;
mod copy;
mod device;
mod directory;
mod error;
mod file;
mod guard;
#[cfg(feature = "std")]
mod image;
mod medium;
mod names;
mod options;
mod probe;
mod report;
mod snapshot;
mod transaction;
mod types;
mod volume;
mod xattr;

/// The platform of a volume: clock and locks.
#[cfg(not(feature = "std"))]
use bare::Bare as Surroundings;
/// The platform of a volume: clock and locks.
#[cfg(feature = "std")]
use steadfast_host::HostPlatform as Surroundings;

/// A volume as this crate opens it.
type Core = engine::Volume<medium::AnyMedium, Surroundings>;
