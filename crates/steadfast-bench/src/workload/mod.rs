//! Workloads: what is done to a file system and what is measured while it is done.
//!
//! # Invariants
//!
//! - A workload does the same thing, with the same seed, on every target; nothing depends on the
//!   target but what it does not support.
//! - Only the calls to the file system are timed, one by one. Making the data, comparing what was
//!   read and everything else happens between the timed calls.
//! - Every byte that is read is compared. A wrong one is [`Trouble::Wrong`](crate::Trouble) and
//!   fails the run.

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

/// One thing to do on a fresh volume: it gives values to one or more tests.
pub trait Workload: Send + Sync {
    /// Name and parameters for people and for the names of steps; unique in its suite: `iozone
    /// file_size=65536`.
    fn label(&self) -> String;

    /// The tests that it has values for, in the order in which it finds them.
    fn tests(&self) -> Vec<TestSpec>;

    /// Whether it is for the target of this id; without that it is for all.
    fn concerns(&self, _target: &str) -> bool {
        true
    }

    /// Does it once. The target has a fresh volume and is mounted; it may be left mounted or not.
    ///
    /// # Errors
    /// What ended it; tests that have no value yet get its text as their status.
    fn run(&self, bench: &mut Bench<'_>) -> Outcome;
}
