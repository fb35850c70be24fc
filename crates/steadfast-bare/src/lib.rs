//! What firmware on bare metal gives to the core: memory ([`Arena`]), locks ([`UncontendedLock`])
//! and variables that are static ([`RacyCell`]).
//!
//! Invariant of all three: at most one task is inside the core at a time. The firmware has only one
//! task, or one lock around all calls.
#![cfg_attr(not(test), no_std)]
#![allow(unsafe_code)] // Memory by address: each block states why it is sound.
#![deny(unsafe_op_in_unsafe_fn)]

mod arena;
mod lock;

pub use arena::Arena;
pub use lock::UncontendedLock;

use core::cell::UnsafeCell;

/// A static variable without a lock.
pub struct RacyCell<T>(UnsafeCell<T>);

// SAFETY: no safe function reads or changes the value.
unsafe impl<T> Sync for RacyCell<T> {}

impl<T> RacyCell<T> {
    /// A variable with its first value.
    pub const fn new(value: T) -> RacyCell<T> {
        RacyCell(UnsafeCell::new(value))
    }

    /// The place of the value. Each use states why no other use happens at the same time.
    pub const fn get(&self) -> *mut T {
        self.0.get()
    }
}
