//! The origin of a result, its reliability, and the progress of the run.

use serde::{Deserialize, Serialize};

/// Everything needed to repeat a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Version of `steadfast`.
    pub version: String,
    /// Commit of the build, if known.
    pub commit: Option<String>,
    /// Build profile: `release` or `debug`. Figures of a debug build are meaningless.
    pub profile: String,
    /// Seconds since 1970, UTC.
    pub started: u64,
    /// Time of the last change of the result, in the same form.
    pub updated: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// `quick`, `default` or `full`.
    pub effort: String,
    /// Name of the host.
    pub host: String,
    /// `Linux 6.18.4 x86_64`.
    pub kernel: String,
    /// The name of the distribution.
    pub system: String,
    /// Model of the processor.
    pub cpu: String,
    /// Number of usable processors.
    pub cpus: u32,
    /// Frequency governor of the first processor, if there is one.
    pub governor: Option<String>,
    /// Hypervisor or container around it, if it can be detected.
    pub virtualisation: Option<String>,
    /// Main memory, bytes.
    pub memory: u64,
    /// Free main memory at the start, bytes.
    pub memory_available: u64,
    /// The storage of the volumes.
    pub backing: BackingDescription,
}

/// The storage of a run's volumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackingDescription {
    /// Directory of the image files, or the block device.
    pub path: String,
    /// File system of that directory; empty for a block device.
    pub file_system: String,
    /// The device below: `/dev/nvme0n1`.
    pub device: String,
    /// Its model, if it reports one.
    pub model: Option<String>,
    /// Whether it reports that it rotates.
    pub rotational: Option<bool>,
    /// The kernel's view of its cache: `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Free bytes at the start.
    pub available: u64,
}

/// The variation of the machine while nothing changes: the same work, several times.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// The probes.
    pub probes: Vec<Probe>,
    /// Load averages over one minute, at the start and at the end.
    pub load: (f64, f64),
    /// Share of the processor time that a hypervisor took away during the run, 0 to 1.
    pub stolen: f64,
    /// The floor: a smaller difference than this share (0.05 is 5 %) never counts. It is the
    /// largest spread of the probes, but at least 0.02.
    pub floor: f64,
    /// The reasons to doubt the figures, one sentence each: `something else kept 1.2 of 2
    /// processors busy`.
    pub warnings: Vec<String>,
}

/// One kind of work, repeated several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// `processor`, `memory`, `medium-write`, `medium-sync`.
    pub name: String,
    /// A description of the work.
    pub title: String,
    /// Seconds of each repetition.
    pub seconds: Vec<f64>,
    /// The spread: half the distance between the quartiles, divided by the median.
    pub spread: f64,
}

/// The progress of a run; `--resume` continues from it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Whether everything was measured, or skipped with a reason.
    pub complete: bool,
    /// Total number of steps: one is a job of a suite on one target in one round.
    pub steps: u64,
    /// Names of the completed steps: `b5/iozone file=65536 record=4096/ext4/0`.
    pub done: Vec<String>,
    /// Time spent so far, seconds, without pauses.
    pub seconds: f64,
    /// Number of times that the run was stopped and resumed.
    pub resumed: u32,
}
