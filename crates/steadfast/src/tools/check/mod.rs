//! Offline verification of a whole volume: every copy of every node, every data checksum, every
//! reference and count.
//!
//! The check itself only reads; [`repair()`] writes fixes that need no guess. The check covers two
//! states. One is the checkpointed state (newest metaroot), whose nodes and allocation bitmaps are
//! on the medium. The other is the state that opening reaches, which adds the intent log. With an
//! empty log they are the same, and one pass serves for both.

mod files;
mod fixed;
mod paths;
mod repair;
mod report;
mod shared;
mod snapshots;
#[cfg(test)]
mod tests;
mod usage;
mod walk;

use alloc::format;

use steadfast_media::Medium;

use crate::error::{Error, Result};
use crate::format::{Metaroot, Root, Superblock};
use crate::options::OpenOptions;
use crate::platform::Platform;
use crate::tools::salvage::search_superblock;
use crate::volume::Volume;

use files::Files;
pub use repair::{RepairReport, repair};
use report::Reporter;
pub use report::{CheckOptions, CheckProgress, CheckReport, Finding, PATHS_MAX, Remedy, Severity};
use snapshots::{Data, Directory};
use usage::Usage;
use walk::SeenNodes;
use walk::{Copies, walk};

/// Verifies the volume on `medium`. `progress` is called repeatedly. The medium and the platform may
/// be references. With the types of the program's other volumes the compiler makes the code once.
///
/// # Errors
/// Only if the volume cannot be found at all: no superblock, no metaroot, or parameters that this
/// version does not know. Damage inside it is no error: it is in the report.
pub fn check<M, P>(
    medium: M,
    platform: P,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport>
where
    M: Medium + Clone,
    P: Platform + Clone,
{
    let (superblock, superblock_damaged) = find_superblock(&medium, &platform)?;
    let metaroot = Metaroot::read_newest(&medium, &superblock, &platform)?;
    let mut reporter = Reporter::new(metaroot.used_blocks, progress);
    if superblock_damaged {
        fixed::check_superblocks(&medium, &platform, &superblock, &mut reporter);
    }
    fixed::check_metaroots(&medium, &superblock, &platform, &metaroot, &mut reporter);

    let open_options = OpenOptions {
        read_only: true,
        cache_size: options.cache_size,
        access_times: false,
        ..OpenOptions::default()
    };
    let found = (superblock.clone(), superblock_damaged);
    let opened = Volume::open_found(medium.clone(), open_options.clone(), platform.clone(), found);
    let opens = opened.is_ok();
    let volume = match opened.and_then(|volume| volume.engine.replay_overlay().map(|()| volume)) {
        Ok(volume) => volume,
        Err(
            error @ (Error::CorruptMetadata { .. } | Error::CorruptLog { .. } | Error::Medium(_)),
        ) => {
            reporter.report.replay_failed = true;
            let what = reason(&error);
            let so = if opens { "the volume can only be read" } else { "the volume does not open" };
            reporter.damaged(format!("the intent log cannot be replayed ({what}): {so}"));
            Volume::at_checkpoint(medium, platform, superblock.clone(), &metaroot, &open_options)?
        }
        Err(error) => return Err(error),
    };
    fixed::check_log(&volume, &metaroot, &mut reporter);
    reporter.report.replayed_records = volume.info().replayed_records;
    reporter.report.newer_state_lost = volume.newer_state_lost().is_some();
    let checkpointed = metaroot.root();
    let replayed = reporter.report.replayed_records > 0;

    check_checkpointed(
        &volume,
        &superblock,
        &metaroot,
        &checkpointed,
        replayed,
        options,
        &mut reporter,
    );
    if replayed {
        let root = volume.engine.working_root();
        check_files(&volume, &root, options, &mut reporter);
    }
    reporter.finish()
}

/// The superblock, and whether a copy is bad. If a volume is smaller than its medium, its second
/// copy is not at the end of the medium, where opening searches.
fn find_superblock<M: Medium, P: Platform>(medium: &M, platform: &P) -> Result<(Superblock, bool)> {
    match Superblock::read(&medium, platform) {
        Err(error @ (Error::NotSteadfast | Error::SuperblockDamaged)) => {
            Ok((search_superblock(medium, platform).ok_or(error)?.0, true))
        }
        found => found,
    }
}

/// Verifies the state of the newest metaroot: nodes in all copies, allocation, and files (if there
/// is no log to replay).
fn check_checkpointed<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    superblock: &Superblock,
    metaroot: &Metaroot,
    checkpointed: &Root,
    replayed: bool,
    options: &CheckOptions,
    reporter: &mut Reporter<'_>,
) {
    let mut usage = Usage::new(superblock);
    let mut files = Files::new(volume, options.data);
    let mut directory = Directory::default();
    let mut seen = SeenNodes::default();
    let mut nodes = 0;
    let store = volume.engine.store();
    let has_snapshots = metaroot.snapshots.keys > 0;
    walk(store, checkpointed, Copies::All, None, reporter, &mut |event, reporter| match event {
        walk::Event::Node(pointer) => {
            nodes += 1;
            directory.node(&pointer, metaroot);
            if has_snapshots {
                seen.visit(&pointer, reporter);
            }
            for address in pointer.copies() {
                usage.take(address, superblock.node_blocks(), "a tree node", reporter);
            }
        }
        walk::Event::Item(key, value) => {
            usage.item(&key, value, reporter);
            directory.item(
                (&key, value),
                metaroot,
                &mut usage,
                |run| store.device.contains(run),
                reporter,
            );
            if replayed {
                reporter.advance(usage::blocks_of(&key, value));
            } else {
                files.item(&key, value, reporter);
            }
        }
    });
    reporter.report.nodes = nodes;
    if reporter.tree_damaged {
        // With missing keys counts cannot add up, and the loss is reported already.
        files.locate(checkpointed, reporter);
        return;
    }
    if nodes != metaroot.nodes {
        reporter
            .damaged(format!("the metaroot counts {} nodes, the tree has {nodes}", metaroot.nodes));
    }
    usage.compare(metaroot.used_blocks, reporter);
    usage.compare_references(metaroot.snapshots.shared_extents, reporter);
    // With a log the data of this tree is not read, because blocks that the records have freed may
    // be overwritten. Blocks that a snapshot holds too must be there.
    let data = options.data.then_some(Data { files: &files, shared_too: replayed });
    directory.verify(store, metaroot, &mut seen, &mut usage, data.as_ref(), reporter);
    // Losses in snapshots make nothing of the live state uncertain.
    reporter.tree_damaged = false;
    if !replayed {
        files.finish(metaroot.inodes, metaroot.next_inode, reporter);
        files.locate(checkpointed, reporter);
    }
}

/// Verifies the files of the state that opening reaches.
fn check_files<M: Medium, P: Platform>(
    volume: &Volume<M, P>,
    root: &Root,
    options: &CheckOptions,
    reporter: &mut Reporter<'_>,
) {
    let mut files = Files::new(volume, options.data);
    walk(volume.engine.store(), root, Copies::Any, None, reporter, &mut |event, reporter| {
        if let walk::Event::Item(key, value) = event {
            files.item(&key, value, reporter);
        }
    });
    if !reporter.tree_damaged {
        let (inodes, next_inode) = volume.engine.working_counts();
        files.finish(inodes, next_inode, reporter);
    }
    files.locate(root, reporter);
}

/// Text of an error for a finding.
fn reason(error: &Error) -> alloc::string::String {
    match error {
        Error::CorruptMetadata { reason, .. } | Error::CorruptLog { reason, .. } => {
            alloc::string::String::from(*reason)
        }
        // Said of one copy here.
        Error::SuperblockDamaged => "its checksum or a field is wrong".into(),
        other => format!("{other}"),
    }
}
