//! Scrub: reads everything that a mounted volume holds, in small steps, so that rot is found while
//! the other copy is good.
//!
//! [`Volume::scrub_step`] does one bounded piece of work: the fixed places, or the nodes on the way
//! to one leaf, or up to [`STEP_BYTES`] of data. Whoever calls it decides how fast: every step says
//! how much it has read. Between steps nothing is locked, and the volume may change in any way: a
//! pass is a walk along the keys, so what is there all the time is visited, and what comes or goes
//! meanwhile may be or not.
//!
//! - Every copy of every node is read from the medium. A bad copy is written again from a good one,
//!   or from memory, where the volume can be written. What is not yet on the medium is left to the
//!   next pass.
//! - Data is compared with its checksums; there is no second copy to heal it from.
//! - Snapshots are visited from the oldest to the newest and the live state last, each without what
//!   an older one has shown already, so a pass reads each block once.
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

/// Bytes of data that a step reads at most (one block, where blocks are larger).
pub const STEP_BYTES: usize = 256 << 10;
/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// Something that a scrub has found. [`Display`](fmt::Display) gives it in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubFinding {
    /// What is wrong where, in one line, without the path.
    pub text: String,
    /// Whether it is in order again.
    pub healed: bool,
    /// First bad block.
    pub block: BlockAddress,
    /// The file whose data is bad.
    pub inode: Option<InodeNumber>,
    /// Which of its bytes.
    pub bytes: Option<Range<u64>>,
    /// Its path in the live volume; filled in at the end of the pass where it still has one.
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

/// What a pass has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes read from the medium.
    pub bytes: u64,
    /// Bytes in use when the pass began: about as many as it will read.
    pub bytes_total: u64,
    /// Tree nodes of which all copies were read.
    pub nodes: u64,
    /// Blocks of data compared with their checksums.
    pub data_blocks: u64,
    /// Bad copies that were written again.
    pub healed: u64,
    /// Bad copies that could not be, and bad data: what [`findings`](Self::findings) has that is
    /// not healed.
    pub bad: u64,
    /// At most the first thousand.
    pub findings: Vec<ScrubFinding>,
    /// The pass is over.
    pub finished: bool,
}

/// A pass of scrubbing: where it is, and what it has found.
#[derive(Debug)]
pub struct Scrub {
    phase: Phase,
    /// Trees of generations up to this one have been visited: what was born by then is done.
    bound: Generation,
    /// Key where the tree of this phase goes on.
    key: Key,
    /// Blocks of the extent under `key` that are done.
    offset: u64,
    /// For each level the node on the way to `key` that was verified last.
    verified: Vec<Option<BlockAddress>>,
    locate: Locate,
    report: ScrubReport,
}

/// What a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Superblocks and metaroots.
    Fixed,
    /// The oldest snapshot that is younger than `bound`, or the live tree where there is none.
    Choose,
    /// The tree of the snapshot of this generation.
    Snapshot(Generation),
    /// The live tree.
    Live,
    /// Looking for the names of what was found.
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

    /// What it has done so far.
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

    /// Goes on at a later key; without one this tree is done.
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
