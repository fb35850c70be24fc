//! The schema of a run: `steadfast lab run` writes it as `result.json`, and everything else reads
//! it.
//!
//! A [`RunResult`] is a tree: run → suites → tests → one [`Measurement`] per target → one
//! [`Sample`] per round. Units are SI units without prefixes: seconds, bytes, bytes per second,
//! operations per second. Every number is finite. Times of day are seconds since 1970, UTC.
//!
//! The same file is the state from which a stopped run continues ([`Progress`]). It is rewritten,
//! by rename, after every step.
//!
//! Readers ignore unknown fields. [`SCHEMA`] changes only when an old reader would misunderstand
//! the file.

mod file;
mod measurement;
mod provenance;

use serde::{Deserialize, Serialize};

pub use file::{ResultError, read, write};
pub use measurement::{
    Bucket, Cache, Cpu, CpuPoint, CrossCheck, Latency, Measurement, MediumTraffic, Memory, Sample,
    Status, Verification,
};
pub use provenance::{BackingDescription, Noise, Probe, Progress, Provenance};

use std::collections::BTreeMap;

/// The share that replaces the noise of the machine for counts, such as requests at the medium. A
/// busy machine makes times longer, not counts larger.
pub const FLOOR_OF_COUNTS: f64 = 0.02;

/// The version of the schema that this code writes and reads.
pub const SCHEMA: u32 = 1;

/// The word in [`RunResult::kind`] that identifies such a file.
pub const KIND: &str = "steadfast-lab-run";

/// The whole result of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Always [`KIND`].
    pub kind: String,
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// The program, the command, the machine and the time of the run.
    pub provenance: Provenance,
    /// The variation of the machine itself.
    pub noise: Noise,
    /// The file systems, in the requested order. The first working one is not special; see
    /// [`RunResult::peer`].
    pub targets: Vec<TargetDescription>,
    /// The [`TargetDescription::id`] of the peer for ratios; `None` if there is only one target.
    pub peer: Option<String>,
    /// The suites of the run.
    pub suites: Vec<Suite>,
    /// The progress of the run.
    pub progress: Progress,
}

/// A file system under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetDescription {
    /// Unique in the run, as given to `--on`: `steadfast`, `ext4`, `dir:/mnt/data`.
    pub id: String,
    /// Its name in the report: `Steadfast (FUSE)`, `ext4`.
    pub name: String,
    /// The way of access.
    pub access: Access,
    /// Whether it could be measured.
    pub status: Status,
    /// Size of the volume, bytes; `None` for a given directory.
    pub volume_size: Option<u64>,
    /// The command line of mkfs or its equivalent; empty for a given directory.
    pub format: String,
    /// The mount options as mount(8) takes them, or as the kernel shows them.
    pub mount_options: String,
    /// Version of the driver or tool: `mke2fs 1.47.0, Linux 6.18`.
    pub version: String,
    /// Facts needed to judge its figures, one sentence each: `in process: no system calls`.
    pub remarks: Vec<String>,
}

/// The way of access to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A file system in the kernel, through system calls.
    Kernel,
    /// A daemon through FUSE, through system calls.
    Fuse,
    /// A library in the measuring process: no system calls, no page cache.
    Library,
    /// A given directory: system calls; nothing else is known.
    Directory,
}

/// A set of tests that answers one published comparison, or that the command line selects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// `b1` … `b5`, or the name of a workload: `iozone`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The citation of the published comparison that it answers; empty if there is none.
    pub answers: String,
    /// Parts of the published comparison that this run lacks, one sentence each: rows are not
    /// invented.
    pub missing: Vec<String>,
    /// The tests.
    pub tests: Vec<Test>,
}

/// One number that is measured on every target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Unique in the suite: workload, name and parameters:
    /// `iozone/random-write/file_size=1048576,record_size=4096`.
    pub id: String,
    /// The family of tests: `iozone`, `fileops`, `lat_fs`, `general`, `mount`, `durability`,
    /// `noise`.
    pub workload: String,
    /// Its name in the family: `random-write`, `mkdir`, `create`.
    pub name: String,
    /// The title without parameters: `random write`.
    pub title: String,
    /// The properties that distinguish it from others of the same name. Common keys: `file_size`,
    /// `record_size` (bytes), `threads`, `files` (count), `file_bytes`, `condition` (text, of a
    /// mount), `transactions` (text, Steadfast's mask).
    pub parameters: BTreeMap<String, Parameter>,
    /// The unit of the samples.
    pub unit: Unit,
    /// Whether more is better.
    pub better: Better,
    /// Whether the samples are quotients of counts, such as bytes at the medium. Counts do not
    /// become larger on a busy machine, so the noise of its timings does not judge them. Older
    /// results lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
    /// The state of the caches at the start.
    pub cache: Cache,
    /// The result for each target, in the order of [`RunResult::targets`]. A target that was
    /// skipped as a whole has none.
    pub measurements: Vec<Measurement>,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// Yes or no.
    Flag(bool),
    /// A count, or bytes.
    Number(u64),
    /// A word.
    Text(String),
}

impl std::fmt::Display for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Parameter::Flag(value) => value.fmt(f),
            Parameter::Number(value) => value.fmt(f),
            Parameter::Text(value) => value.fmt(f),
        }
    }
}

/// The unit of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes per second.
    BytesPerSecond,
    /// Operations per second.
    OperationsPerSecond,
    /// Operations per minute.
    OperationsPerMinute,
    /// Seconds.
    Seconds,
    /// Seconds for one operation, on average.
    SecondsPerOperation,
    /// Seconds of processor time for one GiB.
    CpuSecondsPerGib,
    /// Seconds of processor time for one operation.
    CpuSecondsPerOperation,
    /// Bytes.
    Bytes,
    /// A quotient of two values of one unit: write amplification.
    Ratio,
}

/// The direction in which a value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better: throughput.
    Higher,
    /// Less is better: times.
    Lower,
}

impl RunResult {
    /// The target with this id.
    pub fn target(&self, id: &str) -> Option<&TargetDescription> {
        self.targets.iter().find(|target| target.id == id)
    }
}

impl Test {
    /// The result of a target.
    pub fn measurement(&self, target: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.target == target)
    }

    /// The share below which a difference in this test says nothing: the noise of the machine's
    /// timings, but for counts a fixed small one.
    pub fn floor(&self, of_machine: f64) -> f64 {
        if self.counted { FLOOR_OF_COUNTS } else { of_machine }
    }

    /// A numeric parameter.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.parameters.get(key) {
            Some(Parameter::Number(value)) => Some(*value),
            _ => None,
        }
    }
}
