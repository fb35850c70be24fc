//! The measuring part of `steadfast lab`. It runs the workloads of published file-system
//! comparisons side by side on any set of file systems, and its results can be verified.
//!
//! # Layers
//! - [`result`]: the schema of a run. All measurements go there, and all printing, drawing and
//!   comparing reads only this. It is JSON, documented field by field, with a version.
//! - [`statistics`]: medians, spreads, ratios with their confidence, and the rule that a difference
//!   below the noise does not count.
//! - [`report`]: the presentation of a result: tables, pictures, the page. [`compare`]: the changes
//!   between two results.
//! - [`target`]: the file systems under test.
//! - [`workload`]: the work done on them.
//! - [`suite`]: which workloads answer which published comparison.
//! - [`measure`]: instruments: times of operations, processor time, traffic of the medium, noise of
//!   the machine.
//! - [`run`]: the order of the steps, what is stored after each, and how a stopped run continues.
//! - [`trouble`]: the reasons why something could not be measured.
//!
//! # Invariants
//! - A number is never invented: a measurement that failed has a status with its reason, and no
//!   sample.
//! - Compared values come from the same run, from the same rounds, and from volumes of the same
//!   size.
//! - Every value in a result is finite, because JSON has no other numbers.

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
