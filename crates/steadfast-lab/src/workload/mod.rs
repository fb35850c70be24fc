//! Workloads: the work on a file system, and the measurements during it.
//!
//! # Invariants
//! - A workload does the same work, with the same seed, on every target; only unsupported
//!   operations depend on the target.
//! - Only the calls to the file system are timed, one by one. Making the data, comparing the data
//!   read, and everything else happens between the timed calls.
//! - Every byte read is compared. A wrong one is [`Trouble::Wrong`](crate::Trouble) and fails the
//!   run.

pub mod ageing;
mod aligned;
pub mod atomic;
pub mod content;
pub mod cost;
pub mod crosscheck;
pub mod direct;
pub mod durability;
pub mod fileops;
pub mod general;
pub mod growth;
pub mod iozone;
pub mod lat_fs;
pub mod limited;
pub mod metadata;
pub mod mount;
pub mod opening;
pub mod overwrite;
mod parallel;
pub mod purpose;
pub mod sqlite;

mod bench;

pub use bench::{Bench, Finding, TestSpec, Timed};

use crate::Outcome;

/// A task on a fresh volume that gives values to one or more tests.
pub trait Workload: Send + Sync {
    /// Name and parameters for messages and for the names of steps; unique in its suite: `iozone
    /// file_size=65536`.
    fn label(&self) -> String;

    /// The tests for which it has values, in their order.
    fn tests(&self) -> Vec<TestSpec>;

    /// Whether it runs on the target with this id; by default it runs on all.
    fn concerns(&self, _target: &str) -> bool {
        true
    }

    /// Runs it once. The target has a fresh volume and is mounted; it may be left mounted or not.
    ///
    /// # Errors
    /// The trouble that ended it; tests without a value get its text as their status.
    fn run(&self, bench: &mut Bench<'_>) -> Outcome;
}
