//! A compliance suite for file systems: it checks the guarantees of POSIX and Linux for every call,
//! on a real directory.
//!
//! The suite knows nothing of Steadfast and can run on any mounted file system. Runs on the
//! kernel's file systems keep the suite itself correct. A check is a named function that makes
//! system calls. Its verdict is passed, failed (with the line of the check and the expectation) or
//! skipped (with the reason).
//!
//! # Modules
//! - [`verdict`]: the results of checks.
//! - [`list`]: named checks.
//! - [`runner`]: runs each check in its own thread and directory, with a time limit.
//! - [`calls`]: short names for system calls on paths relative to the check's directory.
//! - [`sys`]: the few calls that need `unsafe`.
//! - [`suites`]: the checks, one file per subject.
//!
//! # Invariants
//! - A check touches nothing outside its working directory. The directory belongs to this check and
//!   is empty at the start.
//! - The umask is 0 at the start of each check. Working directory and umask belong to the check's
//!   thread, not to the process, so a check that hangs cannot disturb the next one.
//! - A check that needs a new time stamp waits for the kernel's coarse clock.

pub mod calls;
pub mod list;
pub mod runner;
pub mod suites;
pub mod sys;
pub mod verdict;

pub use list::{Check, List};
pub use runner::{Options, Summary, run};
pub use verdict::{Stop, Verdict};
