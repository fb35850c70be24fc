//! Running: the order of the steps, what is stored after each, and how a stopped run continues.
//!
//! # Invariants
//! - Rounds are interleaved: each workload runs on target A, then B, …, then in the opposite order.
//!   A slow drift of the machine affects all targets.
//! - Only one target is mounted at a time, on a volume that was made for the step; the others are
//!   idle.
//! - The result is written completely after each step. A run that is stopped, killed or cut loses
//!   one step.
//! - Seeds depend on the round, never on the target.

mod merge;
mod plan;
mod runner;
mod stop;

pub use plan::{Effort, Plan, PlannedSuite, Step};
pub use runner::{Observer, RunError, StepReport, run};
pub use stop::Stop;
