//! A compliance suite for file systems: what POSIX and Linux promise of every call, checked on a
//! real directory.
//!
//! The suite knows nothing of Steadfast; any mounted file system can be its target, and it is kept
//! right by running it on the file systems of the kernel. A check is a named function over system
//! calls; its verdict is passed, failed (with the line of the check and what was expected) or
//! skipped (with the reason).
//!
//! # Rooms
//! - [`verdict`]: how a check says what it found.
//! - [`list`]: named checks.
//! - [`runner`]: runs each check in a thread and a directory of its own, with a time limit.
//! - [`calls`]: short names for system calls on paths relative to the check's directory.
//! - [`sys`]: the few calls that need `unsafe`.
//! - [`suites`]: the checks, one file a subject.
//!
//! # Invariants
//! - A check touches nothing outside its working directory, which is its own and empty at the
//!   start.
//! - The umask is 0 at the start of each check. Working directory and umask belong to the check's
//!   thread, not to the process, so a check that hangs cannot spoil the next one.
//! - A check never relies on the clock being finer than 20 ms.

pub mod calls;
pub mod list;
pub mod runner;
pub mod suites;
pub mod sys;
pub mod verdict;

pub use list::{Check, List};
pub use runner::{Options, Summary, run};
pub use verdict::{Stop, Verdict};
