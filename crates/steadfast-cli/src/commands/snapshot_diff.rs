//! `steadfast snapshot diff`: which paths differ between two snapshots, or a snapshot and the live
//! volume.
//!
//! The volume lists the inodes that differ, and skips everything that both states share. To find
//! their paths, the command reads the names of both states. It keeps only the names that it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use steadfast::fs::FileKind;
use steadfast::{InodeChange, InodeNumber};

use crate::failure::{Failure, Outcome};
use crate::image::{Access, CACHE_SIZE, Image};
use crate::live::Live;
use crate::medium::HostVolume;
use crate::output::{JsonName, Output};
use crate::snapshot_failure::explain;
use crate::target::Target;
use crate::volume_path::join;
use crate::walk::{Step, Walk};
use crate::{host, output};

/// Directory of the snapshots of a mount.
const SNAPSHOTS: &str = ".snapshots";
/// Inodes requested at a time on an image.
const CHANGES_MAX: usize = 1024;
/// The bits of an inode number below `.snapshots` that are the number in the volume.
const INODE_MASK: u64 = (1 << 48) - 1;

/// A path that differs.
#[derive(Debug, Serialize)]
struct SnapshotDifference {
    #[serde(flatten)]
    name: JsonName,
    /// `added`, `removed`, `renamed` or `changed`.
    change: &'static str,
    /// The earlier name, for `renamed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<JsonName>,
    /// The other differences: content, attributes, times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    what: Vec<&'static str>,
}

/// The names of the relevant inodes in one state.
type Names = BTreeMap<u64, BTreeSet<Vec<u8>>>;

/// Prints the differences between the snapshot `before` and the snapshot `after` or the live
/// volume.
///
/// # Errors
/// What is wrong with the target or the names, and those of reading.
pub fn run(target: &Path, before: &str, after: Option<&str>, json: bool) -> Outcome {
    let (changes, names) = match Target::find(target)? {
        Target::Mounted(live) => on_mount(&live, before, after)?,
        Target::Image(path) => on_image(&path, before, after)?,
    };
    let differences = differences(&changes, &names);
    if json {
        return output::json(&differences);
    }
    let mut output = Output::new();
    for difference in &differences {
        let sign = match difference.change {
            "added" => '+',
            "removed" => '-',
            "renamed" => '>',
            _ => '*',
        };
        let text = |name: &JsonName| output::printable(name.name.as_bytes());
        let from =
            difference.from.as_ref().map(|from| format!("{} -> ", text(from))).unwrap_or_default();
        let what = match difference.what.is_empty() {
            true => String::new(),
            false => format!("  ({})", difference.what.join(", ")),
        };
        output.line(format_args!("{sign} {from}{}{what}", text(&difference.name)))?;
    }
    output.finish()
}

fn on_image(
    path: &Path,
    before: &str,
    after: Option<&str>,
) -> Outcome<(Vec<InodeChange>, [Names; 2])> {
    let at = |name: &str| format!("{}: {}", path.display(), output::printable(name.as_bytes()));
    let image = Image::open(path, Access::Read)?;
    let mut changes = Vec::new();
    let mut from = InodeNumber(0);
    loop {
        let part = image.volume.snapshot_diff(before, after, from, CHANGES_MAX);
        let part = part.map_err(|error| explain(Failure::core(error, path.display()), error))?;
        changes.extend(part.changes);
        let Some(next) = part.next else { break };
        from = next;
    }
    let wanted = NamesToKeep::new(&changes);
    let options = steadfast::OpenOptions {
        read_only: true,
        cache_size: CACHE_SIZE,
        access_times: false,
        ..steadfast::OpenOptions::default()
    };
    let open = |name: &str| host::open_snapshot(path, host::Way::Cached, options.clone(), name);
    let old = names_in(&open(before)?, &wanted, &at(before))?;
    let new = match after {
        Some(name) => names_in(&open(name)?, &wanted, &at(name))?,
        None => names_in(&image.volume, &wanted, &path.display().to_string())?,
    };
    image.close()?;
    Ok((changes, [old, new]))
}

fn on_mount(
    live: &Live,
    before: &str,
    after: Option<&str>,
) -> Outcome<(Vec<InodeChange>, [Names; 2])> {
    let changes = live.snapshot_diff(before, after)?;
    let wanted = NamesToKeep::new(&changes);
    let snapshots = live.directory().join(SNAPSHOTS);
    let old = names_below(&snapshots.join(before), &wanted)?;
    let new = match after {
        Some(name) => names_below(&snapshots.join(name), &wanted)?,
        None => names_below(live.directory(), &wanted)?,
    };
    Ok((changes, [old, new]))
}

/// Selects the names to keep: those of inodes that differ, and all in directories whose entries
/// differ.
struct NamesToKeep {
    inodes: BTreeSet<u64>,
    directories: BTreeSet<u64>,
}

impl NamesToKeep {
    fn new(changes: &[InodeChange]) -> NamesToKeep {
        let directories =
            changes.iter().filter(|change| change.entries || change.created || change.removed);
        NamesToKeep {
            inodes: changes.iter().map(|change| change.inode.0).collect(),
            directories: directories.map(|change| change.inode.0).collect(),
        }
    }

    fn note(&self, names: &mut Names, directory: u64, path: &[u8], inode: u64) {
        if self.inodes.contains(&inode) || self.directories.contains(&directory) {
            names.entry(inode).or_default().insert(path.to_vec());
        }
    }
}

fn names_in(volume: &HostVolume, wanted: &NamesToKeep, place: &str) -> Outcome<Names> {
    let mut names = Names::new();
    names.entry(InodeNumber::ROOT.0).or_default().insert(b"/".to_vec());
    let root = volume.attributes(InodeNumber::ROOT).map_err(|error| Failure::core(error, place))?;
    let mut walk = Walk::new(volume, b"", root);
    while let Some(step) = walk.step().map_err(|stop| stop.failure(place))? {
        if let (Step::Entry(entry, _), Some(directory)) = (step, walk.directory()) {
            wanted.note(&mut names, directory.0, walk.path(), entry.inode.0);
        }
    }
    Ok(names)
}

fn names_below(root: &Path, wanted: &NamesToKeep) -> Outcome<Names> {
    let mut names = Names::new();
    names.entry(InodeNumber::ROOT.0).or_default().insert(b"/".to_vec());
    let mut waiting = vec![(InodeNumber::ROOT.0, b"/".to_vec())];
    while let Some((directory, path)) = waiting.pop() {
        let host = root.join(PathBuf::from(std::ffi::OsString::from_vec(path[1..].to_vec())));
        let cannot = |error: std::io::Error| Failure::host(&error, "read", &host);
        let entries = match std::fs::read_dir(&host) {
            Ok(entries) => entries,
            // The live tree may change during the walk.
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && directory != InodeNumber::ROOT.0 =>
            {
                continue;
            }
            Err(error) => return Err(cannot(error)),
        };
        for entry in entries {
            let entry = entry.map_err(cannot)?;
            let inode = entry.ino() & INODE_MASK;
            let path = join(&path, entry.file_name().as_bytes());
            wanted.note(&mut names, directory, &path, inode);
            if entry.file_type().map_err(cannot)?.is_dir() {
                waiting.push((inode, path));
            }
        }
    }
    Ok(names)
}

fn differences(changes: &[InodeChange], names: &[Names; 2]) -> Vec<SnapshotDifference> {
    let known: BTreeMap<u64, &InodeChange> =
        changes.iter().map(|change| (change.inode.0, change)).collect();
    let inodes: BTreeSet<u64> = names[0].keys().chain(names[1].keys()).copied().collect();
    let none = BTreeSet::new();
    let mut found = Vec::new();
    for inode in inodes {
        let [old, new] = [0, 1].map(|state| names[state].get(&inode).unwrap_or(&none));
        let what = known.get(&inode).map_or(Vec::new(), |change| what(change));
        let mut gone: Vec<&Vec<u8>> = old.difference(new).collect();
        for path in new.difference(old) {
            // One new name and one removed name of an inode count as a rename.
            let from = gone.pop();
            let change = if from.is_some() { "renamed" } else { "added" };
            // A new name changes the times by itself.
            let mut what = if from.is_some() { what.clone() } else { Vec::new() };
            what.retain(|word| *word != "times");
            let from = from.map(|from| JsonName::new(from));
            found.push((
                path.clone(),
                SnapshotDifference { name: JsonName::new(path), change, from, what },
            ));
        }
        for path in gone {
            let name = JsonName::new(path);
            found.push((
                path.clone(),
                SnapshotDifference { name, change: "removed", from: None, what: Vec::new() },
            ));
        }
        for path in old.intersection(new).filter(|_| !what.is_empty()) {
            let name = JsonName::new(path);
            let what = what.clone();
            found.push((
                path.clone(),
                SnapshotDifference { name, change: "changed", from: None, what },
            ));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.into_iter().map(|(_, difference)| difference).collect()
}

/// The differences to print. New and removed names already show that a directory's entries changed.
fn what(change: &InodeChange) -> Vec<&'static str> {
    let only_times =
        change.times && !change.content && !change.attributes && change.kind != FileKind::Directory;
    let all =
        [(change.content, "content"), (change.attributes, "attributes"), (only_times, "times")];
    let directory = change.kind == FileKind::Directory && change.entries;
    // The number of links of a directory changes with its subdirectories.
    let told = all.into_iter().filter(|(is, word)| *is && !(directory && *word == "attributes"));
    told.map(|(_, word)| word).collect()
}
