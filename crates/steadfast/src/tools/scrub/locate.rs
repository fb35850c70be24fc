//! Paths of a scrub's findings, in bounded steps. The live tree and each snapshot with findings are
//! walked twice: once for the entries of the files, and once for the directories above them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use steadfast_media::Medium;

use crate::engine::Reader;
use crate::engine::keyspace::KeyspaceRead;
use crate::error::{Error, Result};
use crate::format::dirent::Dirent;
use crate::format::inode::Inode;
use crate::format::key::{Key, Kind};
use crate::format::{Root, Value};
use crate::platform::Platform;
use crate::tools::scrub::{Phase, ScrubFinding};
use crate::tree::Store;
use crate::types::{Generation, InodeNumber};
use crate::volume::Volume;

/// Keys read in one step.
const STEP_KEYS: usize = 256;
/// Limit of the directory levels that are followed.
const DEPTH_MAX: usize = 4096;

/// Progress of the search.
#[derive(Debug, Default)]
pub struct Locate {
    /// The trees in which findings have their names, the present one last. `None` before the first
    /// step; an entry is a snapshot, or `None` for the live tree.
    trees: Option<Vec<Option<Generation>>>,
    round: u32,
    key: Option<Key>,
    /// Inodes without a name so far.
    wanted: Vec<InodeNumber>,
    /// Directory and name of each.
    names: BTreeMap<InodeNumber, (InodeNumber, Vec<u8>)>,
}

/// The findings whose names are in a tree.
fn of_tree(
    findings: &mut [ScrubFinding],
    tree: Option<Generation>,
) -> impl Iterator<Item = &mut ScrubFinding> {
    findings.iter_mut().filter(move |finding| finding.snapshot == tree)
}

/// A tree with names.
enum NameSource<'r, M: Medium, P: Platform> {
    Live(&'r Reader<'r, M, P>),
    Snapshot(&'r Store<M, P>, Option<Root>),
}

impl<M: Medium, P: Platform> NameSource<'_, M, P> {
    /// The first key from `from` on.
    fn next(&self, from: &Key) -> Result<Option<(Key, Value)>> {
        match self {
            NameSource::Live(reader) => reader.next(from, &Key::MAX),
            NameSource::Snapshot(store, Some(root)) => store.next(root, from, &Key::MAX),
            NameSource::Snapshot(_, None) => Ok(None),
        }
    }

    /// The directory above a directory.
    fn parent(&self, directory: InodeNumber) -> Option<InodeNumber> {
        let key = Key::inode(directory);
        let value = match self {
            NameSource::Live(reader) => reader.get(&key),
            NameSource::Snapshot(store, root) => store.get(root.as_ref()?, &key),
        };
        Some(Inode::decode(&value.ok()??).ok()?.parent)
    }
}

impl<M: Medium, P: Platform> Volume<M, P> {
    /// One step; `false` after everything has been looked up and the paths are in `findings`.
    pub(super) fn locate_step(
        &self,
        locate: &mut Locate,
        findings: &mut [ScrubFinding],
    ) -> Result<bool> {
        let Some(mut key) = locate.key else { return self.next_round(locate, findings) };
        let reader = self.engine.reader()?;
        let tree = self.names_of(&reader, locate)?;
        for _ in 0..STEP_KEYS {
            let found = match tree.next(&key) {
                Ok(found) => found,
                // Names after a damaged node are not found; the damage has been reported.
                Err(Error::CorruptMetadata { .. } | Error::Medium(_)) => None,
                Err(error) => return Err(error),
            };
            let Some((found_key, value)) = found else {
                locate.key = None;
                return Ok(true);
            };
            if found_key.kind() == Some(Kind::Dirent)
                && let Ok(entry) = Dirent::decode(&value)
                && locate.wanted.binary_search(&entry.inode).is_ok()
            {
                locate.names.entry(entry.inode).or_insert((found_key.inode_number(), entry.name));
            }
            // No names follow the entries of a directory, or a file.
            key = match found_key.kind() {
                Some(Kind::Inode | Kind::Dirent) => found_key.successor().unwrap_or(Key::MAX),
                _ => {
                    let number = found_key.inode_number().0;
                    if number == u64::MAX {
                        locate.key = None;
                        return Ok(true);
                    }
                    Key::inode(InodeNumber(number + 1))
                }
            };
        }
        locate.key = Some(key);
        Ok(true)
    }

    /// Begins the walk for files, then the walk for the directories above them, then builds the
    /// paths and goes on with the next tree.
    fn next_round(&self, locate: &mut Locate, findings: &mut [ScrubFinding]) -> Result<bool> {
        let trees = locate.trees.get_or_insert_with(|| {
            let named = findings.iter().filter(|finding| finding.inode.is_some());
            let mut trees: Vec<_> = named.map(|finding| finding.snapshot).collect();
            trees.sort_unstable();
            trees.dedup();
            trees
        });
        let Some(tree) = trees.last().copied() else { return Ok(false) };
        locate.round += 1;
        let mut wanted: Vec<InodeNumber> = match locate.round {
            1 => of_tree(findings, tree).filter_map(|finding| finding.inode).collect(),
            2 => self.directories_above(locate)?,
            _ => {
                for finding in of_tree(findings, tree) {
                    finding.path = finding.inode.and_then(|inode| locate.path(inode));
                }
                let mut trees = locate.trees.take();
                trees.as_mut().and_then(Vec::pop);
                *locate = Locate { trees, ..Locate::default() };
                return Ok(true);
            }
        };
        wanted.sort_unstable();
        wanted.dedup();
        locate.key = (!wanted.is_empty()).then_some(Key::inode(InodeNumber::ROOT));
        locate.wanted = wanted;
        Ok(true)
    }

    /// The tree whose names are being read.
    fn names_of<'r>(
        &'r self,
        reader: &'r Reader<'r, M, P>,
        locate: &Locate,
    ) -> Result<NameSource<'r, M, P>> {
        let tree = locate.trees.as_ref().and_then(|trees| trees.last().copied()).flatten();
        Ok(match tree {
            None => NameSource::Live(reader),
            // A snapshot that has been deleted meanwhile has no names any more.
            Some(generation) => NameSource::Snapshot(
                self.engine.store(),
                self.tree_of(reader, Phase::Snapshot(generation))?.map(|(root, _)| root),
            ),
        })
    }

    /// Every directory above those that were found, according to the directories themselves.
    fn directories_above(&self, locate: &Locate) -> Result<Vec<InodeNumber>> {
        let reader = self.engine.reader()?;
        let tree = self.names_of(&reader, locate)?;
        let mut above = Vec::new();
        for (directory, _) in locate.names.values() {
            let mut at = *directory;
            for _ in 0..DEPTH_MAX {
                if at == InodeNumber::ROOT || above.contains(&at) {
                    break;
                }
                above.push(at);
                match tree.parent(at) {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
        }
        Ok(above)
    }
}

impl Locate {
    fn path(&self, inode: InodeNumber) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = inode;
        while at != InodeNumber::ROOT {
            let (directory, name) = self.names.get(&at)?;
            parts.push(name);
            at = *directory;
            if parts.len() > DEPTH_MAX {
                return None;
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(path)
    }
}
