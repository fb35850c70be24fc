//! Compares snapshots with the dead lists. A block that a snapshot needs and the live tree does not
//! must be in the right list, with the right birth. The lists have no other blocks.
//!
//! The life of a block is one interval. The check goes from the newest snapshot to the oldest. A
//! block that a tree has and no newer tree has died between the two. It is in the list of this
//! snapshot or of a later one that is being deleted and whose list is not processed yet. Subtrees
//! that a newer tree has are skipped, so a check reads each node once, however many snapshots hold
//! it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::error::Error;
use crate::format::dirent::Dirent;
use crate::format::extent::{Extent, decode_birth};
use crate::format::key::{Key, Kind};
use crate::format::{DeadEntry, Metaroot, NodePointer, Root, SnapshotRecord, decode_dead_list};
use crate::platform::Platform;
use crate::tools::check::files::Files;
use crate::tools::check::paths::{Name, Names};
use crate::tools::check::reason;
use crate::tools::check::report::Reporter;
use crate::tools::check::usage::Usage;
use crate::tools::check::walk::{Copies, Event, SeenNodes, walk};
use crate::tree::Store;
use crate::types::{BlockRun, Generation};

/// Data that is to be compared with its checksums.
pub(super) struct Data<'a, M: Medium, P: Platform> {
    pub files: &'a Files<'a, M, P>,
    /// Includes data that the live tree shares with the newest snapshot; nothing else reads it.
    pub shared_too: bool,
}

/// Snapshot data found in the live tree.
#[derive(Default)]
pub(super) struct Directory {
    /// Oldest first.
    records: Vec<SnapshotRecord>,
    /// Nodes of the live tree that are not younger than the newest snapshot.
    old_nodes: u64,
}

impl Directory {
    /// Notes a node of the live tree.
    pub fn node(&mut self, pointer: &NodePointer, metaroot: &Metaroot) {
        self.old_nodes += u64::from(pointer.generation <= metaroot.snapshots.newest);
    }

    /// Processes an item of the live tree.
    pub fn item(
        &mut self,
        item: (&Key, &[u8]),
        metaroot: &Metaroot,
        usage: &mut Usage<'_>,
        contains: impl Fn(BlockRun) -> bool,
        reporter: &mut Reporter<'_>,
    ) {
        let (key, value) = item;
        match key.kind() {
            Some(Kind::Extent)
                if decode_birth(value).is_some_and(|birth| birth > metaroot.generation) =>
            {
                let inode = key.inode_number().0;
                reporter.damaged(format!("inode {inode}: an extent from a later generation"));
            }
            Some(Kind::Snapshot) => match SnapshotRecord::decode(Generation(key.suffix()), value) {
                Ok(record) => {
                    if record.generation >= metaroot.generation {
                        reporter.damaged(format!(
                            "snapshot {}: not from an earlier generation",
                            record.generation.0
                        ));
                    }
                    self.records.push(record);
                }
                Err(error) => {
                    reporter.damaged(format!("snapshot {}: {}", key.suffix(), reason(&error)))
                }
            },
            Some(Kind::DeadList) => {
                let generation = key.dead_list_generation();
                match decode_dead_list(value, contains) {
                    Ok(entries) => {
                        for entry in entries {
                            if entry.birth > generation {
                                reporter.damaged(format!(
                                    "dead list of snapshot {}: blocks at {} were born after it",
                                    generation.0, entry.run.start.0
                                ));
                            }
                            usage.take_dead(entry.run, generation, reporter);
                        }
                    }
                    Err(error) => {
                        reporter.damaged(format!("snapshot {}: {}", generation.0, reason(&error)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Compares the counts of the metaroot.
    fn compare_counts(&self, metaroot: &Metaroot, usage: &Usage<'_>, reporter: &mut Reporter<'_>) {
        let counts = metaroot.snapshots;
        let newest = self.records.iter().rev().find(|record| !record.deleting);
        let newest = newest.map_or(Generation(0), |record| record.generation);
        if counts.newest != newest {
            let text = format!(
                "the metaroot says snapshot {} is the newest, it is {}",
                counts.newest.0, newest.0
            );
            reporter.damaged(text);
        }
        if counts.keys != self.records.len() as u64 {
            let text = format!(
                "the metaroot counts {} snapshots, {} are there",
                counts.keys,
                self.records.len()
            );
            reporter.damaged(text);
        }
        let dead = usage.dead_blocks();
        if counts.blocks != dead {
            let text = format!(
                "the metaroot counts {} blocks of snapshots, the dead lists have {dead}",
                counts.blocks
            );
            reporter.damaged(text);
        }
        if counts.shared_nodes < self.old_nodes {
            reporter.damaged(format!(
                "the metaroot counts at most {} nodes that the newest snapshot has too, there are {}",
                counts.shared_nodes, self.old_nodes
            ));
        }
        let mut names: Vec<&str> = self
            .records
            .iter()
            .filter(|record| !record.deleting)
            .map(|record| &record.name[..])
            .collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            reporter.damaged(format!("two snapshots have the name {:?}", pair[0]));
        }
    }

    /// Verifies every snapshot's tree and the dead lists. The live tree was visited before: `usage`
    /// has its blocks.
    pub fn verify<M: Medium, P: Platform>(
        &self,
        store: &Store<M, P>,
        metaroot: &Metaroot,
        nodes: &mut SeenNodes,
        usage: &mut Usage<'_>,
        data: Option<&Data<'_, M, P>>,
        reporter: &mut Reporter<'_>,
    ) {
        self.compare_counts(metaroot, usage, reporter);
        let live = metaroot.root();
        let mut shared = data.filter(|data| data.shared_too);
        let mut waiting: Vec<&SnapshotRecord> = Vec::new();
        for record in self.records.iter().rev() {
            if record.deleting {
                waiting.push(record);
                continue;
            }
            reporter.report.snapshots += 1;
            let mut expected = Expected::default();
            let lists = waiting.drain(..).chain([record]);
            for list in lists {
                expected.add(store, &live, list.generation, record.generation, reporter);
            }
            let damaged = core::mem::replace(&mut reporter.tree_damaged, false);
            let mark = reporter.mark();
            // Blocks that an older snapshot shares with the live tree are in the newest one too.
            if let Some(data) = shared.take() {
                verify_shared_data(store, record, usage, data.files, reporter);
            }
            let files = data.map(|data| data.files);
            verify_tree(store, record, nodes, usage, &mut expected, files, reporter);
            locate(store, record, mark, reporter);
            if !reporter.tree_damaged {
                expected.report_rest(record, reporter);
            }
            reporter.tree_damaged |= damaged;
        }
        let has = |generation| self.records.iter().any(|record| record.generation == generation);
        for generation in usage.dead_generations().filter(|generation| !has(*generation)) {
            reporter
                .damaged(format!("a dead list of snapshot {}, which is not there", generation.0));
        }
    }
}

/// Dead list entries that a snapshot's tree must contain: end and birth by first block.
#[derive(Default)]
struct Expected {
    runs: BTreeMap<u64, (u64, Generation)>,
}

impl Expected {
    /// Adds the entries of the list of `generation` that were born up to `born`.
    fn add<M: Medium, P: Platform>(
        &mut self,
        store: &Store<M, P>,
        live: &Root,
        generation: Generation,
        born: Generation,
        reporter: &mut Reporter<'_>,
    ) {
        let (mut from, last) = Key::dead_list_range(generation);
        loop {
            let found = match store.next(live, &from, &last) {
                Ok(Some(found)) => found,
                Ok(None) => return,
                Err(error) => return reporter.damaged(format!("a dead list: {}", reason(&error))),
            };
            // Errors in the value itself have been reported.
            let entries =
                decode_dead_list(&found.1, |run| store.device.contains(run)).unwrap_or_default();
            for DeadEntry { run, birth } in entries {
                if birth <= born {
                    self.runs.insert(run.start.0, (run.end(), birth));
                }
            }
            let Some(next) = found.0.successor() else { return };
            from = next;
        }
    }

    /// Removes `start..end`, born in `birth`. Returns the part of it that is not there.
    fn remove(
        &mut self,
        start: u64,
        end: u64,
        birth: Generation,
    ) -> Option<(u64, u64, &'static str)> {
        let mut at = start;
        while at < end {
            let Some((from, (to, born))) =
                self.runs.range(..=at).next_back().map(|(from, entry)| (*from, *entry))
            else {
                return Some((at, end, "are in no dead list"));
            };
            if to <= at {
                return Some((at, end, "are in no dead list"));
            }
            if born != birth {
                return Some((at, end, "are in a dead list with another birth"));
            }
            self.runs.remove(&from);
            if from < at {
                self.runs.insert(from, (at, born));
            }
            if to > end {
                self.runs.insert(end, (to, born));
            }
            at = to.min(end);
        }
        None
    }

    fn report_rest(&self, record: &SnapshotRecord, reporter: &mut Reporter<'_>) {
        if let Some((start, (end, _))) = self.runs.iter().next() {
            reporter.damaged(format!(
                "snapshot {:?}: its dead list has {} runs that it does not hold, the first one blocks {start}..{end}",
                record.name,
                self.runs.len(),
            ));
        }
    }
}

/// Looks up the paths of findings in a snapshot since `mark`: its names are not those of the live
/// tree.
fn locate<M: Medium, P: Platform>(
    store: &Store<M, P>,
    record: &SnapshotRecord,
    mark: usize,
    reporter: &mut Reporter<'_>,
) {
    if !reporter.has_places_since(mark) {
        return;
    }
    let mut names: Vec<Name> = Vec::new();
    // Unreadable nodes have been reported.
    let mut quiet = |_| {};
    let mut unheard = Reporter::new(0, &mut quiet);
    walk(store, &record.root, Copies::Any, None, &mut unheard, &mut |event, _| {
        if let Event::Item(key, value) = event
            && key.kind() == Some(Kind::Dirent)
            && let Ok(entry) = Dirent::decode(value)
        {
            let (directory, suffix) = (key.inode_number(), key.suffix());
            names.push(Name { inode: entry.inode, directory, suffix, kind: entry.kind });
        }
    });
    let names = Names::new(store, &record.root, &names);
    reporter.locate_since(mark, |at| names.affected(at));
}

/// Compares data that a snapshot shares with the live tree with its checksums. The live tree was
/// visited before.
fn verify_shared_data<M: Medium, P: Platform>(
    store: &Store<M, P>,
    record: &SnapshotRecord,
    usage: &Usage<'_>,
    files: &Files<'_, M, P>,
    reporter: &mut Reporter<'_>,
) {
    let granules = store.device.superblock.block_size / store.device.superblock.checksum_granule();
    // Errors of nodes are reported when the tree as a whole is verified.
    let mut quiet = |_| {};
    let mut unheard = Reporter::new(0, &mut quiet);
    reporter.snapshot = Some(record.name.clone());
    walk(store, &record.root, Copies::Any, None, &mut unheard, &mut |event, _| {
        if let Event::Item(key, value) = event
            && key.kind() == Some(Kind::Extent)
            && let Ok(extent) = Extent::decode(value, granules)
            && store.device.contains(extent.run())
            && usage.has_found(extent.run())
        {
            files.verify(key.inode_number(), key.suffix(), &extent, reporter);
        }
    });
    reporter.snapshot = None;
}

fn verify_tree<M: Medium, P: Platform>(
    store: &Store<M, P>,
    record: &SnapshotRecord,
    nodes: &mut SeenNodes,
    usage: &mut Usage<'_>,
    expected: &mut Expected,
    files: Option<&Files<'_, M, P>>,
    reporter: &mut Reporter<'_>,
) {
    let node_blocks = store.device.superblock.node_blocks();
    let granules = store.device.superblock.block_size / store.device.superblock.checksum_granule();
    let name = &record.name;
    let mut wrong = 0u64;
    let mut take = |usage: &mut Usage<'_>, run: BlockRun, birth, reporter: &mut Reporter<'_>| {
        let parts = usage.take_held(run);
        for (from, to) in &parts {
            let problem = expected.remove(*from, *to, birth);
            if let Some((from, to, what)) = problem.filter(|_| wrong < 8) {
                wrong += 1;
                reporter.damaged(format!("snapshot {name:?}: blocks {from}..{to} {what}"));
            }
        }
        parts.iter().map(|(from, to)| to - from).sum::<u64>()
    };
    reporter.snapshot = Some(name.clone());
    walk(
        store,
        &record.root,
        Copies::All,
        Some(nodes),
        reporter,
        &mut |event, reporter| match event {
            Event::Node(pointer) => {
                for start in pointer.copies() {
                    let run = BlockRun { start, count: node_blocks };
                    if take(usage, run, pointer.generation, reporter) != node_blocks {
                        reporter.damaged(format!(
                            "snapshot {name:?}: its node at block {} is in use for something newer",
                            start.0
                        ));
                    }
                }
            }
            Event::Item(key, value) if key.kind() == Some(Kind::Extent) => {
                let extent = match Extent::decode(value, granules) {
                    Ok(extent) if store.device.contains(extent.run()) => extent,
                    other => {
                        let error = other.err().unwrap_or(Error::NotFound);
                        let inode = key.inode_number().0;
                        reporter.damaged(format!(
                            "snapshot {name:?}: inode {inode}: {}",
                            reason(&error)
                        ));
                        return;
                    }
                };
                if take(usage, extent.run(), extent.birth, reporter) > 0
                    && let Some(files) = files
                {
                    files.verify(key.inode_number(), key.suffix(), &extent, reporter);
                }
            }
            Event::Item(..) => {}
        },
    );
    reporter.snapshot = None;
}
