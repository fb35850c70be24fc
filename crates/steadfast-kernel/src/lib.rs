//! The core as one object for the Linux kernel module: a C interface over a volume, for the VFS
//! side in `kernel/`. The program cbindgen generates `kernel/core.h` from this crate.
//!
//! Invariants:
//! - The kernel's side passes valid pointers and lengths: both sides are one program. So pointers
//!   are not checked.
//! - Every buffer is kernel memory. The core never touches memory of a user, so it never faults.
//! - A function returns 0 or a count, or a negative error number ([`errno`]).
//! - There is no unwinding. A panic ends in `sfk_shim_panic`, which leaves the core for good. It
//!   returns EIO from this entry, and from every entry that waits or comes later.
//!
//! On a host the crate builds for the linter only; the shim exists in the kernel.
#![cfg_attr(target_os = "none", no_std)]
#![allow(non_camel_case_types)] // The names follow C.
#![allow(unsafe_code)] // Raw pointers from C: each block states why it is sound.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::missing_safety_doc)] // The module documentation has the caller's obligations.

extern crate alloc;

mod attributes;
mod errno;
mod files;
mod locks;
mod medium;
mod names;
mod platform;
mod points;
mod shim;
mod views;
mod volume;
mod xattrs;

/// A volume as this crate opens it; C knows it as `sfk_volume`.
///
/// cbindgen:ignore
type Core = steadfast::Volume<medium::BlockDevice, platform::Kernel>;
