//! The measuring half of `steadfast lab`: the workloads of published file-system comparisons, run
//! side by side on any set of file systems, and results that a sceptic can check.
//!
//! # Rooms
//!
//! - [`result`]: the schema of a run. Everything that is measured ends there, and whoever prints,
//!   draws or compares reads nothing else. It is JSON, documented field by field, with a version.
//! - [`statistics`]: medians, spreads, ratios with their confidence, and the rule that a difference
//!   below the noise is none.
//! - [`report`]: what people see of a result: tables, pictures, the page; [`compare`]: what changed
//!   between two.
//! - [`target`]: the file systems under test.
//! - [`workload`]: what is done to them.
//! - [`suite`]: which workloads answer which published comparison.
//! - [`measure`]: instruments: times of operations, processor time, traffic of the medium, noise of
//!   the machine.
//! - [`run`]: which step comes when, what is kept after each, and how it goes on after a stop.
//! - [`trouble`]: why something could not be measured.
//!
//! # Invariants
//!
//! - A number is never made up: what could not be measured has a status with its reason, and no
//!   sample.
//! - What is compared was measured in the same run, in the same rounds, on volumes of the same
//!   size.
//! - Every value in a result is finite; JSON has no other numbers.

pub mod compare;
pub mod measure;
pub mod report;
pub mod result;
pub mod run;
pub mod statistics;
pub mod suite;
pub mod target;
pub mod trouble;
pub mod workload;

pub use trouble::{Outcome, Trouble};
