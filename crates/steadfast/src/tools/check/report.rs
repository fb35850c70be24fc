//! Options and results of a check.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::error::Result;
use crate::format::key::Key;
use crate::types::{BlockAddress, InodeNumber};

/// Limit of the findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 1000;
/// Paths named in one finding.
pub const PATHS_MAX: usize = 8;
/// Blocks between two calls of the progress function.
const PROGRESS_STEP: u64 = 256;

/// What to verify.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Read all file data and verify its checksums.
    pub data: bool,
    /// Memory for cached nodes, bytes.
    pub cache_size: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { data: true, cache_size: 32 << 20 }
    }
}

/// Progress of a check, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Blocks verified.
    pub done: u64,
    /// Blocks in use: approximately the number that will be verified.
    pub total: u64,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost, but a second copy is missing.
    Degraded,
    /// Something is unreadable or contradicts itself.
    Damaged,
}

/// The fix for a finding that needs no guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Remedy {
    /// None: the right value cannot be derived from what is left.
    #[default]
    None,
    /// None either, but only file content is lost: references and counts do not depend on it.
    Data,
    /// The other copy is good: rewrite the bad one.
    Copy,
    /// The inode has this number of links.
    Links(u32),
    /// The directory has this number of entries.
    Entries(u64),
    /// The extents of the inode have this number of blocks.
    Blocks(u64),
    /// This is the parent of the directory.
    Parent(InodeNumber),
    /// The inode is removed, or being truncated, and needs an orphan record.
    AddOrphan,
    /// This inode has an orphan record without a reason.
    DropOrphan(InodeNumber),
}

/// One problem. [`Display`](fmt::Display) shows it in one line with what it affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The problem and its place, in one line, without [`paths`](Self::paths).
    pub text: String,
    /// First bad block on the medium, if the problem is in one place.
    pub block: Option<BlockAddress>,
    /// The affected file or directory, if it is one.
    pub inode: Option<InodeNumber>,
    /// The affected byte range, if it is a part; the end is `u64::MAX` if it is unknown.
    pub bytes: Option<Range<u64>>,
    /// Paths of the affected files, as far as names can be read, at most [`PATHS_MAX`].
    pub paths: Vec<Vec<u8>>,
    /// Affected files and directories beyond those in `paths`.
    pub more_paths: u64,
    /// The fix that [`repair`](crate::tools::check::repair()) can make.
    pub remedy: Remedy,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        for (index, path) in self.paths.iter().enumerate() {
            let before = if index == 0 { "; affects " } else { ", " };
            // One line, whatever bytes a name has.
            let path = String::from_utf8_lossy(path);
            write!(f, "{before}{}", path.replace(|c: char| c.is_control(), "?"))?;
        }
        if self.more_paths > 0 {
            write!(f, " and {} more", self.more_paths)?;
        }
        match &self.bytes {
            Some(bytes) if bytes.end == u64::MAX => write!(f, ", from byte {} on", bytes.start),
            Some(bytes) => write!(f, ", bytes {} to {}", bytes.start, bytes.end.saturating_sub(1)),
            None => Ok(()),
        }
    }
}

/// Subject of a finding; its paths are looked up at the end.
#[derive(Debug, Clone, Default)]
pub(super) struct At {
    pub block: Option<BlockAddress>,
    pub inode: Option<InodeNumber>,
    pub bytes: Option<Range<u64>>,
    /// The lost keys: from the first key up to, not including, the second; without a second key to
    /// the end.
    pub keys: Option<(Key, Option<Key>)>,
    pub remedy: Remedy,
}

impl At {
    pub fn block(address: BlockAddress) -> At {
        At { block: Some(address), ..At::default() }
    }

    pub fn inode(number: InodeNumber) -> At {
        At { inode: Some(number), ..At::default() }
    }

    /// With this fix.
    pub fn remedy(self, remedy: Remedy) -> At {
        At { remedy, ..self }
    }

    /// With this byte range of the file.
    pub fn bytes(self, bytes: Range<u64>) -> At {
        At { bytes: Some(bytes), ..self }
    }
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The problems, at most the first thousand.
    pub findings: Vec<Finding>,
    /// Number of all findings of severity [`Severity::Degraded`].
    pub degraded: u64,
    /// Number of all findings of severity [`Severity::Damaged`].
    pub damaged: u64,
    /// Tree nodes of the checkpointed state.
    pub nodes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks of file data, read and verified if that was requested.
    pub data_blocks: u64,
    /// Blocks in use: metadata and data.
    pub used_blocks: u64,
    /// Snapshots, without those that are being deleted.
    pub snapshots: u64,
    /// Blocks in use that only snapshots hold.
    pub snapshot_blocks: u64,
    /// Log records that opening replays.
    pub replayed_records: u64,
    /// A newer state was durable once and is damaged: the volume opens for writing only if it is
    /// [asked to recover](crate::OpenOptions::recover).
    pub newer_state_lost: bool,
    /// The log cannot be replayed: the volume does not open for writing.
    pub replay_failed: bool,
}

impl CheckReport {
    /// Whether there is no finding at all.
    pub fn is_clean(&self) -> bool {
        self.degraded == 0 && self.damaged == 0
    }
}

/// Collects findings and reports progress.
pub(super) struct Reporter<'a> {
    pub report: CheckReport,
    /// A part of the tree is unreadable, so counts cannot add up.
    pub tree_damaged: bool,
    /// The name of the snapshot whose tree is being checked; its findings are not part of the live
    /// tree.
    pub snapshot: Option<String>,
    /// The subject of the finding with the same index.
    places: Vec<At>,
    total: u64,
    done: u64,
    told: u64,
    progress: &'a mut dyn FnMut(CheckProgress),
}

impl<'a> Reporter<'a> {
    pub fn new(total: u64, progress: &'a mut dyn FnMut(CheckProgress)) -> Self {
        let report = CheckReport::default();
        Reporter {
            report,
            tree_damaged: false,
            snapshot: None,
            places: Vec::new(),
            total,
            done: 0,
            told: 0,
            progress,
        }
    }

    /// Nothing is lost, but a copy is bad.
    pub fn degraded_at(&mut self, at: At, text: String) {
        self.report.degraded += 1;
        self.add(Severity::Degraded, at, text);
    }

    /// Something is lost or contradicts itself.
    pub fn damaged(&mut self, text: String) {
        self.damaged_at(At::default(), text);
    }

    pub fn damaged_at(&mut self, at: At, text: String) {
        self.report.damaged += 1;
        self.add(Severity::Damaged, at, text);
    }

    fn add(&mut self, severity: Severity, at: At, mut text: String) {
        if self.report.findings.len() < FINDINGS_MAX {
            let (block, inode, bytes) = (at.block, at.inode, at.bytes.clone());
            let mut remedy = at.remedy;
            if self.snapshot.is_some() && !matches!(remedy, Remedy::Copy | Remedy::Data) {
                // The tree of a snapshot is never changed.
                remedy = Remedy::None;
            }
            if let Some(name) = &self.snapshot {
                text = match text.starts_with("snapshot ") {
                    true => text,
                    false => format!("snapshot {name:?}: {text}"),
                };
            }
            let finding = Finding {
                severity,
                text,
                block,
                inode,
                bytes,
                paths: Vec::new(),
                more_paths: 0,
                remedy,
            };
            self.report.findings.push(finding);
            self.places.push(at);
        }
    }

    /// Whether there is a finding whose paths can be looked up.
    pub fn has_places(&self) -> bool {
        self.places.iter().any(|at| at.inode.is_some() || at.keys.is_some())
    }

    /// Fills in the paths of every finding that has none yet. `paths` returns them, and the number
    /// of further ones.
    pub fn locate(&mut self, mut paths: impl FnMut(&At) -> (Vec<Vec<u8>>, u64)) {
        for (finding, at) in self.report.findings.iter_mut().zip(&self.places) {
            if finding.paths.is_empty() && (at.inode.is_some() || at.keys.is_some()) {
                (finding.paths, finding.more_paths) = paths(at);
            }
        }
    }

    /// The number of findings so far, to look up the paths of [later ones](Self::locate_since).
    pub fn mark(&self) -> usize {
        self.places.len()
    }

    /// Whether there is a finding since the mark whose paths can be looked up.
    pub fn has_places_since(&self, mark: usize) -> bool {
        self.places.iter().skip(mark).any(|at| at.inode.is_some() || at.keys.is_some())
    }

    /// As [`locate`](Self::locate), for findings since the mark in a tree that is not the live one.
    /// Their paths are not looked up again after this.
    pub fn locate_since(&mut self, mark: usize, mut paths: impl FnMut(&At) -> (Vec<Vec<u8>>, u64)) {
        for (finding, at) in self.report.findings.iter_mut().zip(&mut self.places).skip(mark) {
            let at = core::mem::take(at);
            if at.inode.is_some() || at.keys.is_some() {
                (finding.paths, finding.more_paths) = paths(&at);
            }
        }
    }

    /// Notes that `blocks` more blocks have been verified.
    pub fn advance(&mut self, blocks: u64) {
        self.done += blocks;
        if self.done - self.told >= PROGRESS_STEP {
            self.told = self.done;
            (self.progress)(CheckProgress { done: self.done.min(self.total), total: self.total });
        }
    }

    pub fn finish(self) -> Result<CheckReport> {
        (self.progress)(CheckProgress { done: self.total, total: self.total });
        Ok(self.report)
    }
}
