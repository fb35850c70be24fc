//! Running: which step comes when, what is kept after each, and how it goes on after a stop.
//!
//! # Invariants
//!
//! - Rounds are interleaved: each workload runs on target A, then B, …, then again, the other way
//!   round. Whatever the machine does slowly, it does to all.
//! - Only one target is mounted at a time, on a volume that was made for the step; the others are
//!   at rest.
//! - After each step the result is written whole. A run that is stopped, killed or cut loses one
//!   step.
//! - Seeds depend on the round, never on the target.

mod merge;
mod plan;
mod runner;
mod stop;

pub use plan::{Effort, Plan, PlannedSuite, Step};
pub use runner::{Observer, RunError, StepReport, run};
pub use stop::Stop;
