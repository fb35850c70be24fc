//! What one test has found on one target.

use serde::{Deserialize, Serialize};

/// The result of one test on one target: a value a round, and what was seen beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`super::Target::id`].
    pub target: String,
    /// Whether it worked.
    pub status: Status,
    /// One value a round, in the test's unit, in the order of the rounds. Rounds of different
    /// targets are interleaved, so samples with the same `round` were taken next to each other.
    pub samples: Vec<Sample>,
    /// Times of single operations over all rounds, where the test has operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Processor time over all rounds, where it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Memory at most, where it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What reached the medium over all rounds, where it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<Medium>,
    /// What was read and compared.
    #[serde(default)]
    pub verification: Verification,
    /// The same load by fio, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
}

impl Measurement {
    /// The values of the rounds.
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }
}

/// Whether something could be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Status {
    /// Yes.
    Ok,
    /// No, and nothing is wrong with the target: a tool is missing, it does not know the operation,
    /// the volume is full.
    Skipped {
        /// One line for people.
        reason: String,
    },
    /// No: it gave an error or a wrong byte. A run with a failure exits with an error.
    Failed {
        /// One line for people.
        reason: String,
    },
}

/// One round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Counted from 0.
    pub round: u32,
    /// In the test's unit. Finite.
    pub value: f64,
    /// How long was measured, seconds.
    pub seconds: f64,
    /// Operations in that time (records, files, transactions).
    pub operations: u64,
    /// Bytes of data in that time, 0 where none move.
    pub bytes: u64,
}

/// The distribution of the times of single operations. All times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// The shortest.
    pub least: f64,
    /// Half take no longer.
    pub p50: f64,
    /// 90 % take no longer.
    pub p90: f64,
    /// 99 % take no longer.
    pub p99: f64,
    /// 99.9 % take no longer; with fewer than 1,000 operations this is the longest.
    pub p999: f64,
    /// The longest.
    pub most: f64,
    /// The histogram: buckets that are not empty, ascending; each is at most 7 % wide.
    pub buckets: Vec<Bucket>,
}

/// A part of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest time in it, seconds; its lower end is the upper one of the bucket before, or
    /// less.
    pub upper: f64,
    /// How many operations took that long.
    pub count: u64,
}

/// Processor time, seconds, over all rounds of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Measured time, so that utilisation can be computed.
    pub elapsed: f64,
    /// The measuring process in user mode. With a library target the file system is in it.
    pub user: f64,
    /// The measuring process in the kernel: system calls, and with them a file system in the
    /// kernel.
    pub system: f64,
    /// The daemon of a FUSE file system, user and system together; 0 where there is none.
    pub daemon: f64,
    /// Kernel threads that work for the target (loop device, journal, write-back), as far as they
    /// can be told apart.
    pub kernel_threads: f64,
    /// Utilisation over time in the last round; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CpuPoint>,
}

impl Cpu {
    /// Everything together, seconds.
    pub fn total(&self) -> f64 {
        self.user + self.system + self.daemon + self.kernel_threads
    }
}

/// A moment of a curve of processor load. Each share is of one processor: 1.0 is one processor kept
/// busy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuPoint {
    /// Since the start of the round, seconds.
    pub at: f64,
    /// The measuring process.
    pub process: f64,
    /// The daemon and the kernel threads of the target.
    pub file_system: f64,
    /// The whole machine, in processors.
    pub machine: f64,
}

/// Memory, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident at most of the file system's process (its daemon, or with a library the measuring
    /// process).
    pub resident_most: u64,
    /// The limit of the control group, if the test ran in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// What reached the medium below the file system, over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    /// Bytes that the test gave to the file system to write.
    pub bytes_asked: u64,
    /// Bytes written to the medium. `bytes_written / bytes_asked` is the write amplification.
    pub bytes_written: u64,
    /// Bytes read from the medium.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Flushes, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
}

/// What was read back and compared with what must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Bytes compared, none of them wrong: a wrong one makes the status [`Status::Failed`].
    pub bytes: u64,
    /// Names, sizes and attributes compared.
    pub items: u64,
}

/// What was in the caches when a test began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Whatever the operations before have left: as IOzone does it.
    Warm,
    /// Nothing: the volume was unmounted, the kernel's caches dropped, and the volume mounted
    /// again.
    Cold,
    /// The test goes around the page cache (O_DIRECT).
    Bypassed,
}

/// The same load by fio on the same mount in the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// The command.
    pub command: String,
    /// Version of fio.
    pub version: String,
    /// Its values in the test's unit, one a round.
    pub values: Vec<f64>,
    /// Our median divided by its median.
    pub ratio: f64,
    /// Whether the two are within 10 %.
    pub agrees: bool,
    /// Why not, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}
