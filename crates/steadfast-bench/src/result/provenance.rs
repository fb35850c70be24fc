//! Where a result comes from, how far it may be trusted, and how far the run has come.

use serde::{Deserialize, Serialize};

/// Everything that is needed to repeat a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Version of `steadfast`.
    pub version: String,
    /// Commit from which it was built, if known.
    pub commit: Option<String>,
    /// Build profile: `release` or `debug`. Figures of a debug build say nothing.
    pub profile: String,
    /// Seconds since 1970, UTC.
    pub started: u64,
    /// The same, of the last change of the result.
    pub updated: u64,
    /// The seed of everything random.
    pub seed: u64,
    /// `quick`, `default` or `full`.
    pub effort: String,
    /// Name of the host.
    pub host: String,
    /// `Linux 6.18.4 x86_64`.
    pub kernel: String,
    /// The distribution's name for itself.
    pub system: String,
    /// Model of the processor.
    pub cpu: String,
    /// Processors that may be used.
    pub cpus: u32,
    /// Frequency governor of the first processor, if there is one.
    pub governor: Option<String>,
    /// Hypervisor or container in which it ran, if that can be seen.
    pub virtualisation: Option<String>,
    /// Main memory, bytes.
    pub memory: u64,
    /// Free main memory at the start, bytes.
    pub memory_available: u64,
    /// What the volumes are on.
    pub backing: Backing,
}

/// What the volumes of a run are on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backing {
    /// Directory of the image files, or the block device.
    pub path: String,
    /// File system of that directory; empty for a block device.
    pub file_system: String,
    /// The device below: `/dev/nvme0n1`.
    pub device: String,
    /// Its model, if it says so.
    pub model: Option<String>,
    /// Whether it says that it rotates.
    pub rotational: Option<bool>,
    /// `write back` or `write through`, as the kernel sees its cache.
    pub write_cache: Option<String>,
    /// Free bytes at the start.
    pub available: u64,
}

/// How much the machine varies while nothing changes: the same work, several times.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Noise {
    /// The probes.
    pub probes: Vec<Probe>,
    /// Load averages over one minute, at the start and at the end.
    pub load: (f64, f64),
    /// Share of the processor time that a hypervisor took away during the run, 0 to 1.
    pub stolen: f64,
    /// The floor: a difference of less than this share (0.05 is 5 %) is never called one. The
    /// largest spread of the probes, but at least 0.02.
    pub floor: f64,
    /// What makes the figures doubtful, one sentence each: `something else kept 1.2 of 2 processors
    /// busy`.
    pub warnings: Vec<String>,
}

/// The same work, several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// `processor`, `memory`, `medium-write`, `medium-sync`.
    pub name: String,
    /// What was done, for people.
    pub title: String,
    /// Seconds that it took, each time.
    pub seconds: Vec<f64>,
    /// The spread: half the distance between the quartiles, divided by the median.
    pub spread: f64,
}

/// How far a run has come. With it `--resume` goes on.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Whether everything has been measured (or skipped with a reason).
    pub complete: bool,
    /// Steps in all: one is a job of a suite on one target in one round.
    pub steps: u64,
    /// Steps that are done, by name: `b5/iozone file=65536 record=4096/ext4/0`.
    pub done: Vec<String>,
    /// Time spent so far, seconds, without pauses.
    pub seconds: f64,
    /// How often the run was stopped and resumed.
    pub resumed: u32,
}
