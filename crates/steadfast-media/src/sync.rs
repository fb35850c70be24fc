//! Shared owners and atomic values, also on processors without compare-and-swap.
//!
//! Invariant: where the processor has compare-and-swap, this is what `alloc` and `core` have. On
//! others, such as a Cortex-M0, the crates `portable-atomic` and `portable-atomic-util` take their
//! place. The program chooses there how a step cannot be interrupted: by a feature of
//! `portable-atomic`. The media, the translation layer and the core take both from here.

#[cfg(target_has_atomic = "ptr")]
pub use alloc::sync::Arc;
#[cfg(target_has_atomic = "ptr")]
pub use core::sync::atomic;

#[cfg(not(target_has_atomic = "ptr"))]
pub use portable_atomic as atomic;
#[cfg(not(target_has_atomic = "ptr"))]
pub use portable_atomic_util::Arc;
