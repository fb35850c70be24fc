//! Repair: fixes findings of a check that need no guess.
//!
//! - A bad copy is rewritten if the other one is good: a pass of the [scrub](crate::tools::scrub)
//!   does that.
//! - A count, a parent or an orphan record that contradicts the facts is corrected, but only if the
//!   structure has no other damage. With missing keys, the facts on the medium are incomplete.
//! - Everything else stays unchanged. If there is nothing to do, nothing is written.
//!
//! A repair consists of ordinary transactions, and of copies of which no power cut spoils both. So
//! it can be interrupted at any moment and started again.

use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::keyspace::SpaceClass;
use crate::error::{Error, Result};
use crate::format::inode::Inode;
use crate::format::key::Key;
use crate::fs::orphan;
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::tools::check::{
    CheckOptions, CheckProgress, CheckReport, Finding, Remedy, check, find_superblock,
};
use crate::tools::scrub::Scrub;
use crate::types::InodeNumber;
use crate::volume::Volume;

/// Findings and results of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The findings before.
    pub before: CheckReport,
    /// The remaining findings: those that cannot be repaired without a guess.
    pub after: CheckReport,
    /// Copies that were rewritten.
    pub copies: u64,
    /// Counts, parents and orphan records that were corrected.
    pub counts: u64,
}

impl RepairReport {
    /// Whether anything was written.
    pub fn changed(&self) -> bool {
        self.copies + self.counts > 0
    }

    /// The findings that were repaired.
    pub fn repaired(&self) -> impl Iterator<Item = &Finding> {
        let left =
            |finding: &&Finding| !self.after.findings.iter().any(|left| left.text == finding.text);
        self.before.findings.iter().filter(left)
    }
}

/// Checks the volume on `medium`, repairs what is safe, and checks again what was changed.
/// `progress` reports the progress of the checks.
///
/// # Errors
/// As [`check`]; those of opening the volume for writing and of writing. The volume is then as
/// after a power cut.
pub fn repair<M, P>(
    medium: M,
    platform: P,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport>
where
    M: Medium + Clone,
    P: Platform + Clone,
{
    let before = check(medium.clone(), platform.clone(), options, progress)?;
    let (fixes, has_copies) = (fixes(&before), has_bad_copies(&before));
    if !before.is_repairable() {
        return Ok(RepairReport { after: before.clone(), before, ..RepairReport::default() });
    }
    let found = find_superblock(&medium, &platform)?;
    let open_options = OpenOptions {
        read_only: false,
        cache_size: options.cache_size,
        access_times: false,
        ..OpenOptions::default()
    };
    let opened = Volume::open_found(medium.clone(), open_options, platform.clone(), found);
    let volume = match opened.and_then(|volume| volume.engine.replay_overlay().map(|()| volume)) {
        // Something that opening needs is lost; the check has reported it.
        Err(
            Error::NewerStateLost(_) | Error::CorruptMetadata { .. } | Error::CorruptLog { .. },
        ) => {
            return Ok(RepairReport { after: before.clone(), before, ..RepairReport::default() });
        }
        opened => opened?,
    };
    for finding in &fixes {
        apply(&volume, finding)?;
    }
    let mut counts = fixes.len() as u64;
    let mut copies = 0;
    if has_copies {
        let mut scrub = Scrub::new();
        while !scrub.report().finished {
            volume.scrub_step(&mut scrub)?;
        }
        copies = scrub.report().healed;
    }
    // The slot of the older metaroot is no copy of anything: the next checkpoint writes it.
    let renewed = volume.update(SpaceClass::Freeing, |tx| {
        Inode::load(tx, InodeNumber::ROOT)?.store(tx, InodeNumber::ROOT)
    });
    match renewed.and_then(|()| volume.checkpoint()).and_then(|()| volume.close()) {
        // What every change needs is lost. The copies that were rewritten stay.
        Err(error)
            if matches!(error, Error::CorruptMetadata { .. } | Error::Stale(_))
                || error.is_unreadable() =>
        {
            medium.flush()?;
            counts = 0;
        }
        closed => closed?,
    }
    drop(volume);
    let after = check(medium, platform, options, progress)?;
    let bad = |report: &CheckReport| {
        report.findings.iter().filter(|finding| finding.remedy == Remedy::Copy).count() as u64
    };
    let copies = copies.max(bad(&before).saturating_sub(bad(&after)));
    Ok(RepairReport { counts, copies, before, after })
}

impl CheckReport {
    /// Whether a [repair] would find something to do. Without this it writes nothing.
    pub fn is_repairable(&self) -> bool {
        let opens = !self.newer_state_lost && !self.replay_failed;
        opens && (has_bad_copies(self) || !fixes(self).is_empty())
    }
}

fn has_bad_copies(report: &CheckReport) -> bool {
    report.findings.iter().any(|finding| finding.remedy == Remedy::Copy)
}

/// The findings whose right value is derivable. It is empty if the structure has damage of another
/// kind. It is also empty if there are more findings than are kept, because the others are unknown.
fn fixes(report: &CheckReport) -> Vec<Finding> {
    let all_known = report.findings.len() as u64 == report.damaged + report.degraded;
    let guess = report.findings.iter().any(|finding| finding.remedy == Remedy::None);
    if guess || !all_known {
        return Vec::new();
    }
    let derivable = |finding: &&Finding| !matches!(finding.remedy, Remedy::Copy | Remedy::Data);
    report.findings.iter().filter(derivable).cloned().collect()
}

fn apply<M: Medium, P: Platform>(volume: &Volume<M, P>, finding: &Finding) -> Result<()> {
    let change = |change: &dyn Fn(&mut Inode)| match finding.inode {
        Some(number) => volume.update(SpaceClass::Freeing, |tx| {
            let mut inode = Inode::load(tx, number)?;
            change(&mut inode);
            inode.store(tx, number)
        }),
        None => Ok(()),
    };
    match finding.remedy {
        Remedy::None | Remedy::Data | Remedy::Copy => Ok(()),
        Remedy::Links(links) => change(&|inode| inode.links = links),
        Remedy::Entries(entries) => change(&|inode| inode.size = entries),
        Remedy::Blocks(blocks) => change(&|inode| inode.blocks = blocks),
        Remedy::Parent(parent) => change(&|inode| inode.parent = parent),
        Remedy::AddOrphan => match finding.inode {
            Some(number) => volume.update(SpaceClass::Freeing, |tx| orphan::record(tx, number)),
            None => Ok(()),
        },
        Remedy::DropOrphan(number) => {
            volume.update(SpaceClass::Freeing, |tx| tx.delete(&Key::orphan(number)))
        }
    }
}
