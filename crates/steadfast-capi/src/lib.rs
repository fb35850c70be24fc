//! The C interface: `include/steadfast.h`, made from this crate by cbindgen, in front of the crate
//! `steadfast`.
//!
//! Invariants of every function:
//! - no panic crosses the boundary: [`guard`] turns one into `SF_ENOTRECOVERABLE`, and the volume
//!   answers nothing else from then on;
//! - every pointer is checked for NULL and every length against what an object can have before
//!   anything is touched;
//! - an error is a negative number, with a line for people in [`error::sf_last_error`];
//! - nothing that the caller gave is kept after the call but the device's description, which is
//!   copied.
//!
//! With the feature `std` (the default) there are image files, a background thread and the system's
//! clock. Without it the crate needs no operating system: memory, clock and the end of the world
//! come from five functions that the program links in ([`bare`]).
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![allow(non_camel_case_types)] // The names are those of C.
#![allow(unsafe_code)] // An interface of raw pointers: each use says why it is sound, given what the header asks for.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::result_large_err)] // A failure carries its text, so that telling it needs no memory.
#![allow(clippy::missing_safety_doc)] // What a caller must keep to is in the header, in the words of C.

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
mod report;
mod snapshot;
mod transaction;
mod types;
mod volume;
mod xattr;

/// The surroundings of a volume.
#[cfg(feature = "std")]
type Surroundings = steadfast_host::HostPlatform;
/// The surroundings of a volume.
#[cfg(not(feature = "std"))]
type Surroundings = bare::Bare;

/// A volume as this crate opens it.
type Core = engine::Volume<medium::AnyMedium, Surroundings>;
