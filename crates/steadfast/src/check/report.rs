//! What a check is asked and what it answers.

use alloc::string::String;
use alloc::vec::Vec;

use crate::error::Result;

/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 1000;
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

/// How far a check is, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Blocks verified.
    pub done: u64,
    /// Blocks in use: about as many as will be verified.
    pub total: u64,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost, but a second copy is not there.
    Degraded,
    /// Something cannot be read, or contradicts itself.
    Damaged,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong where, in one line.
    pub text: String,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What is wrong, at most the first thousand.
    pub findings: Vec<Finding>,
    /// Number of all findings of severity [`Severity::Degraded`].
    pub degraded: u64,
    /// Number of all findings of severity [`Severity::Damaged`].
    pub damaged: u64,
    /// Tree nodes of the durable state.
    pub nodes: u64,
    /// Inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks of file data, read and verified where that was asked for.
    pub data_blocks: u64,
    /// Blocks in use: metadata and data.
    pub used_blocks: u64,
    /// Snapshots, without those that are being deleted.
    pub snapshots: u64,
    /// Blocks in use that only snapshots hold.
    pub snapshot_blocks: u64,
    /// Log records that opening replays.
    pub replayed_records: u64,
}

impl CheckReport {
    /// Whether nothing at all is wrong.
    pub fn is_clean(&self) -> bool {
        self.degraded == 0 && self.damaged == 0
    }
}

/// Collects findings and reports progress.
pub(super) struct Reporter<'a> {
    pub report: CheckReport,
    /// A part of the tree cannot be read: counts cannot add up.
    pub tree_damaged: bool,
    total: u64,
    done: u64,
    told: u64,
    progress: &'a mut dyn FnMut(CheckProgress),
}

impl<'a> Reporter<'a> {
    pub fn new(total: u64, progress: &'a mut dyn FnMut(CheckProgress)) -> Self {
        Reporter { report: CheckReport::default(), tree_damaged: false, total, done: 0, told: 0, progress }
    }

    pub fn degraded(&mut self, text: String) {
        self.report.degraded += 1;
        self.add(Finding { severity: Severity::Degraded, text });
    }

    pub fn damaged(&mut self, text: String) {
        self.report.damaged += 1;
        self.add(Finding { severity: Severity::Damaged, text });
    }

    fn add(&mut self, finding: Finding) {
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
        }
    }

    /// `blocks` more have been verified.
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
