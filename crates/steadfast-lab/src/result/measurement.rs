//! The result of one test on one target.

use serde::{Deserialize, Serialize};

/// The result of one test on one target: one value per round, and further observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// [`super::TargetDescription::id`].
    pub target: String,
    /// Whether the measurement succeeded.
    pub status: Status,
    /// One value per round, in the test's unit, in the order of the rounds. Rounds of different
    /// targets are interleaved, so samples with the same `round` were taken next to each other.
    pub samples: Vec<Sample>,
    /// Times of single operations over all rounds, if the test has operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Processor time over all rounds, if it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// Maximum memory, if it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Traffic of the medium over all rounds, if it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<MediumTraffic>,
    /// The data that was read and compared.
    #[serde(default)]
    pub verification: Verification,
    /// The same load by fio, if it was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<CrossCheck>,
}

impl Measurement {
    /// The values of the rounds.
    pub fn values(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.value).collect()
    }
}

/// Whether a measurement succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Status {
    /// The measurement succeeded.
    Ok,
    /// No measurement, but the target is not at fault: a tool is missing, the operation is not
    /// supported, or the volume is full.
    Skipped {
        /// One line for the user.
        reason: String,
    },
    /// The target returned an error or a wrong byte. A run with a failure exits with an error.
    Failed {
        /// One line for the user.
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
    /// Duration of the measurement, seconds.
    pub seconds: f64,
    /// Operations in that time (records, files, transactions).
    pub operations: u64,
    /// Bytes of data in that time; 0 if no data moves.
    pub bytes: u64,
}

/// The distribution of the times of single operations. All times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of operations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// The shortest.
    pub least: f64,
    /// 50 % take no longer.
    pub p50: f64,
    /// 90 % take no longer.
    pub p90: f64,
    /// 99 % take no longer.
    pub p99: f64,
    /// 99.9 % take no longer; with fewer than 1,000 operations this is the longest.
    pub p999: f64,
    /// The longest.
    pub most: f64,
    /// The histogram: the non-empty buckets, ascending; each is at most 7 % wide.
    pub buckets: Vec<Bucket>,
}

/// A part of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest time in the bucket, seconds. Its lower end is at most the upper end of the
    /// previous bucket.
    pub upper: f64,
    /// Number of operations in the bucket.
    pub count: u64,
}

/// Processor time, seconds, over all rounds of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Measured time, needed to compute utilisation.
    pub elapsed: f64,
    /// The measuring process in user mode. With a library target it includes the file system.
    pub user: f64,
    /// The measuring process in the kernel: system calls, including a file system in the kernel.
    pub system: f64,
    /// The daemon of a FUSE file system, user and system time together; 0 without a daemon.
    pub daemon: f64,
    /// Kernel threads that work for the target (loop device, journal, write-back), if they can be
    /// told apart.
    pub kernel_threads: f64,
    /// Utilisation over time in the last round; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CpuPoint>,
}

impl Cpu {
    /// The sum of all parts, seconds.
    pub fn total(&self) -> f64 {
        self.user + self.system + self.daemon + self.kernel_threads
    }
}

/// A point of a curve of processor load. Each share is relative to one processor: 1.0 is one busy
/// processor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuPoint {
    /// Time since the start of the round, seconds.
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
    /// Maximum resident memory of the file system's process: its daemon, or with a library the
    /// measuring process.
    pub resident_most: u64,
    /// The limit of the control group, if the test ran in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The traffic of the medium below the file system, over all rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediumTraffic {
    /// Bytes that the test asked the file system to write.
    pub bytes_asked: u64,
    /// Bytes written to the medium. `bytes_written / bytes_asked` is the write amplification.
    pub bytes_written: u64,
    /// Bytes read from the medium.
    pub bytes_read: u64,
    /// Write requests.
    pub writes: u64,
    /// Read requests.
    pub reads: u64,
    /// Flushes, if they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
}

/// The data that was read back and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Bytes compared, none of them wrong: a wrong byte makes the status [`Status::Failed`].
    pub bytes: u64,
    /// Names, sizes and attributes compared.
    pub items: u64,
}

/// The state of the caches when a test began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Whatever the operations before have left, as in IOzone.
    Warm,
    /// Empty: the volume was unmounted, the kernel's caches were dropped, and the volume was
    /// mounted again.
    Cold,
    /// The test bypasses the page cache (O_DIRECT).
    Bypassed,
}

/// The same load by fio on the same mount in the same run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CrossCheck {
    /// The command.
    pub command: String,
    /// Version of fio.
    pub version: String,
    /// Its values in the test's unit, one per round.
    pub values: Vec<f64>,
    /// The lab's median divided by fio's median.
    pub ratio: f64,
    /// Whether the two are within 10 %.
    pub agrees: bool,
    /// The reason for a disagreement, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}
