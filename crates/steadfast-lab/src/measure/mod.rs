//! Instruments: times of operations, processor time, traffic of the medium, and the machine itself.

mod cpu;
mod curve;
mod latency;
mod machine;
mod medium;
mod memory_limit;
mod noise;

pub use cpu::{CpuClock, drop_caches, drop_names, resident_most, thread_seconds};
pub use curve::Sampler;
pub use latency::Histogram;
pub use machine::{memory_available, provenance};
pub use medium::MediumCounters;
pub use memory_limit::MemoryLimit;
pub use noise::{Watch, probe};
