//! Instruments: times of operations, processor time, what reaches the medium, and the machine itself.

mod cpu;
mod latency;
mod machine;
mod medium;
mod noise;

pub use cpu::{CpuClock, drop_caches, resident_most};
pub use latency::Histogram;
pub use machine::{memory_available, provenance};
pub use medium::MediumCounters;
pub use noise::{Watch, probe};
