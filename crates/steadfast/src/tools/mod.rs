//! Tools for whole volumes, for administrators.

pub mod check;
mod diff;
pub mod dump;
mod identify;
pub mod map;
mod resize;
pub mod salvage;
pub mod scrub;
mod trim;
mod tune;

pub use diff::{InodeChange, SnapshotDiff};
pub use identify::{Identity, identify};
pub use tune::{Tune, tune};
