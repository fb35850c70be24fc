//! Scrub: reads everything on a mounted volume in small steps, so that rot is found while the other
//! copy is good.
//!
//! [`Volume::scrub_step`] does one bounded piece of work: the fixed places, or the nodes on the
//! path to one leaf, or up to [`STEP_BYTES`] of data. The caller decides the rate: every step
//! returns how much it has read. Between steps nothing is locked, and the volume may change in any
//! way. A pass is a walk along the keys. So a key that exists throughout is visited; a key that is
//! added or removed meanwhile may be visited or not.
//!
//! - Every copy of every node is read from the medium. A bad copy is rewritten from a good one, or
//!   from memory, if the volume is writable. Nodes that are not on the medium yet are left to the
//!   next pass.
//! - Data is compared with its checksums; there is no second copy to repair it from.
//! - Snapshots are visited from the oldest to the newest and the live state last. Parts that an
//!   older one has too are skipped. So a pass reads each block once.
//!
//! [`Volume::scrub_step`]: crate::Volume::scrub_step

mod fixed;
mod locate;
mod step;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::format::key::Key;
use crate::types::{BlockAddress, Generation, InodeNumber};
use locate::Locate;

/// Limit of the data bytes that a step reads (one block, if blocks are larger).
pub const STEP_BYTES: usize = 256 << 10;
/// Limit of the findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 1000;

/// A problem found by a scrub. [`Display`](fmt::Display) shows it in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubFinding {
    /// The problem and its place, in one line, without the path.
    pub text: String,
    /// Whether it was repaired.
    pub healed: bool,
    /// First bad block.
    pub block: BlockAddress,
    /// The file whose data is bad.
    pub inode: Option<InodeNumber>,
    /// The affected byte range.
    pub bytes: Option<Range<u64>>,
    /// The snapshot that alone holds the bad data; `None` if the live volume holds it too.
    pub snapshot: Option<Generation>,
    /// Its path in that snapshot or in the live volume; filled in at the end of the pass if the
    /// file still has one.
    pub path: Option<Vec<u8>>,
}

impl fmt::Display for ScrubFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(path) = &self.path {
            let path = String::from_utf8_lossy(path);
            write!(f, "; affects {}", path.replace(|c: char| c.is_control(), "?"))?;
        }
        match &self.bytes {
            Some(bytes) => write!(f, ", bytes {} to {}", bytes.start, bytes.end.saturating_sub(1)),
            None => Ok(()),
        }
    }
}

/// Results of a pass so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes read from the medium.
    pub bytes: u64,
    /// Bytes in use when the pass began: approximately the number that it will read.
    pub bytes_total: u64,
    /// Tree nodes of which all copies were read.
    pub nodes: u64,
    /// Data blocks compared with their checksums.
    pub data_blocks: u64,
    /// Bad copies that were rewritten.
    pub healed: u64,
    /// Bad copies that could not be rewritten, and bad data: the [`findings`](Self::findings) that
    /// are not repaired.
    pub bad: u64,
    /// The findings, at most the first thousand.
    pub findings: Vec<ScrubFinding>,
    /// The pass is over.
    pub finished: bool,
}

/// A pass of scrubbing: its position and its findings.
#[derive(Debug)]
pub struct Scrub {
    phase: Phase,
    /// Trees of generations up to this one have been visited, so blocks born by then are done.
    bound: Generation,
    /// Key at which the tree of this phase continues.
    key: Key,
    /// Blocks of the extent under `key` that are done.
    offset: u64,
    /// For each level, the last verified node on the path to `key`.
    verified: Vec<Option<BlockAddress>>,
    locate: Locate,
    report: ScrubReport,
}

/// The present work of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Superblocks and metaroots.
    Fixed,
    /// Choosing the next tree: the oldest snapshot younger than `bound`, or else the live tree.
    Choose,
    /// The tree of the snapshot of this generation.
    Snapshot(Generation),
    /// The live tree.
    Live,
    /// Searching for the names of the findings.
    Locate,
    Done,
}

impl Default for Scrub {
    fn default() -> Self {
        Scrub::new()
    }
}

impl Scrub {
    /// A pass that has not begun.
    pub fn new() -> Scrub {
        Scrub {
            phase: Phase::Fixed,
            bound: Generation(0),
            key: Key::MIN,
            offset: 0,
            verified: Vec::new(),
            locate: Locate::default(),
            report: ScrubReport::default(),
        }
    }

    /// Results so far.
    pub fn report(&self) -> &ScrubReport {
        &self.report
    }

    /// Begins another tree.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.key = Key::MIN;
        self.offset = 0;
        self.verified.clear();
    }

    /// Continues at a later key; without one this tree is done.
    fn go_on(&mut self, next: Option<Key>) {
        match next.filter(|next| *next > self.key) {
            Some(next) => {
                self.key = next;
                self.offset = 0;
            }
            None => match self.phase {
                Phase::Snapshot(generation) => {
                    self.bound = generation;
                    self.enter(Phase::Choose);
                }
                _ => self.enter(Phase::Locate),
            },
        }
    }

    fn find(&mut self, finding: ScrubFinding) {
        match finding.healed {
            true => self.report.healed += 1,
            false => self.report.bad += 1,
        }
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        }
    }
}
