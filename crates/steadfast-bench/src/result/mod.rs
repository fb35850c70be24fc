//! The schema of a run: what `steadfast lab run` writes as `result.json`, and what everything else
//! reads.
//!
//! A [`RunResult`] is a tree: run → suites → tests → one [`Measurement`] a target → one [`Sample`]
//! a round. Units are those of SI without prefixes: seconds, bytes, bytes per second, operations
//! per second. Every number is finite. Times of day are seconds since 1970, UTC.
//!
//! The same file is the state from which a stopped run goes on ([`Progress`]): it is rewritten, by
//! rename, after every step.
//!
//! Readers ignore fields that they do not know. [`SCHEMA`] changes only when an old reader would
//! misunderstand.

mod file;
mod measurement;
mod provenance;

use serde::{Deserialize, Serialize};

pub use file::{ResultError, read, write};
pub use measurement::{
    Bucket, Cache, Cpu, CpuPoint, CrossCheck, Latency, Measurement, Medium, Memory, Sample, Status,
    Verification,
};
pub use provenance::{Backing, Noise, Probe, Progress, Provenance};

use std::collections::BTreeMap;

/// The version of the schema that this code writes and reads.
pub const SCHEMA: u32 = 1;

/// The word in [`RunResult::kind`] by which such a file is known.
pub const KIND: &str = "steadfast-lab-run";

/// Everything that one run has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// Always [`KIND`].
    pub kind: String,
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Who measured what with which command, where and when.
    pub provenance: Provenance,
    /// How much this machine varies by itself.
    pub noise: Noise,
    /// The file systems, in the order in which they were asked for. The first one that works is not
    /// special; see [`RunResult::peer`].
    pub targets: Vec<Target>,
    /// The target to which ratios are given, by [`Target::id`]; `None` when there is only one.
    pub peer: Option<String>,
    /// What was run.
    pub suites: Vec<Suite>,
    /// How far the run has come.
    pub progress: Progress,
}

/// A file system under test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Unique in the run, as given to `--on`: `steadfast`, `ext4`, `dir:/mnt/data`.
    pub id: String,
    /// For people: `Steadfast (FUSE)`, `ext4`.
    pub name: String,
    /// How it is reached.
    pub access: Access,
    /// Whether it could be measured.
    pub status: Status,
    /// Size of the volume, bytes; `None` for a directory that was given.
    pub volume_size: Option<u64>,
    /// How it was made: the command line of mkfs or its equivalent, empty for a directory that was
    /// given.
    pub format: String,
    /// How it was mounted: options as mount(8) takes them, or as the kernel shows them.
    pub mount_options: String,
    /// Version of the driver or tool: `mke2fs 1.47.0, Linux 6.18`.
    pub version: String,
    /// What a reader must know to judge its figures, one sentence each: `in process: no system
    /// calls`.
    pub remarks: Vec<String>,
}

/// How a target is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// A file system in the kernel, through system calls.
    Kernel,
    /// A daemon through FUSE, through system calls.
    Fuse,
    /// A library in the measuring process: no system calls, no page cache.
    Library,
    /// A directory that was given: system calls, nothing else is known.
    Directory,
}

/// A set of tests that answers one published comparison, or was put together on the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// `b1` … `b5`, or the name of a workload: `iozone`.
    pub id: String,
    /// For people.
    pub title: String,
    /// The published comparison that it answers, as a citation; empty if none.
    pub answers: String,
    /// What the published comparison has and this run does not, one sentence each: rows are not
    /// invented.
    pub missing: Vec<String>,
    /// What was measured.
    pub tests: Vec<Test>,
}

/// One number asked of every target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Unique in the suite: workload, name and parameters:
    /// `iozone/random-write/file_size=1048576,record_size=4096`.
    pub id: String,
    /// The family of tests: `iozone`, `fileops`, `lat_fs`, `general`, `mount`, `durability`,
    /// `noise`.
    pub workload: String,
    /// Which one of the family: `random-write`, `mkdir`, `create`.
    pub name: String,
    /// For people, without parameters: `random write`.
    pub title: String,
    /// What distinguishes it from others of the same name. Common keys: `file_size`, `record_size`
    /// (bytes), `threads`, `files` (count), `file_bytes`, `condition` (text, of a mount),
    /// `transactions` (text, Steadfast's mask).
    pub parameters: BTreeMap<String, Parameter>,
    /// What the samples are in.
    pub unit: Unit,
    /// Whether more is better.
    pub better: Better,
    /// What was in the caches at the start.
    pub cache: Cache,
    /// The result for each target, in the order of [`RunResult::targets`]; a target that was
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

/// What a sample is in.
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
    /// A quotient of two of the same: write amplification.
    Ratio,
}

/// In which direction a value is better.
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
    pub fn target(&self, id: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.id == id)
    }
}

impl Test {
    /// The result of a target.
    pub fn measurement(&self, target: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.target == target)
    }

    /// A numeric parameter.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.parameters.get(key) {
            Some(Parameter::Number(value)) => Some(*value),
            _ => None,
        }
    }
}
